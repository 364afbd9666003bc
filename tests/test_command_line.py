"""The command line as a whole: its help by purpose, what was meant by a mistyped name, one home for each command."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from tests.command_tree import subcommands
from tidemark.cli.program.command_groups import LazyGroup, names_of
from tidemark.cli.program.main import SECTIONS, main


def said(*arguments: str, code: int = 0, width: int = 100) -> str:
    done = CliRunner().invoke(main, arguments, terminal_width=width)
    assert done.exit_code == code, (done.output, done.exception)
    return done.output


def groups(command: click.Command = main, name: str = "tidemark") -> Mapping[str, click.Group]:
    """Return all groups, by how they are typed."""
    if not isinstance(command, click.Group):
        return {}
    below = (groups(found, f"{name} {word}") for word, found in subcommands(command).items())
    return {name: command, **{word: group for found in below for word, group in found.items()}}


def test_the_help_is_grouped_and_begins_with_an_example() -> None:
    text = said("--help")
    places = [text.index(f"{title}:") for title in ("Start here", *SECTIONS)]
    assert places == sorted(places)
    assert "tidemark run first_job:job" in text


@pytest.mark.parametrize("width", [60, 80, 120])
def test_no_sentence_of_a_help_is_cut(width: int) -> None:
    for name in groups():
        text = said(*name.split()[1:], "--help", width=width)
        assert "..." not in text.partition("ommands:")[2], name
        for command in subcommands(groups()[name]):
            assert f"  {command} " in text


def test_every_command_has_a_section_and_a_sentence() -> None:
    for name, group in groups().items():
        if isinstance(group, LazyGroup):
            assert set(names_of(group.sections)) == set(subcommands(group)), name
            texts = [entry.text for section in group.sections.values() for entry in section.values()]
            assert all(text.endswith(".") and text[0].isupper() for text in texts)


def test_the_help_loads_no_command() -> None:
    program = "import sys; from tidemark.cli.program.main import main; main(['--help'], standalone_mode=False); print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.splitlines()[-1].split()
    assert not {"tidemark.cli.jobs.running", "tidemark.cli.show.status", "deltalake", "pyarrow"} & set(loaded)


def test_starting_a_job_loads_no_operators_and_no_tables() -> None:
    program = "import sys, tidemark.cli.jobs.start_stop; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()
    assert not {"tidemark.graph.operators.registry", "deltalake", "pyarrow", "pyspark"} & set(loaded)


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        (("statsu",), "Did you mean 'status'"),
        (("submitt", "x:y"), "Did you mean 'submit'?"),
        (("rewnd",), "Did you mean 'rewind'?"),
        (("savepoints",), "Did you mean 'savepoint'?"),
        (("explain", "x:y"), "Did you mean 'graph'?"),
        (("Status",), "Did you mean 'status'"),
        (("kill", "fares"), "Did you mean 'cancel'?"),
        (("savepoint", "triger", "fares"), "Did you mean 'trigger'?"),
        (("savepoint", "lst"), "Did you mean 'list'?"),
        (("silence", "ad"), "Did you mean 'add'?"),
        (("state", "shwo"), "Did you mean 'show'?"),
    ],
)
def test_a_mistyped_command_is_guessed(typed: tuple[str, ...], meant: str) -> None:
    text = said(*typed, code=2)
    assert "No such command" in text
    assert meant in text
    assert " --help`" in text


def test_what_nothing_is_like_is_only_refused() -> None:
    text = said("xyzzy", code=2)
    assert "No such command 'xyzzy'. See `" in text


def test_what_belongs_to_savepoints_is_there_under_both_names() -> None:
    here, below = subcommands(main), subcommands(subcommands(main)["savepoint"])
    for name in ("rewind", "fork", "discard", "promote"):
        assert below[name] is here[name]
    # Of two savepoints, and of two tables: each says where the other is.
    assert "tidemark diff" in said("savepoint", "--help", width=200)


@pytest.mark.parametrize(
    ("conf", "says"),
    [
        ("spark.x", "--conf 'spark.x' is not KEY=VALUE"),
        ("spark.hadoop.fs.s3a.secret.key=hunter2", "fs.s3a.secret.key looks like a secret"),
    ],
)
def test_the_settings_of_a_run_are_looked_at_as_those_of_a_submission(conf: str, says: str) -> None:
    done = CliRunner().invoke(main, ["run", "no.such:job", "--conf", conf])
    assert done.exit_code == 1
    assert says in done.stderr
    assert "hunter2" not in done.stderr


def test_the_settings_of_a_run_reach_its_session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given: dict[str, Any] = {}

    class ReachedError(Exception):
        """The session would be built now."""

    def build_session(master: str, *, app_name: str, conf: Mapping[str, str]) -> None:
        given.update(conf, master=master, app_name=app_name)
        raise ReachedError

    (tmp_path / "tiny_job.py").write_text(
        "import tidemark as tm\n"
        "ordered = tm.bounded_out_of_orderness('0 ms', timestamp='n')\n"
        "rows = tm.source('rows', tm.from_elements([{'n': 1}], schema='n BIGINT'), watermarks=ordered)\n"
        "job = tm.Job('tiny', outputs={'rows': tm.memory(rows, 'rows')})\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr("tidemark.spark.env.session.build_session", build_session)
    done = CliRunner().invoke(main, ["run", "tiny_job:job", "--conf", "spark.ui.enabled=false", "--conf", "spark.x=a=b"])
    assert isinstance(done.exception, ReachedError), (done.output, done.exception)
    assert given == {"spark.ui.enabled": "false", "spark.x": "a=b", "master": "local[*]", "app_name": "tidemark tiny"}

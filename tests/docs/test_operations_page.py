"""The page on operations shows commands that there are, and a job that can be defined."""

from __future__ import annotations

import shlex

import pytest

import tidemark as tm
from tests.command_tree import subcommands
from tests.docs.page_commands import commands_of, require_understood
from tests.docs.test_snippets import CHECKOUT, snippets
from tidemark.cli.program.main import main

PAGE = CHECKOUT / "docs/how-to/operations.md"
_NAMES = ("program.class_archive", "show.status", "jobs.start_stop", "jobs.submitting", "jobs.supervising", "jobs.silence", "top.top")
MODULES = {f"tidemark.cli.{name}" for name in _NAMES}
"""Where the commands are that this page is about; others have pages of their own."""

COMMANDS = commands_of(PAGE.read_text(encoding="utf-8"))


@pytest.mark.parametrize("line", COMMANDS)
def test_each_command_is_understood(line: str) -> None:
    require_understood(line)


def test_every_command_that_looks_after_jobs_is_shown() -> None:
    shown = {shlex.split(line)[0] for line in COMMANDS}
    ours = {name for name, command in subcommands(main).items() if command.callback is not None and command.callback.__module__ in MODULES}
    assert len(ours) > 10
    assert ours - shown <= {"silence", "cancel", "start"}, "show it with its output"
    text = PAGE.read_text(encoding="utf-8")
    assert [name for name in ours if f"`{name}" not in text and f"tidemark {name}" not in text] == []


def test_the_job_of_the_page_can_be_defined() -> None:
    (snippet,) = snippets(PAGE)
    space: dict[str, object] = {}
    exec(compile(snippet.code, snippet.place, "exec"), space)  # noqa: S102 - the project's own page
    assert isinstance(space["job"], tm.Job)

"""Commands on jobs that should be there say so when there is nothing at the place they were given, and make nothing there."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import tidemark as tm
from tidemark.cli.program.main import main
from tidemark.errors import CorruptStoreError, UnknownStoreError
from tidemark.savepoints.core.savepoint_store import SavepointStore
from tidemark.savepoints.export.importing import import_savepoint
from tidemark.state.status.status import JobStatus, write_status
from tidemark.state.store.store import JobStore

JOB = """
    import tidemark as tm

    events = tm.source("events", tm.files("landing", format="json", schema="k INT, at TIMESTAMP"), watermarks=tm.ascending(timestamp="at"))
    job = tm.Job("rides", outputs={"all": tm.delta(events, "lake/rides")})
"""
OF_A_STORE = (("list",), ("status",), ("top", "--frames", "1"))
OF_A_JOB = (
    ("status", "rides"),
    ("history", "rides"),
    ("history", "rides", "--changes"),
    ("logs", "rides"),
    ("top", "rides", "--frames", "1"),
    ("savepoint", "list", "rides"),
    ("savepoint", "show", "rides", "good"),
    ("savepoint", "diff", "rides", "good", "better"),
    ("savepoint", "dispose", "rides", "good"),
    ("state", "show", "rides"),
    ("check", "reading_rides:job"),
    ("check", "reading_rides:job", "--against", "good"),
    ("diff", "rides", "rides-what-if", "--output", "all"),
)
THAT_CHANGE = (
    ("start", "rides"),
    ("stop", "rides"),
    ("cancel", "rides"),
    ("restart", "rides"),
    ("suspend", "rides"),
    ("resume", "rides"),
    ("rescale", "rides", "2"),
    ("rewind", "rides", "--to", "good"),
    ("savepoint", "trigger", "rides"),
    ("upgrade", "rides", "--code", "reading_rides:job", "--version", "2"),
    ("promote", "rides"),
    ("discard", "rides"),
)


@pytest.fixture(autouse=True)
def code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A job's code, which can be imported."""
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "reading_rides.py").write_text(textwrap.dedent(JOB))
    monkeypatch.syspath_prepend(str(tmp_path / "code"))
    yield
    sys.modules.pop("reading_rides", None)


def run(store: Path, command: tuple[str, ...]) -> Result:
    return CliRunner().invoke(main, [*command, "--store", str(store)])


@pytest.mark.parametrize("command", OF_A_STORE + OF_A_JOB + THAT_CHANGE, ids=" ".join)
def test_of_a_mistyped_store_nothing_is_made(tmp_path: Path, command: tuple[str, ...]) -> None:
    (tmp_path / "jobs").mkdir()
    done = run(tmp_path / "jbos" / "deep", command)
    assert done.exit_code in {1, 2}, done.output
    assert done.stderr.startswith(f"tidemark: [TM404] there is nothing at {tmp_path / 'jbos' / 'deep'}: no such folder")
    assert f"{tmp_path} has code, jobs" in done.stderr
    assert not (tmp_path / "jbos").exists()


@pytest.mark.parametrize("command", OF_A_JOB, ids=" ".join)
def test_of_a_mistyped_job_those_that_are_there_are_named(tmp_path: Path, command: tuple[str, ...]) -> None:
    root = JobStore.open(str(tmp_path / "jobs"))
    for name in ("cabs", "ferries"):
        write_status(root, JobStatus(name, "a1", "finished", 1, 1))
    before = {file.path for file in root.list()}
    done = run(tmp_path / "jobs", command)
    assert done.exit_code in {1, 2}, done.output
    assert done.stderr.startswith("tidemark: [TM414] ")
    assert str(tmp_path / "jobs") in done.stderr
    assert "cabs, ferries" in done.stderr
    assert {file.path for file in root.list()} == before
    assert not (tmp_path / "jobs" / "rides").exists()


def test_of_a_mistyped_place_of_an_export_nothing_is_made(tmp_path: Path) -> None:
    there = tmp_path / "exports" / "good"
    with pytest.raises(CorruptStoreError, match="no such folder"):
        import_savepoint(SavepointStore(JobStore.open(str(tmp_path / "jobs")), "rides"), str(there))
    with pytest.raises(UnknownStoreError):
        tm.savepoint(str(there))
    with pytest.raises(UnknownStoreError):
        tm.savepoint("rides", store=str(there))
    assert not (tmp_path / "exports").exists()


def test_a_store_is_made_where_there_is_something_to_write(tmp_path: Path) -> None:
    assert JobStore.open(str(tmp_path / "new")).list() == ()
    assert (tmp_path / "new").is_dir()
    assert JobStore.open(str(tmp_path / "new"), make=False).list() == ()


def test_a_command_outside_of_a_project_names_the_folder_and_the_option(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.delenv("TIDEMARK_STORE", raising=False)
    for arguments in (["status"], ["list"], ["history", "rides"]):
        done = CliRunner().invoke(main, arguments)
        assert done.exit_code != 0
        assert f"[TM404] no job has run in {folder}: it has no folder .tidemark/jobs" in done.stderr
        assert "run this in the folder of the project, or name its store: --store PLACE, or TIDEMARK_STORE=PLACE" in done.stderr
    assert list(folder.iterdir()) == []

"""Rewinds of jobs whose tables have lost files, or entries of their logs."""

from __future__ import annotations

from pathlib import Path

import pytest
from deltalake import DeltaTable

from tests.savepoints.delta_jobs import maintain, rows
from tests.savepoints.stored_jobs import StoredJob
from tests.savepoints.test_rewinds import begin_only, go, six_epochs
from tidemark.errors import RewindError
from tidemark.savepoints.rewind.rewinding import preview_rewind


@pytest.fixture
def job(tmp_path: Path) -> StoredJob:
    return six_epochs(tmp_path)


def test_files_that_were_vacuumed_and_logs_that_were_cleaned_refuse_it(job: StoredJob, tmp_path: Path) -> None:
    for path in (tmp_path / "late").glob("*.parquet"):
        path.unlink()
    DeltaTable(str(tmp_path / "hourly")).create_checkpoint()
    for version in range(6):
        (tmp_path / "hourly" / "_delta_log" / f"{version:020d}.json").unlink()
    refusals = preview_rewind(job.root, "taxi", "good", clock=job.clock).refusals
    assert refusals == (
        f"output 'hourly': the table at {tmp_path / 'hourly'} no longer has version 2: its log was cleaned up",
        f"output 'late': the table at {tmp_path / 'late'} has lost 3 of 3 files of version 2 to a vacuum",
    )


def test_a_log_that_tells_only_of_upkeep_since_does_not_pass_for_an_unchanged_table(job: StoredJob, tmp_path: Path) -> None:
    """All that the table was given since the savepoint is in entries that are gone; the two that are left changed nothing."""
    for _ in range(2):
        maintain(str(tmp_path / "hourly"))
    table = DeltaTable(str(tmp_path / "hourly"))
    DeltaTable(str(tmp_path / "hourly"), version=table.version() - 2).create_checkpoint()
    for version in range(table.version() - 1):
        (tmp_path / "hourly" / "_delta_log" / f"{version:020d}.json").unlink()
    plan = preview_rewind(job.root, "taxi", "good", clock=job.clock)
    assert plan.refusals == (f"output 'hourly': the table at {tmp_path / 'hourly'} no longer has version 2: its log was cleaned up",)
    with pytest.raises(RewindError, match="its log was cleaned up"):
        go(job, "good")
    assert rows(tmp_path / "hourly") == [0, 1, 2, 3, 4, 5]


def test_a_log_that_is_cleaned_up_in_the_middle_of_a_rewind_stops_it(
    job: StoredJob, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin_only(job, "good", monkeypatch)
    monkeypatch.undo()
    for _ in range(2):
        maintain(str(tmp_path / "hourly"))
    table = DeltaTable(str(tmp_path / "hourly"))
    DeltaTable(str(tmp_path / "hourly"), version=table.version() - 2).create_checkpoint()
    kept = {file: file.read_bytes() for file in (tmp_path / "hourly" / "_delta_log").glob("*.json")}
    for version in range(table.version() - 1):
        (tmp_path / "hourly" / "_delta_log" / f"{version:020d}.json").unlink()
    with pytest.raises(RewindError, match=r"no longer covers the rewind.*backup"):
        go(job, "good")
    assert rows(tmp_path / "hourly") == [0, 1, 2, 3, 4, 5]
    for file, content in kept.items():
        file.write_bytes(content)
    go(job, "good")
    assert rows(tmp_path / "hourly") == [0, 1, 2]

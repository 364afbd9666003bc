"""A rewind beside others: jobs that write to the same tables, and those who did the same rewind while one slept."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from deltalake import CommitProperties, Transaction

from tests.savepoints.delta_jobs import job_with_tables, rows, run_epoch, write
from tests.savepoints.stored_jobs import StoredJob
from tests.savepoints.test_rewinds import begin_only, go
from tidemark.errors import RewindError, TidemarkError
from tidemark.savepoints.model.rewind_journal import read_rewind
from tidemark.savepoints.rewind import rewinding
from tidemark.savepoints.rewind.rewind_tables import revert_table
from tidemark.savepoints.rewind.rewinding import preview_rewind
from tidemark.state.delta.delta_tags import EPOCH, JOB, LINEAGE
from tidemark.state.log.joblog import DEFAULT_LEASE_MS as LEASE_MS
from tidemark.state.log.joblog import Driver


@pytest.fixture
def job(tmp_path: Path) -> StoredJob:
    """Return a stopped job of six epochs in two tables, and a savepoint of the third."""
    made = job_with_tables(tmp_path)
    for number in range(6):
        run_epoch(made)
        if number == 2:
            made.savepoints.take("good")
    made.driver.release()
    return made


def written_by_another_job(place: Path, number: int) -> None:
    tags = {JOB: "rides", LINEAGE: "another", EPOCH: str(number)}
    write(str(place), 1000 + number, CommitProperties(custom_metadata=tags, app_transactions=[Transaction("another/hourly", number)]))


def test_rows_of_another_job_in_the_same_table_refuse_it(job: StoredJob, tmp_path: Path) -> None:
    written_by_another_job(tmp_path / "hourly", 0)
    (refusal,) = preview_rewind(job.root, "taxi", "good", clock=job.clock).refusals
    assert refusal == (
        f"output 'hourly': the table at {tmp_path / 'hourly'} has newer versions by other writers, which would be undone: 6 (job 'rides')"
    )
    with pytest.raises(RewindError, match="job 'rides'"):
        go(job, "good")
    assert rows(tmp_path / "hourly") == [0, 1, 2, 3, 4, 5, 1000]


def test_a_savepoint_is_noted_behind_the_rows_of_another_job(job: StoredJob, tmp_path: Path) -> None:
    written_by_another_job(tmp_path / "hourly", 0)
    job.restart()
    taken = job.savepoints.take("both")
    assert taken.info.tables["hourly"].version == 6
    run_epoch(job)
    job.driver.release()
    go(job, "both")
    assert rows(tmp_path / "hourly") == [0, 1, 2, 3, 4, 5, 1000]


def test_another_job_that_writes_in_the_middle_is_found(job: StoredJob, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begin_only(job, "good", monkeypatch)
    monkeypatch.undo()
    written_by_another_job(tmp_path / "hourly", 0)
    with pytest.raises(RewindError, match="another writer wrote version 6"):
        go(job, "good")
    assert rows(tmp_path / "hourly") == [0, 1, 2, 3, 4, 5, 1000]


@pytest.mark.parametrize("unchanged", [False, True], ids=["put back", "closed only"])
def test_one_that_slept_does_not_put_a_table_back_over_what_came_since(
    job: StoredJob, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, unchanged: bool
) -> None:
    """Another has done the same rewind meanwhile, and the job has gone on."""
    if unchanged:
        job.restart()
        job.savepoints.take("now")
        job.driver.release()
    name = "now" if unchanged else "good"
    slept: list[bool] = []

    def sleeps_first(*args: Any) -> bool:
        if not slept:
            slept.append(True)
            job.clock.advance(10 * LEASE_MS)
            go(job, name)
            job.restart()
            for _ in range(3):
                run_epoch(job)
            job.driver.release()
        return revert_table(*args)

    monkeypatch.setattr(rewinding, "revert_table", sleeps_first)
    with pytest.raises(TidemarkError):
        go(job, name)
    assert rows(tmp_path / "hourly") == rows(tmp_path / "late") == ([*range(9)] if unchanged else [0, 1, 2, 3, 4, 5])
    assert read_rewind(job.folder) is None


def test_one_that_slept_leaves_the_note_of_another_rewind(job: StoredJob, monkeypatch: pytest.MonkeyPatch) -> None:
    job.restart()
    job.savepoints.take("other", epoch=3)
    job.driver.release()
    confirm = Driver.confirm
    slept: list[bool] = []

    def sleeps_first(driver: Driver) -> None:
        journal = read_rewind(job.folder)
        head = job.log.load().epoch
        if not slept and journal is not None and head is not None and head.lineage == journal.lineage:
            # All is back, and only the note is left to be taken away.
            slept.append(True)
            job.clock.advance(10 * LEASE_MS)
            go(job, "good")
            monkeypatch.setattr(Driver, "confirm", confirm)
            begin_only(job, "other", monkeypatch)
        confirm(driver)

    monkeypatch.setattr(Driver, "confirm", sleeps_first)
    with pytest.raises(TidemarkError):
        go(job, "good")
    left = read_rewind(job.folder)
    assert (slept, left.savepoint if left is not None else None) == ([True], "other")

"""Marks of restores do not gather for ever, and none goes that somebody may still ask for."""

from __future__ import annotations

import pytest

from tests.savepoints.stored_jobs import StoredJob, store_in_memory
from tidemark.clock import SYSTEM_CLOCK
from tidemark.errors import FencedError
from tidemark.savepoints.model.restore import Restore
from tidemark.savepoints.model.restore_history import is_restore_due, read_restore_entry, renew_restore_entry
from tidemark.savepoints.restore import restore_history_retention
from tidemark.savepoints.restore.restore_history_retention import RETENTION_MS, expire_restore_history
from tidemark.savepoints.restore.shared_files import shared_savepoints_of
from tidemark.state.gc.sweep import kept_epochs
from tidemark.state.store.layout import RESTORED

KEPT = 5


@pytest.fixture
def job(monkeypatch: pytest.MonkeyPatch) -> StoredJob:
    """A job with a savepoint, of whose marks few are kept; its clock is far ahead of the store's, so that they are all old."""
    monkeypatch.setattr(restore_history_retention, "MAX_ENTRIES", KEPT)
    made = StoredJob(store_in_memory())
    made.commit()
    made.savepoints.take("good")
    return made


def restores(job: StoredJob, count: int, *, first: int = 0) -> list[Restore]:
    made = [Restore("good", identity=f"restore-{number:03}") for number in range(first, first + count)]
    for restore in made:
        job.restore(restore)
        written = max(file.last_modified_ms for file in job.folder.list(RESTORED))
        while SYSTEM_CLOCK.now_ms() <= written:
            pass  # marks of one millisecond have no order
    return made


def marks(job: StoredJob) -> set[str]:
    return {file.path.removeprefix(f"{RESTORED}/").removesuffix(".json") for file in job.folder.list(RESTORED)}


def test_of_many_restores_the_newest_marks_stay(job: StoredJob) -> None:
    made = restores(job, 4 * KEPT)
    job.keep_house(retained=1)
    assert marks(job) == {restore.identity for restore in made[-KEPT:]}
    assert not any(is_restore_due(job.folder, job.driver.last, restore) for restore in made[-KEPT:])
    restores(job, 1, first=4 * KEPT)
    job.keep_house(retained=1)
    assert len(marks(job)) == KEPT


def test_a_mark_that_is_asked_for_stays_however_many_come_after_it(job: StoredJob) -> None:
    (asked,) = restores(job, 1)
    for round_ in range(3):
        restores(job, KEPT - 1, first=1 + round_ * KEPT)
        renew_restore_entry(job.folder, asked.identity)
        job.keep_house(retained=1)
    assert not is_restore_due(job.folder, job.driver.last, asked)
    renew_restore_entry(job.folder, "never-made")
    renew_restore_entry(job.folder, "")
    assert read_restore_entry(job.folder, "never-made") is None


def test_young_marks_stay_however_many_there_are(job: StoredJob) -> None:
    made = restores(job, 4 * KEPT)
    newest = max(file.last_modified_ms for file in job.folder.list(RESTORED))
    job.clock.set(newest + RETENTION_MS // 2)
    job.keep_house(retained=1)
    assert marks(job) == {restore.identity for restore in made}


def test_marks_of_kept_epochs_and_of_loans_stay(job: StoredJob) -> None:
    fork = StoredJob(job.root, "fork", job.clock)
    fork.restore(Restore("good", job="taxi", mode="claim", identity="fork-1"))
    fork.savepoints.take("begun")
    made = [Restore("begun", identity=f"restore-{number:03}") for number in range(2 * KEPT)]
    for restore in made:
        fork.restore(restore)
    assert {shared.identity for shared in shared_savepoints_of(fork.folder)} == {"fork-1", *(restore.identity for restore in made)}
    fork.keep_house(retained=100)
    assert marks(fork) == {"fork-1", *(restore.identity for restore in made)}


def test_a_fenced_driver_deletes_none(job: StoredJob) -> None:
    made = restores(job, 2 * KEPT)
    old = job.driver
    kept = kept_epochs(job.log)
    job.restart()
    with pytest.raises(FencedError):
        expire_restore_history(old, kept)
    assert len(marks(job)) == len(made)

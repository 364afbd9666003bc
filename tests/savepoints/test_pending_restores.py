"""A restore that is requested while retention disposes of savepoints: what was accepted can be restored, at whatever moment it came."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.control.worlds import Hook, WatchedStore
from tests.savepoints.stored_jobs import StoredJob
from tidemark.errors import SavepointInUseError, UnknownSavepointError
from tidemark.savepoints.core.disposals import announced_disposals
from tidemark.savepoints.core.retention import DAY_MS, SavepointRetention
from tidemark.savepoints.core.savepoint_store import SavepointStore
from tidemark.savepoints.model.restore import Restore
from tidemark.savepoints.restore.pending_restores import release_for, retain_for
from tidemark.state.gc.file_references import FileReferences
from tidemark.state.store.store import JobStore
from tidemark.testing.manual_clock import ManualClock

ONE = SavepointRetention(count=1, age_ms=30 * DAY_MS)
OLD = Restore("old", identity="again")


def make_job(folder: Path) -> StoredJob:
    made = StoredJob(JobStore.open(str(folder)))
    for name in ("old", "new"):
        made.commit()
        made.savepoints.take(name, kind="periodic")
        made.clock.advance(1000)
    return made


@pytest.fixture
def job(tmp_path: Path) -> StoredJob:
    return make_job(tmp_path)


def watched(root: JobStore, hook: Hook) -> JobStore:
    return WatchedStore(root.location, root.objects, root.prefix, hook)


class Waiting(ManualClock):
    """A clock of a process that waits for real: until retention is over."""

    def __init__(self) -> None:
        super().__init__(4_000_000_000_000)
        self.waits, self.over = threading.Event(), threading.Event()

    def sleep(self, seconds: float) -> None:  # noqa: ARG002 - however long
        self.waits.set()
        assert self.over.wait(30)


class Request(threading.Thread):
    """Requests the restore once, and knows whether it was accepted."""

    def __init__(self, root: JobStore) -> None:
        super().__init__(daemon=True)
        self._root, self.clock, self.accepted, self.came_too_late = root, Waiting(), False, False

    def run(self) -> None:
        with suppress(SavepointInUseError, UnknownSavepointError):
            retain_for(self._root, "taxi", OLD, clock=self.clock)
            self.accepted = True

    def go_on_as_far_as_it_can(self) -> None:
        self.came_too_late = not self._root.exists("taxi/refs/pins/old.json")
        self.start()
        while self.is_alive() and not self.clock.waits.wait(0.01):
            pass


def test_whenever_it_is_requested_a_restore_that_was_accepted_has_its_savepoint(tmp_path: Path) -> None:
    seen, step = set(), 0
    while True:
        step += 1
        made, calls = make_job(tmp_path / str(step)), itertools.count(1)
        request = Request(made.root)

        def hook(_: str, calls: Iterator[int] = calls, request: Request = request, step: int = step) -> None:
            if next(calls) == step:
                request.go_on_as_far_as_it_can()

        disposed = SavepointStore(watched(made.root, hook), "taxi", made.clock).retire(ONE)
        if request.came_too_late or request.ident is None:
            break  # the savepoint was gone, as a restore of it says; or there are fewer calls
        request.clock.over.set()
        request.join(30)
        left = {savepoint.name for savepoint in made.savepoints.list()}
        assert request.accepted == ("old" in left), f"requested before call {step}"
        assert ({"old", "new"} - left) == {savepoint.name for savepoint in disposed}
        references = {reference.savepoint for reference in FileReferences(made.folder).list()}
        assert references == ({"old"} if request.accepted else set()), "nothing is left of the disposal, nor of what was refused"
        seen.add((request.accepted, request.clock.waits.is_set()))
    assert seen == {(True, False), (True, True), (False, True)}, "each outcome was reached"


def test_of_a_disposal_that_does_not_end_the_request_says_so(job: StoredJob) -> None:
    with announced_disposals(job.folder, "taxi", ["old"], clock=job.clock):
        with pytest.raises(SavepointInUseError, match=r"'old' is about to be disposed of by retention.*retry in a minute"):
            retain_for(job.root, "taxi", OLD, clock=job.clock)
        retain_for(job.root, "taxi", Restore("new", identity="again"), clock=job.clock)
        assert {each.savepoint for each in FileReferences(job.folder).list()} == {"old", "new"}
        assert job.savepoints.file_references("old") == (), "an announcement is no job's reference"


def test_what_a_process_that_died_announced_keeps_nothing_and_blocks_nobody(job: StoredJob) -> None:
    class DiedError(Exception):
        pass

    def dies(call: str) -> None:
        if call.startswith("delete"):
            raise DiedError

    with pytest.raises(DiedError):
        SavepointStore(watched(job.root, dies), "taxi", job.clock).retire(ONE)
    assert [each.name.split("-")[0] for each in FileReferences(job.folder).list()] == ["disposal"]
    job.clock.advance(60_000)
    retain_for(job.root, "taxi", OLD, clock=job.clock)
    release_for(job.root, "taxi", OLD)
    assert [each.name for each in job.savepoints.retire(ONE)] == ["old"]
    assert FileReferences(job.folder).list() == ()

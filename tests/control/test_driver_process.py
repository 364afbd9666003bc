"""A driver's process: it outlives nobody's interest, ends as it is asked to, cannot commit once it was taken over, and leaves nothing."""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.control import landing_job
from tests.control.attached_driver import attach_drivers
from tests.control.drivers import Landing, until
from tests.seeds import only_long
from tidemark.clock import SYSTEM_CLOCK
from tidemark.control.driver.driver import FENCED, FINISHED
from tidemark.control.launch.local_launcher import LocalLauncher
from tidemark.control.launch.processes import session_members
from tidemark.control.model.records import ProcessHandle
from tidemark.control.model.spec import SpecGeneration
from tidemark.errors import JobRunningError
from tidemark.state.log.heartbeat import read_heartbeat
from tidemark.state.log.joblog import JobLog
from tidemark.state.log.process_identity import current_owner

pytestmark = [pytest.mark.spark, pytest.mark.slow]

LEASE_MS = 1_500


def test_a_driver_that_stood_still_and_was_taken_over(tmp_path: Path, jvm: Mapping[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """One that is stopped is in ``tests/dagster/test_stream_driver.py``, one that drains in ``test_cluster.py``."""
    attach_drivers(monkeypatch, LocalLauncher, jvm)
    landing = Landing(tmp_path, LocalLauncher(tmp_path / "logs"))
    # Of a module that the Python workers of the tests find.
    frozen_and_taken_over(landing, landing.want(code=f"{landing_job.__name__}:job"))


@only_long
def test_a_drivers_life(tmp_path: Path) -> None:
    landing = Landing(tmp_path, LocalLauncher(tmp_path / "logs"))
    spec = landing.want()
    stopped_by_a_signal(landing, spec)
    frozen_and_taken_over(landing, spec)
    drained(landing, spec)


def stopped_by_a_signal(landing: Landing, spec: SpecGeneration) -> None:
    """Check that a driver that is asked to stop finishes the epoch at hand and says so."""
    landing.land(3)
    handle = landing.start(spec)
    landing.wait_for_rows(handle)
    assert handle.pid is not None
    assert len(session_members(handle.pid)) > 1, "the JVM is in the driver's session"
    landing.launcher.ask_to_stop(handle)
    require_ended(landing, handle, FINISHED)
    status = landing.status
    assert status is not None
    assert (status.state, status.owner is not None and status.owner.run_id) == ("stopped", "attempt-1")
    assert status.last is not None
    assert status.last.epoch == 1, "two files per epoch at most"


def frozen_and_taken_over(landing: Landing, spec: SpecGeneration) -> None:
    """Check that a driver that stood still past its lease, and was taken over, cannot commit when it goes on, and says why."""
    handle = landing.start(spec)
    assert handle.pid is not None
    landing.land(1)
    landing.wait_for_rows(handle)
    status = landing.status
    assert status is not None
    assert status.load is not None
    assert (status.load.trigger_ms, status.load.rows_in) == (300, 10)
    os.kill(handle.pid, signal.SIGSTOP)
    log = JobLog(landing.store.at("landing"), "landing")
    head = log.load().epoch
    with pytest.raises(JobRunningError):
        log.acquire(current_owner("elsewhere"), lease_ms=60_000)
    SYSTEM_CLOCK.sleep(LEASE_MS / 1000)
    other = log.acquire(current_owner("elsewhere"), lease_ms=LEASE_MS)
    landing.land(2)
    os.kill(handle.pid, signal.SIGCONT)
    require_ended(landing, handle, FENCED)
    said = "\n".join(landing.launcher.logs(handle, 60))
    assert "[TM411]" in said
    assert "taken over by term" in said or "took the job over" in said
    after = log.load()
    assert (after.term, after.epoch) == (other.term, head), "nothing was committed"
    other.release()


def drained(landing: Landing, spec: SpecGeneration) -> None:
    """Check that a driver that is to drain reads all there is, closes every window, and ends for good."""
    handle = landing.start(spec)
    folder = landing.store.at("landing")
    until(lambda: (beat := read_heartbeat(folder)) is not None and beat.owner.run_id == "attempt-3", "a heartbeat")
    landing.want(wanted="suspended", stop="drain")
    require_ended(landing, handle, FINISHED)
    status = landing.status
    assert status is not None
    assert status.state == "finished"
    assert status.last is not None
    assert status.last.end_of_input
    assert landing.table() == landing.expected(6)


def require_ended(landing: Landing, handle: ProcessHandle, code: int) -> None:
    """Wait for a driver's end; check how it ended, and that no process is left."""
    landing.wait_for_end(handle)
    assert landing.launcher.exit_code(handle) == code, "\n".join(landing.launcher.logs(handle, 60))
    assert handle.pid is not None
    assert session_members(handle.pid) == ()
    # Threads of a process that has ended may need a moment to go; then whoever looks next takes note of its end.
    place = Path(f"/proc/{handle.pid}")
    until(lambda: landing.launcher.probe(handle) == "gone" and not place.exists(), "the note of its end")

"""A driver without Spark, as a program: claims its attempt, begins a term, beats, commits epochs, does what the spec wants.

``python -m tests.control.sparkless_driver STORE JOB ATTEMPT``. ``$BEATING`` says how it misbehaves: ``fails`` ends it with an error
before it begins, ``fails-later`` in its first epoch, ``fails-in-the-end`` some epochs later.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from dataclasses import dataclass, replace
from pathlib import Path

from tidemark.clock import SYSTEM_CLOCK
from tidemark.control.desired.attempts import claim_attempt
from tidemark.control.desired.spec_store import require_spec
from tidemark.control.launch.processes import spawn
from tidemark.control.model.launcher import ProcessState
from tidemark.control.model.records import Attempt, ProcessHandle
from tidemark.control.model.spec import SpecGeneration
from tidemark.errors import FencedError, SourceError
from tidemark.state.log.joblog import Driver, JobLog
from tidemark.state.log.process_identity import current_owner, is_known_dead, process_start_token
from tidemark.state.log.progress import EpochProgress
from tidemark.state.log.records import EpochRecord, OwnerInfo
from tidemark.state.status.driver_load import EpochSample, load_of
from tidemark.state.status.history import HistoryWriter
from tidemark.state.status.status import JobStatus, State, read_status, write_status
from tidemark.state.store.store import JobStore

CHECKOUT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class SparklessLauncher:
    """Starts such programs, as processes of their own."""

    logs_folder: Path

    def launch(self, spec: SpecGeneration, attempt: Attempt, store_uri: str) -> ProcessHandle:
        log = self.logs_folder / f"attempt-{attempt.number}.log"
        command = [sys.executable, "-m", "tests.control.sparkless_driver", store_uri, spec.spec.job, str(attempt.number)]
        pid = spawn(command, {**os.environ, **spec.spec.variables}, out=log, folder=CHECKOUT)
        return ProcessHandle("local", current_owner().host, pid, started=process_start_token(pid) or "gone", log=str(log))

    def probe(self, handle: ProcessHandle) -> ProcessState:
        assert handle.pid is not None
        return "gone" if is_known_dead(OwnerInfo(handle.host, handle.pid, handle.started)) else "alive"

    def exit_code(self, _handle: ProcessHandle) -> int | None:
        return None

    def ask_to_stop(self, handle: ProcessHandle) -> None:
        self.send(handle, signal.SIGTERM)

    def kill(self, handle: ProcessHandle) -> None:
        self.send(handle, signal.SIGKILL)

    def logs(self, handle: ProcessHandle, lines: int) -> tuple[str, ...]:
        return tuple(Path(handle.log or "").read_text(encoding="utf-8").splitlines()[-lines:])

    def send(self, handle: ProcessHandle, number: signal.Signals) -> None:
        assert handle.pid is not None
        if self.probe(handle) == "alive":
            with contextlib.suppress(ProcessLookupError):
                os.kill(handle.pid, number)


def main(store: str, job: str, number: int) -> int:
    asked: list[int] = []
    signal.signal(signal.SIGTERM, lambda *_: asked.append(1))
    root = JobStore.open(store)
    owner = current_owner(f"attempt-{number}")
    process = ProcessHandle("local", owner.host, owner.pid, started=owner.started)
    try:
        attempt = claim_attempt(root, job, number, process=process, at=SYSTEM_CLOCK.now_ms())
        if os.environ.get("BEATING") == "fails":
            # As one whose code cannot be loaded: it never begins, so that nobody sees it run.
            say(root, job, owner, "failed", error=SourceError("the folder is gone", fix="bring it back"))
            return 64
        term = JobLog(root.at(job), job).acquire(owner, takeover=attempt.takeover)
        print(f"attempt {number} drives {job}", flush=True)
        if os.environ.get("BEATING") == "fails-later":
            return fail_later(root, job, owner, term)
        return run(root, job, owner, term, asked)
    except FencedError as error:
        print(error, flush=True)
        return 70


def fail_later(root: JobStore, job: str, owner: OwnerInfo, term: Driver) -> int:
    """Look well for a while, as one whose first expression is not run yet."""
    say(root, job, owner, "running")
    for _ in range(10):
        term.beat()
        SYSTEM_CLOCK.sleep(0.1)
    say(root, job, owner, "failed", error=SourceError("the folder is gone", fix="bring it back"))
    term.release()
    return 64


def run(root: JobStore, job: str, owner: OwnerInfo, term: Driver, asked: list[int]) -> int:
    history, begun = HistoryWriter(root, job), term.last
    # It goes on with the lineage of a restore or a rewind, as a real one does.
    lineage, parent = (begun.lineage, begun.parent) if begun is not None else (term.log.origin(), None)
    while True:
        spec = require_spec(root, job).spec
        draining = spec.wanted == "suspended" and spec.stop == "drain"
        epoch, now = term.last.epoch + 1 if term.last is not None else 0, SYSTEM_CLOCK.now_ms()
        progress = EpochProgress(job, lineage, epoch, now, 5, 10, 1, end_of_input=draining)
        term.beat()
        term.append(EpochRecord(job, lineage, parent, term.term, epoch, now, str(epoch), progress, end_of_input=draining))
        history.append(progress)
        if os.environ.get("BEATING") == "fails-in-the-end" and epoch == 15:
            say(root, job, owner, "failed", error=SourceError("the folder is gone", fix="bring it back"))
            return 64
        if asked or spec.wanted == "suspended":
            say(root, job, owner, "finished" if draining else "stopped", last=progress if draining else None)
            term.release()
            return 0
        say(root, job, owner, "running", last=progress)
        SYSTEM_CLOCK.sleep(0.1)


def say(
    root: JobStore, job: str, owner: OwnerInfo, state: State, *, error: SourceError | None = None, last: EpochProgress | None = None
) -> None:
    now = SYSTEM_CLOCK.now_ms()
    base = read_status(root, job) or JobStatus(job, "a1", state, now, now)
    load = load_of([EpochSample(0, 5, 10, 1)], 100) if last is not None else None
    write_status(root, replace(base, state=state, heartbeat_at=now, owner=owner, last=last or base.last, load=load).with_error(error))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))

"""How long a reconciler takes with many jobs that need nothing: ``python -m benchmarks.operation.control [--jobs 1000] [--passes 5]``.

Each job has a spec, an attempt with its claim, a control status, a driver's status with three sources, four windows and their totals, and a
heartbeat, as a job that has run for a while. Processes are taken for alive; nothing else is left out. The first pass reads what
never changes, the later ones are the steady state.
"""

from __future__ import annotations

import argparse
import socket
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from statistics import median

from tidemark.clock import SYSTEM_CLOCK
from tidemark.control.desired.attempts import claim_attempt, create_attempt
from tidemark.control.desired.spec_store import change_spec
from tidemark.control.model.launcher import ProcessState
from tidemark.control.model.records import Attempt, ControlStatus, ProcessHandle
from tidemark.control.model.spec import JobSpec, SpecGeneration
from tidemark.control.observed.observe import write_control_status
from tidemark.control.upgrade.upgrade_worker import upgrading_reconciler
from tidemark.control.view.view_builder import view_of
from tidemark.errors import LaunchError
from tidemark.state.log.heartbeat import Heartbeat, write_heartbeat
from tidemark.state.log.process_identity import current_owner
from tidemark.state.log.progress import EpochProgress, OperatorProgress, OutputProgress, SourceProgress, SplitProgress
from tidemark.state.log.totals import add_epoch, empty_totals
from tidemark.state.status.status import JobStatus, OutputStatus, write_status
from tidemark.state.store.store import JobStore
from tidemark.testing.manual_clock import ManualClock


@dataclass(frozen=True)
class Measured:
    """Seconds of the first pass and of the later ones, and how many jobs were seen well."""

    first: float
    later: tuple[float, ...]
    well: int


class NoLauncher:
    """Says that every process lives, and can do nothing: in the steady state nothing is done."""

    def launch(self, spec: SpecGeneration, attempt: Attempt, store_uri: str) -> ProcessHandle:
        """Refuse."""
        raise LaunchError(
            f"{spec.spec.job} attempt {attempt.number} at {store_uri} was to be started", fix="the steady state starts nothing"
        )

    def probe(self, handle: ProcessHandle) -> ProcessState:
        """Say that the process lives."""
        return "alive" if handle.pid is not None else "unknown"

    def exit_code(self, handle: ProcessHandle) -> int | None:
        """Return none: all live."""
        return handle.pid if self.probe(handle) == "gone" else None

    def ask_to_stop(self, handle: ProcessHandle) -> None:
        """Refuse."""
        raise LaunchError(f"{handle} was to be stopped", fix="the steady state stops nothing")

    def kill(self, handle: ProcessHandle) -> None:
        """Refuse."""
        raise LaunchError(f"{handle} was to be killed", fix="the steady state kills nothing")

    def logs(self, handle: ProcessHandle, lines: int) -> tuple[str, ...]:
        """Return nothing."""
        return (str(handle),)[:0] * lines


def fill(store: JobStore, jobs: int) -> ManualClock:
    """Write the files of so many jobs that run well; returns a clock that stands where they all have just given a sign of life."""
    clock = ManualClock(SYSTEM_CLOCK.now_ms())
    now = clock.now_ms()
    owner = replace(current_owner(Attempt(1, 1, 0, "", "").run_id), started="")
    handle = ProcessHandle("local", socket.gethostname(), owner.pid)
    for number in range(jobs):
        name = f"job-{number:04}"
        spec = JobSpec(name, f"jobs.{name}:job", conf={"spark.sql.shuffle.partitions": "8"}, folder="/srv/jobs")
        change_spec(store, name, partial(_given, spec), by="bench", why="bench", clock=clock)
        create_attempt(store, name, Attempt(1, 1, now, "bench", "bench"))
        claim_attempt(store, name, 1, process=handle, at=now)
        write_control_status(store, ControlStatus(name, "running", now, 1, attempt=1, process=handle))
        write_status(store, _status(name, now, owner_run=owner.run_id))
        write_heartbeat(store.at(name), Heartbeat(1, owner, now, 5))
    return clock


def measure(store: JobStore, passes: int, clock: ManualClock) -> Measured:
    """Pass over all jobs so many times; nothing may be done."""
    reconciler = upgrading_reconciler(store, {"local": NoLauncher()}, clock)
    seconds, well = [], 0
    for _ in range(passes + 1):
        begun = SYSTEM_CLOCK.monotonic()
        report = reconciler.reconcile_all()
        views = [view_of(seen, clock.now_ms()) for seen in report.observations]
        seconds.append(SYSTEM_CLOCK.monotonic() - begun)
        if report.acted or report.errors:
            raise SystemExit(f"the steady state is not steady: {report.acted[:1]} {dict(list(report.errors.items())[:1])}")
        well = sum(view.health == "ok" for view in views)
    return Measured(seconds[0], tuple(seconds[1:]), well)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; returns 0."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.operation.control", description=__doc__)
    parser.add_argument("--jobs", type=int, default=1_000)
    parser.add_argument("--passes", type=int, default=5)
    parser.add_argument("--store", default=None, help="a job store to fill, such as s3://bucket/bench; a temporary folder by default")
    given = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        store = JobStore.open(given.store or folder)
        clock = fill(store, given.jobs)
        found = measure(store, given.passes, clock)
    print(
        f"{found.well} jobs, all well: first pass {found.first:.2f} s, then {median(found.later):.2f} s "
        f"({1000 * median(found.later) / given.jobs:.2f} ms a job)"
    )
    return 0


def _given(spec: JobSpec, _newest: SpecGeneration | None) -> JobSpec:
    return spec


def _status(name: str, now: int, *, owner_run: str) -> JobStatus:
    splits = {f"p{number}": SplitProgress(1_000, now, now, idle=False) for number in range(8)}
    progress = EpochProgress(
        name,
        "a1",
        100,
        now,
        2_000,
        24_000,
        400,
        sources={f"source_{number}": SourceProgress(8_000, 7_990, 10, now, 5_000, "p0", splits) for number in range(3)},
        operators={f"window-{number}": OperatorProgress(8_000, 7_900, 100, now, 10, 2, 5_000, 400_000, 9) for number in range(4)},
        outputs={f"output_{number}": OutputProgress(100, 1, 4_096, "delta", f"/lake/{name}/{number}") for number in range(4)},
        stages={"plan": 10, "operators": 1_800, "publish": 90},
    )
    outputs = {output: OutputStatus("delta", item.location, "{}") for output, item in progress.outputs.items()}
    owner = replace(current_owner(owner_run), started="")
    totals = add_epoch(empty_totals(), progress)
    return JobStatus(name, "a1", "running", now, now, "c0ffee", progress, totals, outputs, owner=owner)


if __name__ == "__main__":
    sys.exit(main())

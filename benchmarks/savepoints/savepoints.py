"""Savepoints of a job with much state: how long one takes, when another parallelism is in effect, and how long a restore is in coming.

``python -m benchmarks --workload savepoints``, with ``BENCH_KEYS`` keys of state, 10,000,000 by default. Tidemark only: stock Spark has
none of it.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from benchmarks.data.fares import ensure_fares
from benchmarks.data.growth import GrowthPlan, Stage
from benchmarks.harness.engines import DRIVER_MEMORY, cores
from benchmarks.harness.processes import MeasurementError, run_module
from benchmarks.harness.records import Record, SavepointFigures, spread_of
from tidemark.clock import SYSTEM_CLOCK

NAME: Final = "savepoints"
JOB: Final = "savepoints"
SAVEPOINT: Final = "restored-from"
STORE: Final = "store"
KEYS: Final = 10_000_000
LEAST_KEYS: Final = 1_000
ROUNDS: Final = 3
LOADS: Final = 10
TOUCHES: Final = 90
TOUCHED: Final = 1_000
FROM, TO = 2, 7
"""Numbers of partitions before and after the rescale."""


@dataclass(frozen=True)
class SavepointWorkload:
    """A job with so many keys of state; commands and restores are measured ``rounds`` times."""

    keys: int = KEYS
    rounds: int = ROUNDS

    @property
    def name(self) -> str:
        """As it stands in the records."""
        return NAME

    @property
    def title(self) -> str:
        """One line for readers."""
        return f"A job with {self.keys:,} keys of state, each with an open window, while {TOUCHED:,} of them come in each epoch"

    @property
    def fares(self) -> GrowthPlan:
        """The input: all drivers once, then a few of them per epoch."""
        stages = (Stage("load", LOADS, (0, self.keys)), Stage("touch", TOUCHES, (0, self.keys), min(TOUCHED, self.keys)))
        return GrowthPlan(stages, close_after_ms=0)


@dataclass(frozen=True)
class Request:
    """What a process does.

    Args:
        step: ``live``: make the state and go on, take savepoints, rescale; ``restore``: start Spark and restore another job.
        files: folder of the input.
        folder: of the job store and the tables.
        name: of the job that is restored.
        memory: of the JVM, as Spark takes it.
    """

    step: str
    files: str
    folder: str
    name: str
    memory: str


def measure_savepoints(workload: SavepointWorkload, scratch: Path, *, memory: str = DRIVER_MEMORY) -> Record:
    """Measure, each step in processes of its own.

    Raises:
        MeasurementError: a process failed, or something did not come to be.
    """
    scratch.mkdir(parents=True, exist_ok=True)
    files = ensure_fares(workload.fares, scratch)
    folder = Path(tempfile.mkdtemp(prefix="savepoints-", dir=scratch))
    peaks: list[int] = []

    def step(kind: str, name: str) -> Mapping[str, Any]:
        home = folder / f"{kind}-{name}"
        home.mkdir()
        request = Request(kind, str(files), str(folder), name, memory)
        found, peak = run_module("benchmarks.savepoints.steps", asdict(request), home, engine="tidemark")
        peaks.append(peak)
        return found

    try:
        live = step("live", JOB)
        commands = [_command(folder) for _ in range(workload.rounds)]
        restores = [step("restore", f"restored-{number}") for number in range(workload.rounds)]
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    figures = SavepointFigures(
        keys=workload.keys,
        state_bytes=live["state_bytes"],
        state_files=live["state_files"],
        take_ms=spread_of(live["take_ms"]),
        command_ms=spread_of(commands),
        rescale_ms=live["rescale_ms"],
        rescale_epochs=live["rescale_epochs"],
        spark_ms=spread_of([found["spark_ms"] for found in restores]),
        restore_ms=spread_of([found["restore_ms"] for found in restores]),
    )
    return Record(
        workload=workload.name,
        engine="tidemark",
        title=workload.title,
        rows=workload.fares.total_rows,
        runs=workload.rounds,
        events_per_second=None,
        epoch_ms=None,
        peak_memory_bytes=max(peaks),
        late_kept=0,
        late_lost=0,
        cells_checked=0,
        cores=cores(),
        driver_memory=memory,
        versions=live["versions"],
        savepoints=figures,
    )


def _command(folder: Path) -> float:
    """Return how many milliseconds the command takes, Python's start included."""
    program = str(Path(sys.executable).with_name("tidemark"))
    command = [program, "savepoint", "trigger", JOB, "--store", str(folder / STORE)]
    begun = SYSTEM_CLOCK.monotonic()
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    took = 1000 * (SYSTEM_CLOCK.monotonic() - begun)
    if done.returncode:
        raise MeasurementError(f"no savepoint was taken: {done.stdout}{done.stderr}", fix="see what it says", uid=JOB)
    return took

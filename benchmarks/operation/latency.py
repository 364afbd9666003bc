"""Jobs that run on under a steady load: how long an epoch takes, and how long it is from an event to its result in the Delta table.

``python -m benchmarks --workload latency`` measures at triggers of 1, 10 and 60 seconds, each engine in a process of its own, beside
another one that lets the fares arrive.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

import numpy as np

from benchmarks.checks.visible import percentiles, visible
from benchmarks.data.live_fares import DRIVERS, arriving, cells_of
from benchmarks.harness.engines import DRIVER_MEMORY, Engine, cores, parse_engine, start_session
from benchmarks.harness.measurement import versions_of
from benchmarks.harness.processes import run_module
from benchmarks.harness.records import Latency, Percentiles, Record
from benchmarks.operation.live_engines import TABLE, WINDOW, Live, run_live
from tidemark.clock import SYSTEM_CLOCK
from tidemark.durations import format_duration
from tidemark.errors import EngineError

ROWS_PER_SECOND: Final = 50_000
TRIGGERS_MS: Final = (1_000, 10_000, 60_000)
SECONDS: Final = 300
WARM_SECONDS: Final = 60
_TAIL_TRIGGERS: Final = 3
"""So many triggers after the measured windows end, every engine has their results out; stock Spark needs one more than Tidemark."""


@dataclass(frozen=True)
class LatencyWorkload:
    """A load on a job at a trigger; ``seconds`` of it are measured, behind a warm-up."""

    trigger_ms: int
    rows_per_second: int = ROWS_PER_SECOND
    seconds: float = SECONDS

    @property
    def name(self) -> str:
        """As it stands in the records."""
        return f"latency-{self.trigger_ms // 1000}s"

    @property
    def title(self) -> str:
        """One line for readers."""
        return (
            f"{self.rows_per_second:,} fares a second of {DRIVERS:,} drivers for {format_duration(round(self.seconds * 1000))}, tumbling "
            f"windows of {WINDOW}, an epoch every {format_duration(self.trigger_ms)} at most"
        )

    @property
    def warm_seconds(self) -> float:
        """Time before the measured one, in which a JVM compiles what a job runs on for months."""
        return max(min(WARM_SECONDS, self.seconds), 2 * self.trigger_ms / 1000)

    @property
    def all_seconds(self) -> float:
        """Time for which fares arrive."""
        return self.warm_seconds + self.seconds + _TAIL_TRIGGERS * self.trigger_ms / 1000 + 2


def latency_workloads(seconds: float = SECONDS) -> tuple[LatencyWorkload, ...]:
    """Return the workloads, one for each trigger."""
    return tuple(LatencyWorkload(trigger_ms, seconds=seconds) for trigger_ms in TRIGGERS_MS)


def measure_latency(workload: LatencyWorkload, engine: Engine, scratch: Path, *, memory: str = DRIVER_MEMORY) -> Record:
    """Measure an engine in a process of its own.

    Raises:
        MeasurementError: the process failed.
        DisagreementError: its results are not what the input says.
    """
    scratch.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="live-", dir=scratch))
    try:
        request = {"engine": engine, "folder": str(folder), "memory": memory, **asdict(workload)}
        found, peak = run_module("benchmarks.operation.latency", request, folder, engine=engine)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    spreads = {name: Percentiles(**found[name]) for name in ("epoch_ms", "event_ms", "window_ms")}
    return Record(
        workload=workload.name,
        engine=engine,
        title=workload.title,
        rows=round(workload.rows_per_second * workload.seconds),
        runs=1,
        events_per_second=None,
        epoch_ms=None,
        peak_memory_bytes=peak,
        late_kept=0,
        late_lost=0,
        cells_checked=found["compared"],
        cores=cores(),
        driver_memory=memory,
        versions=found["versions"],
        latency=Latency(workload.trigger_ms, workload.rows_per_second, found["epochs"], **spreads),
    )


def measure(engine: Engine, workload: LatencyWorkload, folder: Path, *, memory: str) -> Mapping[str, object]:
    """Run the job while fares arrive; returns what was measured, as JSON.

    Raises:
        DisagreementError: the results are not what the input says.
    """
    spark = start_session(engine, folder, memory=memory)
    files = folder / "fares"
    try:
        with arriving(files, rows_per_second=workload.rows_per_second, seconds=workload.all_seconds, log=folder / "fares.log"):
            begun = SYSTEM_CLOCK.now_ms()
            with _set_after(workload.all_seconds) as ended:
                batches = run_live(engine, spark, Live(files, folder, workload.trigger_ms, ended))
        after = begun + round(workload.warm_seconds * 1000)
        until = after + round(workload.seconds * 1000)
        found = visible(engine, folder / TABLE, cells_of(files), after_ms=after, until_ms=until)
        epochs = [batch.took_ms for batch in batches if after <= batch.began_ms < until]
        if not epochs:
            began = ", ".join(f"{(batch.began_ms - begun) / 1000:.1f} s" for batch in batches[-5:])
            raise EngineError(
                f"of {len(batches)} epochs of {engine} none began in the measured time; the last did after {began or 'nothing'}",
                fix="measure for longer (BENCH_SECONDS), or on a machine with less else to do",
            )
        return {
            "epochs": len(epochs),
            "epoch_ms": asdict(percentiles(np.array(epochs, dtype=np.float64))),
            **{name: asdict(getattr(found, name)) for name in ("event_ms", "window_ms")},
            "compared": found.compared,
            "versions": versions_of(spark),
        }
    finally:
        spark.stop()


@contextmanager
def _set_after(seconds: float) -> Iterator[threading.Event]:
    """Give an event that is set after so many seconds."""
    event = threading.Event()
    timer = threading.Timer(seconds, event.set)
    timer.start()
    try:
        yield event
    finally:
        timer.cancel()


def main(arguments: Sequence[str]) -> int:
    """Read the request, measure, write the answer."""
    asked = json.loads(Path(arguments[0]).read_text(encoding="utf-8"))
    engine, folder, memory = parse_engine(asked.pop("engine")), Path(asked.pop("folder")), asked.pop("memory")
    answer = measure(engine, LatencyWorkload(**asked), folder, memory=memory)
    Path(arguments[1]).write_text(json.dumps(answer), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

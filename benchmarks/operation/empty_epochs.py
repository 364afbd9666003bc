"""Epochs without input of a warm job: where nothing is due but that a split is idle, and where a window of some keys is due.

``python -m benchmarks --workload empty-epochs``. A file of each of a hundred splits is read in an epoch of its own, which also warms up the
JVM. Then the clock is moved so that one split after the other becomes idle: each time an epoch without input.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

import tidemark as tm
from benchmarks.checks.verdicts import DisagreementError
from benchmarks.harness.engines import DRIVER_MEMORY, cores, start_session
from benchmarks.harness.measurement import versions_of
from benchmarks.harness.processes import run_module
from benchmarks.harness.records import Record, spread_of
from tidemark.clock import SYSTEM_CLOCK
from tidemark.testing import ManualClock

if TYPE_CHECKING:
    from tidemark.state.log.progress import EpochProgress

NAME: Final = "empty-epochs"
SPLITS: Final = 100
ROUNDS: Final = 3
_KEYS: Final = 100
_BEGIN: Final = 1_704_067_200_000
_SECOND: Final = 1_000
_MINUTE: Final = 60_000
_HOUR: Final = 60 * _MINUTE
_SCHEMA: Final = "split STRING, driver BIGINT, ts TIMESTAMP, fare DOUBLE"
_RESULTS: Final = "results"


@dataclass(frozen=True)
class EmptyEpochs:
    """Epochs in each of which a window of some keys is due, or none."""

    due: bool
    splits: int = SPLITS

    @property
    def name(self) -> str:
        """As it stands in the records."""
        return f"{NAME}-due" if self.due else NAME

    @property
    def title(self) -> str:
        """One line for readers."""
        what = f"a window of {_KEYS} drivers is due" if self.due else "nothing is due"
        return f"{self.splits} epochs without input of a job that sums fares by driver and window; in each a split becomes idle, and {what}"


class _Clock(ManualClock):
    """A manual clock by which lengths are real."""

    def monotonic(self) -> float:
        """Return the machine's seconds."""
        return SYSTEM_CLOCK.monotonic()


def measure_empty_epochs(workload: EmptyEpochs, scratch: Path, *, rounds: int = ROUNDS, memory: str = DRIVER_MEMORY) -> Record:
    """Measure in processes of their own.

    Raises:
        MeasurementError: a process failed.
    """
    scratch.mkdir(parents=True, exist_ok=True)
    medians, peaks = [], []
    found: dict[str, Any] = {}
    for _ in range(rounds):
        folder = Path(tempfile.mkdtemp(prefix="empty-", dir=scratch))
        try:
            request = {"folder": str(folder), "memory": memory, **asdict(workload)}
            found, peak = run_module("benchmarks.operation.empty_epochs", request, folder, engine="tidemark")
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        medians.append(median(found["epoch_ms"]))
        peaks.append(peak)
    return Record(
        workload=workload.name,
        engine="tidemark",
        title=workload.title,
        rows=workload.splits * _KEYS,
        runs=rounds,
        events_per_second=None,
        epoch_ms=spread_of(medians, digits=1),
        peak_memory_bytes=max(peaks),
        late_kept=0,
        late_lost=0,
        cells_checked=found["results"],
        cores=cores(),
        driver_memory=memory,
        versions=found["versions"],
    )


def measure(workload: EmptyEpochs, folder: Path, *, memory: str) -> Mapping[str, object]:
    """Run the job in this process; returns the lengths of its epochs without input, milliseconds, and the number of results.

    Raises:
        DisagreementError: there are not as many results as windows that were due.
    """
    (folder / "in").mkdir()
    _land(workload, 0, folder)
    clock, stop = _Clock(_BEGIN + _HOUR), threading.Event()
    lengths: list[int] = []

    def after(progress: EpochProgress) -> None:
        clock.advance(_SECOND)
        if progress.rows_in:
            if progress.epoch + 1 < workload.splits:
                # A split is silent from when all was read that was there.
                _land(workload, progress.epoch + 1, folder)
            else:
                clock.advance(_HOUR - workload.splits * _SECOND)
            return
        lengths.append(progress.duration_ms)
        if len(lengths) == workload.splits:
            stop.set()

    spark = start_session("tidemark", folder, memory=memory)
    try:
        tm.run(_job(folder), spark=spark, trigger="0 milliseconds", clock=clock, stop=stop, on_epoch=after, handle_signals=False)
        versions = versions_of(spark)
    finally:
        spark.stop()
    # The last split's window stays open: once all are idle, the watermark stays.
    expected = (workload.splits - 1) * _KEYS if workload.due else 0
    results = sum(pq.read_metadata(path).num_rows for path in (folder / _RESULTS).rglob("*.parquet"))
    if results != expected:
        raise DisagreementError(f"{results} results where {expected} are due", fix="see the log", uid=NAME)
    return {"epoch_ms": lengths, "results": results, "versions": versions}


def _job(folder: Path) -> tm.Job:
    strategy = tm.ascending(timestamp="ts", split_by="split", idle_after="1 hour")
    files = tm.files(str(folder / "in"), format="parquet", schema=_SCHEMA)
    windowed = tm.source("fares", files, watermarks=strategy).key_by("driver").window(tm.tumbling("1 minute"))
    sums = windowed.aggregate(total=tm.sum("fare"), n=tm.count()).uid("fares-by-driver")
    return tm.Job(NAME, {"results": tm.parquet(sums, str(folder / _RESULTS))}, store=str(folder / "store"), parallelism=cores())


def _land(workload: EmptyEpochs, split: int, folder: Path) -> None:
    """Let a file of a split arrive, with the fares of a minute: of the split's own where windows are to be due, else of one for all."""
    begin = _BEGIN + (split * _MINUTE if workload.due else 0)
    rows = {
        "split": [f"split {split:03}"] * _KEYS,
        "driver": list(range(_KEYS)),
        "ts": pa.array([1000 * (begin + row) for row in range(_KEYS)], pa.timestamp("us", tz="UTC")),
        "fare": [float(row) for row in range(_KEYS)],
    }
    unseen = folder / "unseen.parquet"
    pq.write_table(pa.table(rows), unseen)
    unseen.rename(folder / "in" / f"{split:03}.parquet")


def main(arguments: Sequence[str]) -> int:
    """Read the request, measure, write the answer."""
    asked = json.loads(Path(arguments[0]).read_text(encoding="utf-8"))
    folder, memory = Path(asked.pop("folder")), asked.pop("memory")
    answer = measure(EmptyEpochs(**asked), folder, memory=memory)
    Path(arguments[1]).write_text(json.dumps(answer), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

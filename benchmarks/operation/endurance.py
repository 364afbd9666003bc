"""Thousands of small epochs in one run: what an epoch takes, memory and files, from the first to the last.

``python -m benchmarks.operation.endurance [--epochs 10000]`` writes ``docs/reference/endurance.md``. Files arrive in time for each
epoch and are removed once they were read, as a folder with a lifecycle would, so that the listing does not grow with the run.
"""

from __future__ import annotations

import argparse
import platform
import shutil
import sys
import tempfile
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Final

import numpy as np
import psutil  # type: ignore[import-untyped]  # ships no types
import pyarrow as pa
import pyarrow.parquet as pq

import tidemark as tm
from benchmarks.data.fares import FIRST_TIME_MS
from benchmarks.harness.engines import SCHEMA, cores, start_session
from benchmarks.harness.processes import CHECKOUT
from tidemark.clock import SYSTEM_CLOCK
from tidemark.state.log.progress import EpochProgress

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PAGE: Final = Path("docs") / "reference" / "endurance.md"
EPOCHS: Final = 10_000
ROWS: Final = 1_000
DRIVERS: Final = 1_000
EPOCH_MS: Final = 60_000
"""Event time of one epoch: sixty of them close the windows of an hour."""

SAMPLES: Final = 25
_AHEAD: Final = 3
"""Files that wait unread."""


@dataclass(frozen=True)
class Sample:
    """One part of the run: up to which epoch, and what was measured at its end, or over its epochs."""

    epoch: int
    epoch_ms: float
    slow_ms: float
    heap_mib: float
    python_mib: float
    files: int
    state_rows: int


class Endurance:
    """The run.

    Args:
        spark: its session.
        folder: an empty one.
        epochs: how many.
    """

    def __init__(self, spark: SparkSession, folder: Path, epochs: int) -> None:
        self.samples: list[Sample] = []
        self._spark, self._folder, self._epochs = spark, folder, epochs
        self._every = max(1, epochs // SAMPLES)
        self._stop = threading.Event()
        self._random = np.random.default_rng(1)
        self._begun: list[float] = []
        self._landed = 0

    def run(self) -> None:
        """Run all epochs."""
        (self._folder / "in").mkdir()
        for _ in range(_AHEAD):
            self._land()
        files = tm.files(str(self._folder / "in"), format="parquet", schema=SCHEMA, max_files_per_epoch=1)
        fares = tm.source("fares", files, watermarks=tm.bounded_out_of_orderness("5 minutes", timestamp="ts"))
        windowed = fares.key_by("driver").window(tm.tumbling("1 hour")).aggregate(total=tm.sum("fare"), n=tm.count()).uid("fares-by-driver")
        job = tm.Job("fares", {"results": tm.parquet(windowed, str(self._folder / "results"))}, store=str(self._folder / "store"))
        self._begun.append(SYSTEM_CLOCK.monotonic())
        tm.run(job, spark=self._spark, trigger="1 ms", stop=self._stop, on_epoch=self._note)

    def _land(self) -> None:
        """Write the next file, and remove one that was read long ago."""
        base = FIRST_TIME_MS + self._landed * EPOCH_MS
        times = np.sort(base + self._random.integers(0, EPOCH_MS, ROWS)) * 1_000
        table = pa.table(
            {
                "driver": self._random.integers(0, DRIVERS, ROWS),
                "ts": pa.array(times, pa.timestamp("us", "UTC")),
                "fare": self._random.integers(100, 9_000, ROWS) / 100,
            }
        )
        hidden = self._folder / "in" / f".{self._landed:06}"
        pq.write_table(table, hidden)
        hidden.rename(self._folder / "in" / f"{self._landed:06}.parquet")
        (self._folder / "in" / f"{self._landed - 4 * _AHEAD:06}.parquet").unlink(missing_ok=True)
        self._landed += 1

    def _note(self, progress: EpochProgress) -> None:
        self._begun.append(SYSTEM_CLOCK.monotonic())
        count = len(self._begun) - 1
        if count % self._every == 0:
            self._sample(count, progress)
        if count >= self._epochs:
            self._stop.set()
        self._land()

    def _sample(self, count: int, progress: EpochProgress) -> None:
        took = sorted(1_000 * (after - before) for before, after in pairwise(self._begun[-self._every - 1 :]))
        memory = self._spark.sparkContext._jvm.java.lang.Runtime.getRuntime()  # type: ignore[union-attr]  # noqa: SLF001
        memory.gc()
        sample = Sample(
            count,
            median(took),
            took[int(0.95 * len(took))],
            (memory.totalMemory() - memory.freeMemory()) / 2**20,
            psutil.Process().memory_info().rss / 2**20,
            sum(1 for path in (self._folder / "store").rglob("*") if path.is_file()),
            sum(operator.state_rows for operator in progress.operators.values()),
        )
        self.samples.append(sample)
        print(
            f"epoch {sample.epoch:,}: {sample.epoch_ms:.0f} ms, heap {sample.heap_mib:.0f} MiB, Python {sample.python_mib:.0f} MiB, "
            f"{sample.files} files",
            flush=True,
        )
        # The collection of garbage and the count of files are none of the next epoch's.
        self._begun[-1] = SYSTEM_CLOCK.monotonic()


def render(samples: Sequence[Sample]) -> str:
    """Return the page."""
    first, last = samples[len(samples) // 10], samples[-1]
    what = f"{ROWS:,} fares of {DRIVERS:,} drivers each, a minute of event time, into windows of an hour"
    versions = f"Python {platform.python_version()} · PySpark {version('pyspark')} · Tidemark {version('tidemark')}"
    changes = (
        f"{first.epoch_ms:.0f} → {last.epoch_ms:.0f} ms per epoch in the median",
        f"JVM heap after a collection {first.heap_mib:.0f} → {last.heap_mib:.0f} MiB",
        f"Python {first.python_mib:.0f} → {last.python_mib:.0f} MiB",
        f"files of the job {first.files:,} → {last.files:,}",
    )
    lines = [
        "# Many epochs",
        "",
        f"{last.epoch:,} epochs in one run of one driver, {what}.",
        "`python -m benchmarks.operation.endurance` wrote this page.",
        "",
        f"{cores()} cores · {versions}",
        "",
        f"Between epoch {first.epoch:,} and epoch {last.epoch:,}: {', '.join(changes)}.",
        "",
    ]
    charts = (
        ("Time per epoch (ms, median of each part)", [sample.epoch_ms for sample in samples]),
        ("JVM heap after a collection (MiB)", [sample.heap_mib for sample in samples]),
        ("Python memory (MiB)", [sample.python_mib for sample in samples]),
        ("Files of the job", [sample.files for sample in samples]),
    )
    for title, values in charts:
        lines += _chart(title, [sample.epoch for sample in samples], values)
    lines += [
        "| up to epoch | ms per epoch: median | 95 % | heap, MiB | Python, MiB | files | rows of state |",
        "|---:|---:|---:|---:|---:|---:|---:|",
    ]
    lines += [
        f"| {s.epoch:,} | {s.epoch_ms:.0f} | {s.slow_ms:.0f} | {s.heap_mib:.0f} | {s.python_mib:.0f} | {s.files:,} | {s.state_rows:,} |"
        for s in samples
    ]
    return "\n".join(lines) + "\n"


def _chart(title: str, epochs: Sequence[int], values: Sequence[float]) -> list[str]:
    top = 1.25 * max(values)
    return [
        "```mermaid",
        "xychart-beta",
        f'    title "{title}"',
        f'    x-axis "epoch" {epochs[0]} --> {epochs[-1]}',
        f"    y-axis 0 --> {top:.0f}",
        f"    line [{', '.join(f'{value:.0f}' for value in values)}]",
        "```",
        "",
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run, and write the page."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.operation.endurance", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--epochs", type=int, default=EPOCHS)
    parser.add_argument("--output", default=str(CHECKOUT / PAGE), help="the page to write")
    asked = parser.parse_args(arguments)
    if asked.epochs < SAMPLES:
        parser.error(f"--epochs is {SAMPLES} at least")
    folder = Path(tempfile.mkdtemp(prefix="tidemark-endurance-"))
    try:
        run = Endurance(start_session("tidemark", folder / "scratch"), folder, asked.epochs)
        run.run()
        Path(asked.output).write_text(render(run.samples), encoding="utf-8")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())

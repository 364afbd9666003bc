"""Fares that arrive at a steady rate, by a process of its own: ``python -m benchmarks.data.live_fares FOLDER ROWS_PER_SECOND SECONDS``.

Every half second a Parquet file of the fares of that half second lands: written beside, and renamed. What landed is the truth that results
are held against.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.data.fares import Doubles, Longs
from tidemark.clock import SYSTEM_CLOCK

DRIVERS: Final = 1_000
FILE_MS: Final = 500
WINDOW_MS: Final = 1_000


@dataclass(frozen=True)
class Cells:
    """Rows by window, from the first to the last, and driver; windows are of one second."""

    first_end_ms: int
    rows: Longs

    def between(self, after_ms: int, until_ms: int) -> Longs:
        """Return the rows of the windows that end after an instant, and not after another."""
        ends = self.first_end_ms + np.arange(len(self.rows)) * WINDOW_MS
        chosen: Longs = self.rows[(ends > after_ms) & (ends <= until_ms)]
        return chosen


@contextmanager
def arriving(folder: Path, *, rows_per_second: int, seconds: float, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Let fares arrive while the block runs, for so many seconds at most."""
    folder.mkdir(parents=True)
    command = [sys.executable, "-m", "benchmarks.data.live_fares", str(folder), str(rows_per_second), str(seconds)]
    with log.open("wb") as out, subprocess.Popen(command, stdout=out, stderr=out) as process:
        try:
            yield process
        finally:
            process.kill()


def cells_of(folder: Path) -> Cells:
    """Return what landed, by window and driver."""
    counts: dict[int, Longs] = {}
    for path in sorted(folder.glob("[!.]*.parquet")):
        table = pq.read_table(path, columns=["driver", "ts"])
        times = table["ts"].cast(pa.timestamp("ms", tz="UTC")).cast(pa.int64()).to_numpy()
        drivers, ends = table["driver"].to_numpy(), times - times % WINDOW_MS + WINDOW_MS
        for end in np.unique(ends):
            found = np.bincount(drivers[ends == end], minlength=DRIVERS)
            counts[int(end)] = counts[int(end)] + found if int(end) in counts else found
    ends = range(min(counts), max(counts) + 1, WINDOW_MS)
    return Cells(ends[0], np.array([counts.get(end, np.zeros(DRIVERS, dtype=np.int64)) for end in ends]))


def main(folder: Path, rows_per_second: int, seconds: float) -> None:
    """Let files land until the time is over; one that comes too late holds what was due meanwhile."""
    random, clock = np.random.default_rng(1), SYSTEM_CLOCK
    begun = last = clock.now_ms()
    number = 0
    while last - begun < seconds * 1000:
        due = begun + (number + 1) * FILE_MS
        clock.sleep(max(0, due - clock.now_ms()) / 1000)
        # Behind a pause the files after it are on time again.
        now, number = due, number + 1
        count = rows_per_second * (now - last) // 1000
        times = last + np.arange(count, dtype=np.int64) * (now - last) // count
        _land(folder, number, random.integers(0, DRIVERS, count), times, np.round(random.random(count) * 50, 2))
        last = now


def _land(folder: Path, number: int, drivers: Longs, times_ms: Longs, fares: Doubles) -> None:
    columns = {
        "driver": pa.array(drivers, pa.int64()),
        "ts": pa.array(times_ms * 1000, pa.timestamp("us", tz="UTC")),
        "fare": pa.array(fares, pa.float64()),
    }
    unseen = folder / f".{number:06}.parquet"
    pq.write_table(pa.table(columns), unseen)
    unseen.rename(folder / unseen.name.removeprefix("."))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]))

"""Taxi fares as Parquet files: seeded, the same rows on every machine, and kept from one run to the next."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

Longs = npt.NDArray[np.int64]
Doubles = npt.NDArray[np.float64]

HOUR_MS = 3_600_000
FIRST_TIME_MS = 1_704_067_200_000
"""2024-01-01 00:00 UTC: where the event times begin."""

JITTER_MS = 120_000
LATE_SHARE = 0.0005
LATE_BY_MS = (3 * HOUR_MS, 24 * HOUR_MS)
"""Stock Spark judges lateness by the watermark of one batch earlier, so with long batches it takes rows that are 3 hours late."""

BREAK_PERIOD_MS = HOUR_MS
"""How often a driver takes a break, where a plan has breaks; no late row is moved from one part of the period to another."""

_VERSION = 1
_PLAN_FILE = "plan.json"
_ROW_GROUP = 250_000
_FIRST_FILE_TIME = 1_000_000_000


class Plan(Protocol):
    """What to generate; a frozen dataclass. The same plan gives the same rows on every machine."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    @property
    def name(self) -> str:
        """Name of the folder that holds these fares."""
        ...

    @property
    def drivers(self) -> int:
        """Drivers are numbered from 0 to one less than this."""
        ...

    @property
    def files(self) -> int:
        """Number of files."""
        ...

    @property
    def seed(self) -> int:
        """Of the random numbers."""
        ...

    @property
    def total_rows(self) -> int:
        """Rows of all files."""
        ...

    def generate(self, file: int, random: np.random.Generator) -> FaresFile:
        """Return a file's rows; called for each file in order, with one generator."""
        ...

    def made_late(self, file: int, times_ms: Longs) -> npt.NDArray[np.bool_]:
        """Return which rows of a file were made late, from their event times."""
        ...


@dataclass(frozen=True)
class FaresPlan:
    """What to generate: ``rows`` fares of ``drivers`` drivers in ``files`` files of one size, over ``hours`` hours of event time.

    The time of a row grows with its position, within two minutes either way. A ``late_share`` of the rows, one in 2,000, is late
    instead, by 3 or 24 hours, once event time has gone on for longer than that. With ``breaks`` each driver is away for that
    share of each hour, drivers one after the other, so that sessions end.
    """

    rows: int
    drivers: int
    files: int = 20
    hours: float = 48.0
    seed: int = 1
    late_share: float = LATE_SHARE
    breaks: float = 0.0
    version: int = _VERSION

    @property
    def name(self) -> str:
        """Name of the folder that holds these fares."""
        late = "" if self.late_share == LATE_SHARE else f"-late{self.late_share:g}"
        breaks = f"-breaks{self.breaks:g}" if self.breaks else ""
        return f"fares-{self.total_rows}-{self.drivers}-{self.files}-{self.hours:g}h-{self.seed}{late}{breaks}"

    @property
    def rows_per_file(self) -> int:
        """Rows of each file, at least one."""
        return max(1, self.rows // self.files)

    @property
    def total_rows(self) -> int:
        """Rows of all files; ``rows`` rounded down to a multiple of ``files``."""
        return self.rows_per_file * self.files

    def planned_times(self, file: int) -> Longs:
        """Return the event times of a file's rows before jitter and delay, in milliseconds."""
        position = np.arange(file * self.rows_per_file, (file + 1) * self.rows_per_file, dtype=np.int64)
        return FIRST_TIME_MS + position * round(self.hours * HOUR_MS) // self.total_rows

    def generate(self, file: int, random: np.random.Generator) -> FaresFile:
        """Return a file's rows; called for each file in order, with one generator."""
        planned = self.planned_times(file)
        count = len(planned)
        times = planned + random.integers(-JITTER_MS, JITTER_MS + 1, count)
        delay = random.choice(np.array(LATE_BY_MS, dtype=np.int64), count)
        # No row is moved before the first hour: its window would not be one that a row on time belongs to.
        late = (random.random(count) < self.late_share) & (planned - delay > FIRST_TIME_MS + HOUR_MS)
        drivers = self._at_work(random.integers(0, self.drivers, count), planned)
        fares = np.round(random.random(count) * 50, 2)
        return FaresFile(drivers, np.where(late, times - delay, times), fares, late)

    def made_late(self, file: int, times_ms: Longs) -> npt.NDArray[np.bool_]:
        """Return which rows of a file were made late, from their event times."""
        late: npt.NDArray[np.bool_] = self.planned_times(file) - times_ms > min(LATE_BY_MS) // 2
        return late

    def _at_work(self, drivers: Longs, planned: Longs) -> Longs:
        """Return drivers with those that have their break replaced by those that are half a period away from theirs."""
        if not self.breaks:
            return drivers
        phase = (planned % BREAK_PERIOD_MS / BREAK_PERIOD_MS + drivers / self.drivers) % 1.0
        replaced: Longs = np.where(phase < self.breaks, (drivers + self.drivers // 2) % self.drivers, drivers)
        return replaced


@dataclass(frozen=True)
class FaresFile:
    """One file's rows: drivers, event times in milliseconds, fares in dollars, and which rows were made late."""

    drivers: Longs
    times_ms: Longs
    fares: Doubles
    late: npt.NDArray[np.bool_]


def ensure_fares(plan: Plan, root: Path) -> Path:
    """Write the fares below a folder unless they are there; returns the folder of the Parquet files.

    The files' modification times ascend, so that Spark reads them in order.
    """
    home = root / plan.name
    mark = home / _PLAN_FILE
    files = home / "files"
    described = json.dumps(asdict(plan), sort_keys=True)
    if not mark.exists() or mark.read_text(encoding="utf-8") != described:
        shutil.rmtree(home, ignore_errors=True)
        files.mkdir(parents=True)
        random = np.random.default_rng(plan.seed)
        for number in range(plan.files):
            _write(files / f"fares-{number:05d}.parquet", plan.generate(number, random), _FIRST_FILE_TIME + number)
        mark.write_text(described, encoding="utf-8")
    return files


def read_fares(plan: Plan, files: Path) -> Iterator[FaresFile]:
    """Yield the files as written, in order."""
    for number, path in enumerate(sorted(files.glob("*.parquet"))):
        table = pq.read_table(path)
        times = table["ts"].cast(pa.timestamp("ms", tz="UTC")).cast(pa.int64()).to_numpy()
        yield FaresFile(table["driver"].to_numpy(), times, table["fare"].to_numpy(), plan.made_late(number, times))


def _write(path: Path, rows: FaresFile, modified: int) -> None:
    columns = {
        "driver": pa.array(rows.drivers, pa.int64()),
        "ts": pa.array(rows.times_ms * 1000, pa.timestamp("us", tz="UTC")),
        "fare": pa.array(rows.fares, pa.float64()),
    }
    pq.write_table(pa.table(columns), path, row_group_size=_ROW_GROUP)
    os.utime(path, (modified, modified))

"""What a benchmark leaves: one record per workload and engine, and the JSON file that lists them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median


@dataclass(frozen=True)
class Spread:
    """Median, least and greatest of the runs."""

    median: float
    min: float
    max: float


@dataclass(frozen=True)
class RunFigures:
    """One run of a workload on an engine. ``late_kept`` rows are in an output of their own, ``late_lost`` rows nowhere."""

    seconds: float
    epoch_ms: tuple[int, ...]
    peak_memory_bytes: int
    late_kept: int
    late_lost: int
    cells_checked: int
    versions: Mapping[str, str]


@dataclass(frozen=True)
class Record:
    """A workload on an engine, over all runs.

    Either ``events_per_second`` is given, or ``epoch_ms``: the median epoch of each run, in milliseconds. ``rows`` is the input's,
    ``peak_memory_bytes`` the greatest of the runs, and the late rows are those of the last run.
    """

    workload: str
    engine: str
    title: str
    rows: int
    runs: int
    events_per_second: Spread | None
    epoch_ms: Spread | None
    peak_memory_bytes: int
    late_kept: int
    late_lost: int
    cells_checked: int
    cores: int
    driver_memory: str
    versions: Mapping[str, str]

    @property
    def speed(self) -> float:
        """The median as something of which more is better, to make ratios of."""
        if self.events_per_second is not None:
            return self.events_per_second.median
        return 1000 / self.epoch_ms.median if self.epoch_ms is not None else 0.0


def spread_of(values: Sequence[float], *, digits: int = 0) -> Spread:
    """Return the spread of one value or more.

    >>> spread_of([3.0, 1.0, 2.0])
    Spread(median=2.0, min=1.0, max=3.0)
    """
    return Spread(round(median(values), digits), round(min(values), digits), round(max(values), digits))


def throughput(runs: Sequence[RunFigures], rows: int) -> Spread:
    """Return events per second."""
    return spread_of([rows / run.seconds for run in runs])


def epoch_lengths(runs: Sequence[RunFigures], *, skip: int, take: int) -> Spread:
    """Return milliseconds of the median epoch, of so many after those skipped at the start."""
    return spread_of([median(run.epoch_ms[skip : skip + take]) for run in runs], digits=1)


def write_records(path: Path, records: Sequence[Record]) -> None:
    """Write records as a JSON list; of the two measures only the one that was taken."""
    plain = [{key: value for key, value in asdict(record).items() if value is not None} for record in records]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(plain, indent=2) + "\n", encoding="utf-8")


def read_records(path: Path) -> tuple[Record, ...]:
    """Read what ``write_records`` wrote."""
    return tuple(_record(plain) for plain in json.loads(path.read_text(encoding="utf-8")))


def _record(plain: dict[str, object]) -> Record:
    spreads = {key: None if plain.get(key) is None else Spread(**plain[key]) for key in ("events_per_second", "epoch_ms")}  # type: ignore[arg-type]
    return Record(**{**plain, **spreads})  # type: ignore[arg-type]

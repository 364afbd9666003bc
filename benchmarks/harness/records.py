"""What a benchmark leaves: one record per workload and engine, and the JSON file that lists them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean, median
from typing import Any


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
    state_rows: tuple[int, ...] = ()
    state_files: tuple[int, ...] = ()


@dataclass(frozen=True)
class Stand:
    """Epochs at one size of the open state: their median in each run, in milliseconds, their mean over all runs, and the state.

    ``state_rows`` is what the engine counts after the last of the epochs, ``state_files`` the greatest number of live files after one, None
    for engines whose state is not files.
    """

    epoch_ms: Spread
    mean_ms: float
    state_rows: int
    state_files: int | None = None


@dataclass(frozen=True)
class Growth:
    """Epochs with little open state, or at the start, and the same with much, or at the end."""

    first: Stand
    last: Stand

    @property
    def factor(self) -> float:
        """How many times as long the last epochs take, by their medians."""
        return self.last.epoch_ms.median / self.first.epoch_ms.median


@dataclass(frozen=True)
class Percentiles:
    """Median, 99th percentile and greatest."""

    p50: float
    p99: float
    most: float


@dataclass(frozen=True)
class Latency:
    """A job that runs on under a steady load, in milliseconds: its epochs, and how long until results are visible.

    ``event_ms`` is from an event's time until the result of its window can be read, ``window_ms`` from the window's end.
    """

    trigger_ms: int
    rows_per_second: int
    epochs: int
    epoch_ms: Percentiles
    event_ms: Percentiles
    window_ms: Percentiles


@dataclass(frozen=True)
class SavepointFigures:
    """Savepoints of a job with so many keys of state, in milliseconds.

    ``take_ms`` is of a job that runs on, ``command_ms`` that of ``tidemark savepoint trigger``, Python's start included.
    ``rescale_ms`` is from the new spec to the start of the first epoch at the new parallelism, ``rescale_epochs`` the number of epochs
    that began at the old one meanwhile. ``restore_ms`` is from Spark's start, which took ``spark_ms``, until the first epoch is published.
    """

    keys: int
    state_bytes: int
    state_files: int
    take_ms: Spread
    command_ms: Spread
    rescale_ms: float
    rescale_epochs: int
    spark_ms: Spread
    restore_ms: Spread


@dataclass(frozen=True)
class Record:
    """A workload on an engine, over all runs.

    One is given of ``events_per_second``, ``epoch_ms`` (the median epoch of each run, in milliseconds), ``growth``, ``latency``,
    ``start_ms`` (from the command to the first epoch) and ``savepoints``. ``rows`` is the input's, ``peak_memory_bytes`` the greatest of
    the runs, and the late rows are those of the last run.
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
    growth: Growth | None = None
    latency: Latency | None = None
    start_ms: Spread | None = None
    savepoints: SavepointFigures | None = None

    @property
    def speed(self) -> float:
        """The median as something of which more is better, to make ratios of."""
        if self.events_per_second is not None:
            return self.events_per_second.median
        if self.latency is not None:
            return 1000 / self.latency.event_ms.p50
        if self.start_ms is not None:
            return 1000 / self.start_ms.median
        if self.savepoints is not None:
            return 1000 / self.savepoints.restore_ms.median
        epochs = self.growth.last.epoch_ms if self.growth is not None else self.epoch_ms
        return 1000 / epochs.median if epochs is not None else 0.0


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


def growth_of(runs: Sequence[RunFigures], *, first: tuple[int, int], last: tuple[int, int]) -> Growth:
    """Return the growth of epochs; ``first`` and ``last`` are how many epochs to skip at the start, and how many to take behind them."""
    return Growth(_stand(runs, *first), _stand(runs, *last))


def _stand(runs: Sequence[RunFigures], skip: int, take: int) -> Stand:
    lengths = [length for run in runs for length in run.epoch_ms[skip : skip + take]]
    files = [count for run in runs for count in run.state_files[skip : skip + take]]
    return Stand(
        epoch_lengths(runs, skip=skip, take=take),
        round(fmean(lengths), 1),
        runs[-1].state_rows[skip + take - 1],
        max(files) if files else None,
    )


def write_records(path: Path, records: Sequence[Record]) -> None:
    """Write records as a JSON list; of the measures only the one that was taken."""
    plain = [{key: value for key, value in asdict(record).items() if value is not None} for record in records]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(plain, indent=2) + "\n", encoding="utf-8")


def read_records(path: Path) -> tuple[Record, ...]:
    """Read what ``write_records`` wrote."""
    return tuple(_record(plain) for plain in json.loads(path.read_text(encoding="utf-8")))


def _record(plain: dict[str, Any]) -> Record:
    spreads = {key: None if plain.get(key) is None else Spread(**plain[key]) for key in ("events_per_second", "epoch_ms", "start_ms")}
    grown, lags = plain.get("growth"), plain.get("latency")
    growth = None if grown is None else Growth(*(_read_stand(grown[end]) for end in ("first", "last")))
    latency = None if lags is None else _read_latency(lags)
    taken = plain.get("savepoints")
    savepoints = None if taken is None else _read_savepoints(taken)
    return Record(**{**plain, **spreads, "growth": growth, "latency": latency, "savepoints": savepoints})


def _read_savepoints(plain: dict[str, Any]) -> SavepointFigures:
    return SavepointFigures(**{**plain, **{name: Spread(**plain[name]) for name in ("take_ms", "command_ms", "spark_ms", "restore_ms")}})


def _read_latency(plain: dict[str, Any]) -> Latency:
    return Latency(**{**plain, **{name: Percentiles(**plain[name]) for name in ("epoch_ms", "event_ms", "window_ms")}})


def _read_stand(plain: dict[str, Any]) -> Stand:
    return Stand(**{**plain, "epoch_ms": Spread(**plain["epoch_ms"])})

"""Reads what an engine wrote: its results, and the rows it kept in an output of late ones."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from benchmarks.checks.verdicts import to_cents
from benchmarks.data.fares import Doubles, Longs
from benchmarks.harness.engines import LATE, RESULTS


@dataclass(frozen=True)
class Results:
    """Result rows of one file: drivers, bounds of windows in milliseconds, rows counted, fares in dollars."""

    drivers: Longs
    starts_ms: Longs
    ends_ms: Longs
    rows: Longs
    fares: Doubles


@dataclass(frozen=True)
class LateRows:
    """Input rows: drivers, event times in milliseconds, fares in cents."""

    drivers: Longs
    times_ms: Longs
    cents: Longs


def read_results(folder: Path) -> Iterator[Results]:
    """Yield the result rows below an engine's folder, file by file."""
    for table in _tables(folder / RESULTS, ["driver", "window_start", "window_end", "n", "total"]):
        yield Results(
            table["driver"].to_numpy(),
            _milliseconds(table["window_start"]),
            _milliseconds(table["window_end"]),
            table["n"].to_numpy(),
            table["total"].to_numpy(),
        )


def read_late(folder: Path) -> LateRows | None:
    """Return the late rows below an engine's folder, None where it has no output of them."""
    if not (folder / LATE).is_dir():
        return None
    tables = list(_tables(folder / LATE, ["driver", "ts", "fare"]))
    return LateRows(
        join([table["driver"].to_numpy() for table in tables]),
        join([_milliseconds(table["ts"]) for table in tables]),
        join([to_cents(table["fare"].to_numpy()) for table in tables]),
    )


def time_bounds(files: Path) -> tuple[int, int]:
    """Return the least and the greatest event time of an input, in milliseconds."""
    bounds = [pc.min_max(table["ts"].cast(pa.timestamp("ms", tz="UTC")).cast(pa.int64())).as_py() for table in _tables(files, ["ts"])]
    return min(bound["min"] for bound in bounds), max(bound["max"] for bound in bounds)


def join(parts: Sequence[Longs]) -> Longs:
    """Return arrays one after the other, also where there is none."""
    return np.concatenate(parts) if parts else np.zeros(0, dtype=np.int64)


def _tables(folder: Path, columns: Sequence[str]) -> Iterator[pa.Table]:
    """Yield the published files of a folder; names that begin with ``_`` or ``.`` are the engine's own."""
    for path in sorted(folder.glob("[!_.]*.parquet")):
        yield pq.read_table(path, columns=list(columns), partitioning=None)


def _milliseconds(column: pa.ChunkedArray) -> Longs:
    times: Longs = column.cast(pa.timestamp("ms", tz="UTC")).cast(pa.int64()).to_numpy()
    return times

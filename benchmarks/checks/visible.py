"""When results became visible: the rows of each version of a Delta table, and the moment its commit file was there."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.checks.verdicts import require
from benchmarks.data.fares import Doubles, Longs
from benchmarks.data.live_fares import DRIVERS, WINDOW_MS, Cells
from benchmarks.harness.records import Percentiles

_STEPS: Final = 20
"""A window's events come at a steady rate, so that so many moments of it stand for all of them."""


@dataclass(frozen=True)
class Version:
    """What a version added: ends of windows, drivers, and rows counted, place by place; ``at_ms`` is when it became visible."""

    at_ms: int
    ends_ms: Longs
    drivers: Longs
    rows: Longs


@dataclass(frozen=True)
class Visible:
    """From an event's time, and from its window's end, to the moment that the window's result was visible."""

    event_ms: Percentiles
    window_ms: Percentiles
    compared: int


def versions(table: Path) -> Iterator[Version]:
    """Yield the versions that added results, oldest first; what only rewrites files is left out."""
    for commit in sorted((table / "_delta_log").glob("*.json")):
        actions = [json.loads(line) for line in commit.read_text(encoding="utf-8").splitlines() if line]
        added = [action["add"]["path"] for action in actions if "add" in action and action["add"]["dataChange"]]
        if added:
            rows = pa.concat_tables(pq.read_table(table / unquote(path), columns=["driver", "window_end", "n"]) for path in added)
            ends = rows["window_end"].cast(pa.timestamp("ms", tz="UTC")).cast(pa.int64()).to_numpy()
            yield Version(commit.stat().st_mtime_ns // 1_000_000, ends, rows["driver"].to_numpy(), rows["n"].to_numpy())


def visible(engine: str, table: Path, truth: Cells, *, after_ms: int, until_ms: int) -> Visible:
    """Return how long results took that are of windows between two instants; all of them must be there, once, with the right counts.

    Args:
        engine: for the error.
        table: of the results.
        truth: what arrived.
        after_ms: windows that end at it or before are the warm-up's.
        until_ms: windows that end after it may not be there yet.

    Raises:
        DisagreementError: the table is not what the input says.
    """
    found = np.zeros_like(truth.between(after_ms, until_ms))
    first = truth.first_end_ms + max(0, -(-(after_ms + 1 - truth.first_end_ms) // WINDOW_MS)) * WINDOW_MS
    waits, weights = [], []
    for version in versions(table):
        chosen = (version.ends_ms > after_ms) & (version.ends_ms <= until_ms)
        ends, rows = version.ends_ms[chosen], version.rows[chosen]
        np.add.at(found, ((ends - first) // WINDOW_MS, version.drivers[chosen]), rows)
        waits.append(version.at_ms - ends)
        weights.append(rows)
    expected = truth.between(after_ms, until_ms)
    wrong = int((found != expected).sum())
    require(engine, holds=wrong == 0, says=f"has other counts in {wrong:,} of {expected.size:,} windows")
    wait, weight = np.concatenate(waits), np.concatenate(weights)
    moments = (np.arange(_STEPS) + 0.5) / _STEPS * WINDOW_MS
    return Visible(
        event_ms=percentiles(np.add.outer(moments, wait).ravel(), np.tile(weight, _STEPS)),
        window_ms=percentiles(wait.astype(np.float64), weight),
        compared=len(expected) * DRIVERS,
    )


def percentiles(values: Doubles, weights: Longs | None = None) -> Percentiles:
    """Return the median, the 99th percentile and the greatest of values, each as often there as its weight says.

    >>> percentiles(np.array([1.0, 2.0, 3.0]))
    Percentiles(p50=2.0, p99=3.0, most=3.0)
    """
    order = np.argsort(values)
    reached = np.cumsum(np.ones(len(values)) if weights is None else weights[order])
    p50, p99 = (float(values[order][np.searchsorted(reached, share * reached[-1])]) for share in (0.5, 0.99))
    return Percentiles(round(p50, 1), round(p99, 1), round(float(values.max()), 1))

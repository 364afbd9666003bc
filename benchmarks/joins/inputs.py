"""The inputs of joins and running results, deterministic, and what has to come of them, by arithmetic alone."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

SCHEMA: Final = "id BIGINT, k BIGINT, t TIMESTAMP, v BIGINT"
EVERY_MS: Final = 10_000
"""Of each key a row comes so often on average, on each side."""

WITHIN_MS: Final = 10_000
"""A row meets those of the other side that are so much earlier or later at most: about two."""

DISORDER_MS: Final = 2_000
LAG_MS: Final = 5_000
BOUND: Final = f"{LAG_MS // 1000} seconds"
"""Of the watermark."""

START_MS: Final = 1_700_000_000_000

Longs = np.ndarray[Any, np.dtype[np.int64]]


@dataclass(frozen=True)
class Side:
    """The rows of one side: their times are out of order by less than the bound of the watermark, so that none is late."""

    rows: int
    keys: int
    seed: int

    def columns(self) -> tuple[Longs, Longs, Longs, Longs]:
        """Return ids, keys, times in milliseconds, and values, in the order of arrival."""
        random = np.random.default_rng(self.seed)
        ids = np.arange(self.rows, dtype=np.int64)
        ordered = START_MS + ids * EVERY_MS // self.keys
        times = ordered - random.integers(0, DISORDER_MS, self.rows)
        return ids, random.integers(0, self.keys, self.rows), times, random.integers(0, 1_000, self.rows)

    def write(self, folder: Path, files: int) -> None:
        """Write the rows as Parquet files of equal numbers."""
        folder.mkdir(parents=True)
        ids, keys, times, values = self.columns()
        for number, part in enumerate(np.array_split(np.arange(self.rows), files)):
            stamps = pa.array(times[part] * 1000).cast(pa.timestamp("us", "UTC"))
            table = pa.table({"id": ids[part], "k": keys[part], "t": stamps, "v": values[part]})
            pq.write_table(table, folder / f"{number:04}.parquet")


@dataclass(frozen=True)
class Sums:
    """What a result comes to: its rows, and the sums of two of its columns, where null adds nothing."""

    rows: int
    one: int
    other: int


def joined(left: Side, right: Side, *, outer: bool, unfinished_ms: int = 0) -> Sums:
    """Return the rows of an interval join, and the sums of the ids of both sides.

    Args:
        left: its rows are kept by an outer join.
        right: the other side.
        outer: whether rows of the left side that meet none are results.
        unfinished_ms: of these, those that are not so much older than the newest row are left out.
    """
    (ids, places), (other_ids, other_places) = _by_place(left), _by_place(right)
    first = np.searchsorted(other_places, places - WITHIN_MS, "left")
    last = np.searchsorted(other_places, places + WITHIN_MS, "right")
    meets = last - first
    before = np.concatenate([[0], np.cumsum(other_ids)])
    times = left.columns()[2]
    alone = (meets == 0) & (times[ids] <= min(times.max(), right.columns()[2].max()) - unfinished_ms)
    return Sums(
        int(meets.sum()) + (int(alone.sum()) if outer else 0),
        int((ids * meets).sum()) + (int(ids[alone].sum()) if outer else 0),
        int((before[last] - before[first]).sum()),
    )


def _by_place(side: Side) -> tuple[Longs, Longs]:
    """Return the ids in the order of key and time, and a number for both: those of different keys are further apart than any interval."""
    ids, keys, times, _ = side.columns()
    span = side.rows * EVERY_MS // side.keys + 4 * (WITHIN_MS + DISORDER_MS)
    places = keys * span + (times - START_MS) + 2 * (WITHIN_MS + DISORDER_MS)
    order = np.argsort(places, kind="stable")
    return ids[order], places[order]


def grouped(side: Side) -> Sums:
    """Return the number of keys, the number of rows, and the sum of the values."""
    _, keys, _, values = side.columns()
    return Sums(len(np.unique(keys)), side.rows, int(values.sum()))

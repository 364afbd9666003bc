"""The regular join of two changelogs: its input, what has to come of it by arithmetic alone, and the job on Tidemark."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.dataset as ds

import tidemark as tm
from benchmarks.joins.inputs import START_MS, Longs, Sums

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA: Final = "id BIGINT, k BIGINT, ts BIGINT, v BIGINT"
VALUES: Final = 1_000_000
RESULTS: Final = "results"


@dataclass(frozen=True)
class Upserts:
    """The rows of one side, each of which takes the place of the one before with its id: ids, join keys and values are random.

    There are as many ids as keys, so that each row meets one of the other side on average; a new version has another key, mostly. The
    time of a row, in milliseconds, is its own, so that the newest one of an id is the same in whatever order files are read.
    """

    rows: int
    keys: int
    seed: int

    def columns(self) -> tuple[Longs, Longs, Longs, Longs]:
        """Return ids, keys, times and values, in the order of arrival."""
        random = np.random.default_rng(self.seed)
        ids, keys = random.integers(0, self.keys, self.rows), random.integers(0, self.keys, self.rows)
        return ids, keys, np.arange(self.rows, dtype=np.int64) + START_MS, random.integers(0, VALUES, self.rows)

    def write(self, folder: Path, files: int) -> None:
        """Write the rows as CSV files of equal numbers, without a header: the one format that all engines read as they come."""
        folder.mkdir(parents=True)
        ids, keys, times, values = self.columns()
        options = pyarrow.csv.WriteOptions(include_header=False)
        for number, part in enumerate(np.array_split(np.arange(self.rows), files)):
            table = pa.table({"id": ids[part], "k": keys[part], "ts": times[part], "v": values[part]})
            pyarrow.csv.write_csv(table, folder / f"{number:04}.csv", options)

    def newest(self) -> tuple[Longs, Longs]:
        """Return the keys and the values of the newest row of each id."""
        ids, keys, _, values = self.columns()
        rows = self.rows - 1 - np.unique(ids[::-1], return_index=True)[1]
        return keys[rows], values[rows]


def joined_newest(left: Upserts, right: Upserts) -> Sums:
    """Return the pairs of the newest rows of both sides that have the same key, and the sums of the values of each side in them."""
    (keys, values), (other_keys, other_values) = left.newest(), right.newest()
    most = max(left.keys, right.keys)
    meets, met = np.bincount(other_keys, minlength=most)[keys], np.bincount(keys, minlength=most)[other_keys]
    return Sums(int(meets.sum()), int((values * meets).sum()), int((other_values * met).sum()))


def join_changelogs(spark: SparkSession, files: Path, folder: Path, files_per_epoch: int) -> None:
    """Drain the input: the newest row of each id on both sides, their join by key, and the sums of its pairs."""

    def newest(name: str, value: str) -> tm.Stream:
        read = tm.files(str(files / name), format="csv", schema=SCHEMA, max_files_per_epoch=files_per_epoch)
        rows = tm.source(name, read, watermarks=tm.ascending(timestamp="ts")).select("k", "ts", **{f"{name}_id": "id", value: "v"})
        return rows.latest(by=[f"{name}_id"], sequence="ts").uid(f"newest_{name}").select(f"{name}_id", "k", value)

    pairs = newest("left", "v").join(newest("right", "w"), on="k").uid("joined")
    sums = pairs.key_by(every="1").aggregate(rows=tm.count(), one=tm.sum("v"), other=tm.sum("w")).uid("sums")
    job = tm.Job("changelog", {RESULTS: tm.parquet(sums, str(folder / RESULTS))}, store=str(folder / "store"))
    tm.run(job, spark=spark)


def newest_sums(folder: Path) -> Sums:
    """Return what the newest row of the sums says."""
    table = ds.dataset(folder / RESULTS, exclude_invalid_files=False).to_table(columns=["rows", "one", "other", "epoch"])
    newest = table.filter(pc.equal(table["epoch"], pc.max(table["epoch"]))).to_pylist()
    return Sums(newest[0]["rows"], newest[0]["one"], newest[0]["other"])

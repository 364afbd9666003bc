"""What an epoch with few changed keys costs where the join's state is large: two tables that change, joined by a key of one of them.

``python -m benchmarks.joins.epoch_cost REQUEST.json ANSWER.json`` measures one size of state in its process.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq

import tidemark as tm
from benchmarks.harness.engines import start_session
from benchmarks.joins.inputs import Longs
from tidemark.clock import SYSTEM_CLOCK

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CHANGED: Final = 10_000
"""So many rows are new on one side in an epoch, and so many of the other side are updated."""

SCHEMA: Final = "id BIGINT, k BIGINT, v BIGINT, op STRING, t TIMESTAMP"
_WARM_ROWS: Final = 1_000
_WARM_CHANGED: Final = 100
_WARM_EPOCHS: Final = 20
_SETTLING: Final = 3
"""Of the measured epochs the first ones are left out: state was written by the epoch before."""


@dataclass(frozen=True)
class Request:
    """What a process measures: rows of state on each side, the number of epochs after they were read, and an empty folder."""

    rows: int
    epochs: int
    folder: str


@dataclass(frozen=True)
class Answer:
    """The seconds of each measured epoch."""

    seconds: list[float]


class Tables:
    """The changes of both tables, as files: epoch 0 has all rows, others insert rows on the left and update rows on the right."""

    def __init__(self, folder: Path, rows: int, changed: int, epochs: int) -> None:
        self._folder = folder
        self._random = np.random.default_rng(rows)
        every = np.arange(rows, dtype=np.int64)
        self._values = np.zeros(rows, dtype=np.int64)
        self._partners = [self._random.integers(0, rows, rows)]
        self._write("left", 0, (every, self._partners[0], np.zeros_like(every)), ["insert"] * rows)
        self._write("right", 0, (every, every, self._values), ["insert"] * rows)
        for epoch in range(1, epochs + 1):
            self._change(epoch, rows, changed)

    def _change(self, epoch: int, rows: int, changed: int) -> None:
        partners = self._random.integers(0, rows, changed)
        self._partners.append(partners)
        ids = np.arange(changed, dtype=np.int64) + rows + (epoch - 1) * changed
        self._write("left", epoch, (ids, partners, np.zeros_like(ids)), ["insert"] * changed)
        ids = self._random.choice(rows, changed, replace=False)
        both, values = np.concatenate([ids, ids]), np.concatenate([self._values[ids], np.full(changed, epoch)])
        self._write("right", epoch, (both, both, values), ["update_before"] * changed + ["update_after"] * changed)
        self._values[ids] = epoch

    def _write(self, side: str, epoch: int, columns: tuple[Longs, Longs, Longs], operations: list[str]) -> None:
        (self._folder / side).mkdir(parents=True, exist_ok=True)
        times = pa.array(np.full(len(operations), 1_700_000_000_000_000 + epoch)).cast(pa.timestamp("us", "UTC"))
        ids, keys, values = columns
        table = pa.table({"id": ids, "k": keys, "v": values, "op": operations, "t": times})
        pq.write_table(table, self._folder / side / f"{epoch:04}.parquet")

    @property
    def joined(self) -> tuple[int, int]:
        """The number of rows of the join at the end, and the sum of the values of the right side in them."""
        partners = np.concatenate(self._partners)
        return len(partners), int(self._values[partners].sum())


def run(spark: SparkSession, folder: Path, request: tuple[int, int, int]) -> list[float]:
    """Join two tables of so many rows, changed so often in so many epochs; return the seconds of each epoch after the first.

    Raises:
        ValueError: the result is not the join of both tables at the end.
    """
    rows, changed, epochs = request
    tables, ends = Tables(folder / "input", rows, changed, epochs), list[float]()

    def side(name: str) -> tm.Stream:
        read = tm.files(str(folder / "input" / name), format="parquet", schema=SCHEMA, max_files_per_epoch=1)
        return tm.source(name, read, watermarks=tm.ascending(timestamp="t"))

    left = side("left").as_changelog(["id"], operation="op").select("id", "k")
    right = side("right").select("op", k="id", w="v").as_changelog(["k"], operation="op").select("k", "w")
    joined = left.join(right, on="k").uid("joined")
    job = tm.Job("epoch-cost", {"results": tm.parquet(joined, str(folder / "results"))}, store=str(folder / "store"))
    tm.run(job, spark=spark, on_epoch=lambda _: ends.append(SYSTEM_CLOCK.monotonic()))
    history = ds.dataset(folder / "results", exclude_invalid_files=False).to_table(columns=["id", "w", "operation", "epoch"])
    newest = (
        history.sort_by([("epoch", "descending")]).group_by("id", use_threads=False).aggregate([("w", "first"), ("operation", "first")])
    )
    there = newest.filter(pc.not_equal(newest["operation_first"], "delete"))
    found = there.num_rows, pc.sum(there["w_first"]).as_py()
    if found != tables.joined:
        raise ValueError(f"the join has {found} rows and values, and both tables say {tables.joined}")
    return [after - before for before, after in pairwise(ends)]


def measure(request: Request) -> Answer:
    """Start Spark, run a small join to warm the process up, and measure."""
    folder = Path(request.folder)
    spark = start_session("tidemark", folder)
    try:
        run(spark, folder / "warm-up", (_WARM_ROWS, _WARM_CHANGED, _WARM_EPOCHS))
        return Answer(run(spark, folder / "measured", (request.rows, CHANGED, request.epochs + _SETTLING))[_SETTLING:])
    finally:
        spark.stop()


if __name__ == "__main__":
    asked = Request(**json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")))
    Path(sys.argv[2]).write_text(json.dumps(asdict(measure(asked))), encoding="utf-8")

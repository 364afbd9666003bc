"""The sizes of the batches in which rows go to a step in Python before a process function."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

import tidemark as tm

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LIMIT = "spark.sql.execution.arrow.maxBytesPerBatch"
ROWS = 400


def sizes(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return small rows for large ones, each with the number of rows in its batch."""
    return pa.RecordBatch.from_pydict({"k": batch.column("k"), "n": pa.array([batch.num_rows] * batch.num_rows, pa.int64())})


class Passes:
    """Emits what it gets."""

    def process(self, element: Mapping[str, Any], ctx: tm.ProcessContext) -> Iterator[Mapping[str, object]]:
        del ctx
        yield {"n": element["n"]}


def limited(spark: SparkSession, folder: Path, stream: tm.Stream) -> pa.Table:
    """Return what a job emits while batches have at most 20,000 bytes."""
    job = tm.Job("sizes", outputs={"o": tm.memory(stream, str(folder / "o"))}, store=str(folder / "s"))
    before = str(spark.conf.get(LIMIT))
    spark.conf.set(LIMIT, "20000")
    try:
        tm.run(job, spark=spark)
    finally:
        spark.conf.set(LIMIT, before)
    table = tm.memory_table(str(folder / "o"))
    assert table is not None
    return table


def test_large_rows_of_a_step_before_are_limited_where_the_packed_ones_are_small(spark: SparkSession, tmp_path: Path) -> None:
    given = tm.from_elements(epochs=[[(1, number, "x" * 1_000) for number in range(ROWS)]], schema="k BIGINT, t BIGINT, text STRING")
    rows = tm.source("texts", given, watermarks=tm.ascending(timestamp="t")).map(sizes, returns="k BIGINT, n BIGINT", batches=True)
    stream = rows.key_by("k").process(Passes, returns="n BIGINT").uid("passes")
    table = limited(spark, tmp_path, stream)
    assert table.num_rows == ROWS
    assert max(table.column("n").to_pylist()) < ROWS // 2


def test_large_rows_of_a_step_before_are_limited_where_a_function_over_elements_had_small_ones(spark: SparkSession, tmp_path: Path) -> None:
    # From the second epoch on it is known that the function's own elements are small.
    epochs = [[(1, ROWS * epoch + number, "x" * 1_000) for number in range(ROWS)] for epoch in range(2)]
    given = tm.from_elements(epochs=epochs, schema="k BIGINT, t BIGINT, text STRING")
    rows = tm.source("texts", given, watermarks=tm.ascending(timestamp="t")).map(sizes, returns="k BIGINT, n BIGINT", batches=True)
    stream = rows.process(Passes, returns="n BIGINT")
    table = limited(spark, tmp_path, stream)
    assert table.num_rows == 2 * ROWS
    assert max(table.column("n").to_pylist()) < ROWS // 2

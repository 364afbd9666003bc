"""Elements and state that do not fit into the memory for sorting: the same results, by way of the local disk; and workers between tasks."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any
from unittest import mock

import tidemark as tm
from tidemark.spark.operators.keyed.packed_rows import PackTask
from tidemark.spark.operators.keyed.packed_task import PackedKeyTask

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

KEYS, ROWS, EPOCHS = 40, 700, 2
BATCH = "spark.sql.execution.arrow.maxRecordsPerBatch"


def runs_on_disk() -> list[Path]:
    """Return the sorted runs in Spark's local folders, as a worker sees them."""
    folders = os.environ["SPARK_LOCAL_DIRS"].split(",")
    return [run for folder in folders for run in Path(folder).glob("tidemark-sort-*/*.arrow")]


class InOrder:
    """Folds a key's values in their order; emits the result with the number of sorted runs that are on disk, and their folder."""

    folded = tm.value_state("BIGINT", default=0)

    def process(self, element: Mapping[str, Any], ctx: tm.ProcessContext) -> Iterator[Mapping[str, object]]:
        self.folded.update((self.folded.value() * 31 + element["v"]) % 1_000_003)
        runs = runs_on_disk() if element["v"] % 50 == 0 else []
        yield {
            "k": element["k"],
            "at": ctx.timestamp,
            "folded": self.folded.value(),
            "runs": len(runs),
            "frozen": gc.get_freeze_count(),
            "place": str(runs[0] if runs else ""),
        }


def run(spark: SparkSession, folder: Path) -> list[dict[str, Any]]:
    random = Random(7)
    rows = [[(random.randrange(KEYS), random.randrange(10**6), random.randrange(1_000)) for _ in range(ROWS)] for _ in range(EPOCHS)]
    given = tm.from_elements(epochs=rows, schema="k BIGINT, t BIGINT, v BIGINT")
    source = tm.source("values", given, watermarks=tm.ascending(timestamp="t"))
    returns = "k BIGINT, at BIGINT, folded BIGINT, runs INT, frozen BIGINT, place STRING"
    stream = source.key_by("k").process(InOrder(), returns=returns).uid("in-order")
    job = tm.Job("spilling", outputs={"o": tm.memory(stream, str(folder / "o"))}, store=str(folder / "store"), parallelism=2)
    tm.run(job, spark=spark)
    table = tm.memory_table(str(folder / "o"))
    assert table is not None
    found: list[dict[str, Any]] = table.to_pylist()
    return found


def of_function(rows: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return sorted((row["k"], row["at"], row["folded"]) for row in rows)


def test_a_run_that_spills_gives_the_same(spark: SparkSession, tmp_path: Path) -> None:
    kept_in_memory = run(spark, tmp_path / "memory")
    before = str(spark.conf.get(BATCH))
    spark.conf.set(BATCH, "100")
    try:
        with (
            mock.patch("tidemark.spark.operators.keyed.packed_input.PackTask", partial(PackTask, max_bytes=4_000)),
            mock.patch("tidemark.spark.operators.keyed_process.runtime.PackedKeyTask", partial(PackedKeyTask, sort_bytes=8_000)),
        ):
            spilled = run(spark, tmp_path / "disk")
    finally:
        spark.conf.set(BATCH, before)
    assert len(kept_in_memory) == ROWS * EPOCHS
    assert of_function(spilled) == of_function(kept_in_memory)
    assert max(row["runs"] for row in kept_in_memory) == 0
    # Workers leave what they have loaded out of the collection of garbage after each task.
    assert max(row["frozen"] for row in kept_in_memory) > 10_000
    # Of the elements of a task several runs, and those of versions beside them.
    assert max(row["runs"] for row in spilled) > 3
    places = {row["place"] for row in spilled if row["place"]}
    assert places
    assert not any(Path(place).parent.exists() for place in places)

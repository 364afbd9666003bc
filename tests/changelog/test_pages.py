"""Of large tables only the pages are read that may have the rows of a few keys."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from tidemark.spark.columns.schemas import struct_of
from tidemark.spark.operators.base.contract import OperatorContext
from tidemark.spark.operators.base.tables import MAIN, StateTables
from tidemark.spark.operators.changelog import contents
from tidemark.spark.operators.changelog.contents import EPOCH, GONE, HASH, Contents, lookup_hash
from tidemark.state.log.records import OperatorState
from tidemark.state.store.root_store import root_store

ROWS = 30_000
KEYS = ("a", "b")

pytestmark = pytest.mark.spark


class Table:
    """A table of rows with two keys and a value, over epochs."""

    def __init__(self, spark: SparkSession, folder: Path, kind: str = "BIGINT") -> None:
        self.spark = spark
        self.folder = folder
        self.types = struct_of(f"a {kind}, b BIGINT, v STRING")
        self.epoch = 0

    def open(self, state: OperatorState, lookup: Sequence[str] = KEYS) -> Contents:
        self.epoch += 1
        context = OperatorContext(self.spark, root_store(str(self.folder)), "table", state, {}, self.epoch, 0)
        return Contents(StateTables(context, "here"), MAIN, self.types, (), tuple(lookup))

    def add(self, table: Contents, first: int, last: int) -> OperatorState:
        made = self.spark.range(first, last, 1, 1).selectExpr("id AS a", "id % 7 AS b", "concat('v', id) AS v")
        typed = made.select(*(made[field.name].cast(field.dataType) for field in self.types))
        table.add(typed.selectExpr("*", f"false AS {GONE}", f"{self.epoch}L AS {EPOCH}", f"{lookup_hash(table.lookup)} AS {HASH}"))
        return table.tables.snapshot(0, {})


def hashes(spark: SparkSession, table: Contents, ids: Sequence[int]) -> DataFrame:
    keys = spark.createDataFrame([(each, each % 7) for each in ids], T.StructType([table.columns[name] for name in KEYS]))
    return keys.selectExpr(f"{lookup_hash(table.lookup)} AS {HASH}")


def looked_up(table: Contents, ids: Sequence[int]) -> tuple[set[str], int] | None:
    """Return the values that were found for keys, and the number of rows that Spark read for them; None where all would be read."""
    spark = SparkSession.getActiveSession()
    assert spark is not None
    found = table.pages(table.read(table.files), hashes(spark, table, ids), len(ids))
    if found is None:
        return None
    values = {row["v"] for row in found.collect()}
    leaves = found._jdf.queryExecution().executedPlan().collectLeaves()  # noqa: SLF001 - PySpark has no metrics of a plan
    return values, sum(leaves.apply(number).metrics().apply("numOutputRows").value() for number in range(leaves.size()))


def test_a_few_keys_need_a_few_pages(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = Table(spark, tmp_path)
    assert table.open(OperatorState({})).compact(1) is None, "an empty table has nothing to merge"
    state = table.add(table.open(OperatorState({})), 0, ROWS)
    state = table.add(table.open(state), ROWS, ROWS + 10)
    opened = table.open(state)
    assert looked_up(opened, [17]) is None, "a table that is not large"
    monkeypatch.setattr(contents, "LARGE_TABLE", ROWS)
    found = looked_up(opened, [17, ROWS + 3, ROWS + 100])
    assert found is not None
    values, read = found
    assert {"v17", f"v{ROWS + 3}"} <= values
    assert f"v{ROWS + 100}" not in values
    # Parquet closes a page at 2,000 rows or a little later; each key is in one page of a file.
    assert 0 < read <= 2 * 3 * 2_100
    assert looked_up(opened, range(101)) is None, "of more keys most pages would be read"


@pytest.mark.parametrize("change", ["order of keys", "type of a key"])
def test_hashes_that_were_made_otherwise_are_made_again(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    monkeypatch.setattr(contents, "LARGE_TABLE", 0)
    table = Table(spark, tmp_path, "INT")
    state = table.add(table.open(OperatorState({})), 0, 5_000)
    lookup = ("b", "a") if change == "order of keys" else KEYS
    if change == "type of a key":
        # What a migration of the state does: files of the new type with the hashes that there were.
        held = spark.read.parquet(f"{tmp_path}/{state.files[0].path}").withColumn("a", F.col("a").cast("long"))
        table.types = struct_of("a BIGINT, b BIGINT, v STRING")
        opened = table.open(OperatorState({}, counters=state.counters), lookup)
        opened.tables.write(held)
        state = opened.tables.snapshot(0, {})
    opened = table.open(state, lookup)
    assert looked_up(opened, [17]) is None
    state = table.add(opened, 5_000, 5_010)
    assert looked_up(opened, [17]) is None, "rows of both kinds"
    assert {"v17", "v5003"} <= {row["v"] for row in opened.current(hashes(spark, opened, [17, 5_003])).collect()}
    merge = opened.compact(5_010)
    assert merge is not None
    merge()
    found = looked_up(table.open(opened.tables.snapshot(0, {}), lookup), [17, 5_003])
    assert found is not None
    assert {"v17", "v5003"} <= found[0]
    assert found[1] <= 2 * 2_100

"""The newest rows of a table: the same whether rows are hashed by their key, or sorted."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F

from tidemark.spark.columns.schemas import struct_of
from tidemark.spark.operators.base.contract import OperatorContext
from tidemark.spark.operators.base.tables import MAIN, StateTables
from tidemark.spark.operators.changelog.contents import EPOCH, GONE, HASH, Contents, lookup_hash
from tidemark.state.log.records import OperatorState
from tidemark.state.store.root_store import root_store

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

VERSIONS = 4

Version = tuple[int | None, int | None, float | None, int, bool]


def versions_of() -> list[Version]:
    """Return versions of rows, of each key a mark, a row or both in an epoch: key, two values, epoch, whether it is a mark."""
    dice, made = Random(9), list[Version]()
    for epoch in range(VERSIONS):
        for key in dice.sample([None, *range(12)], 9):
            kind = dice.choice(["row", "mark", "both"])
            if kind != "row":
                made.append((key, dice.choice([None, 5]), None, epoch, True))
            if kind != "mark":
                made.append((key, dice.choice([None, epoch]), dice.choice([None, float("nan"), 0.5]), epoch, False))
    return made


def newest(versions: list[Version]) -> dict[Any, tuple[Any, ...]]:
    last: dict[Any, Version] = {}
    for version in versions:
        if version[0] not in last or (version[3], not version[4]) > (last[version[0]][3], not last[version[0]][4]):
            last[version[0]] = version
    return {key: tuple(map(str, row[1:3])) for key, row in last.items() if not row[4]}


def in_plan(frame: DataFrame) -> str:
    return str(frame._jdf.queryExecution().executedPlan().toString())  # noqa: SLF001 - PySpark only prints it


@pytest.mark.parametrize("more", ["", ", s STRING"])
def test_the_newest_rows_of_a_table(spark: SparkSession, tmp_path: Path, more: str) -> None:
    versions, types = versions_of(), struct_of(f"k INT, v BIGINT, x DOUBLE{more}")
    given = spark.createDataFrame(versions, f"k INT, v BIGINT, x DOUBLE, {EPOCH} BIGINT, {GONE} BOOLEAN")
    given = given.withColumn("s", F.lit("text")) if more else given

    def open_table(state: OperatorState, epoch: int) -> Contents:
        context = OperatorContext(spark, root_store(str(tmp_path)), "table", state, {}, epoch, 0)
        return Contents(StateTables(context, "here"), MAIN, types, (), ("k",))

    table = open_table(OperatorState({}), 0)
    for epoch in range(VERSIONS):
        table.add(given.where(f"{EPOCH} = {epoch}").withColumn(HASH, F.expr(lookup_hash(("k",)))))
        table = open_table(table.tables.snapshot(0, {}), epoch + 1)
    found = table.current()
    assert {row["k"]: tuple(map(str, (row["v"], row["x"]))) for row in found.collect()} == newest(versions)
    assert ("SortAggregate" in in_plan(found)) == bool(more)
    made = given.select("k", F.expr(lookup_hash(("k",))).alias(HASH)).collect()
    assert {(row["k"], row[HASH]) for row in found.collect()} <= {(row["k"], row[HASH]) for row in made}

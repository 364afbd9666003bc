"""Reduce in SQL and in Python gives what a plain fold in order gives, however elements are split into epochs and partials merged."""

from __future__ import annotations

import functools
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.aggregates.rig import results, run
from tests.aggregates.streams import SCHEMA, Row, frame, random_rows
from tidemark.graph.expressions.ddl import parse_schema
from tidemark.graph.model.aggregates import Aggregate
from tidemark.graph.operators.window.reduce_checks import python_reduction, sql_reduction

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
ODD = "odd `{name}'"
COLUMNS = parse_schema(f"{SCHEMA}, `{ODD.replace('`', '``')}` INT")
MERGES = {
    "i": "a.i",
    "s": "greatest(a.s, b.s)",
    "by": "coalesce(a.by + b.by, a.by, b.by)",
    "price": "if(a.price >= b.price OR b.price IS NULL, a.price, b.price)",
    ODD: "greatest(a.`odd ``{name}'`, b.`odd ``{name}'`)",
}


def merged(a: dict[str, Any], b: dict[str, Any]) -> dict[str, Any]:
    def of(choose: Any, *values: Any) -> Any:
        there = [value for value in values if value is not None]
        return choose(there) if there else None

    return {
        "i": a["i"],
        "s": of(max, a["s"], b["s"]),
        "by": of(sum, a["by"], b["by"]),
        "price": of(max, a["price"], b["price"]),
        ODD: of(max, a[ODD], b[ODD]),
    }


def by_sql(**merges: str) -> Aggregate:
    return sql_reduction(merges, columns=(), returns=None, schema=COLUMNS, place="").aggregate


def by_function(*columns: str) -> Aggregate:
    return python_reduction(merged, {}, columns=columns, returns=None, schema=COLUMNS, place="").aggregate


def plain_fold(stream: list[Row]) -> dict[str, Any]:
    rows = sorted(stream, key=lambda row: (row.at, row.pos))
    return functools.reduce(merged, ({"i": row.i, "s": row.s, "by": row.by, "price": row.price, ODD: row.by} for row in rows))


@pytest.mark.parametrize("arrow", ["false", "true"])
def test_reducing_is_a_fold_in_order(spark: SparkSession, tmp_path: Path, arrow: str) -> None:
    rows = random_rows(60, seed=11)
    elements = frame(spark, rows, seed=12, most_epochs=6).selectExpr("*", f"by AS `{ODD.replace('`', '``')}`")
    before = spark.conf.get("spark.sql.execution.pythonUDF.arrow.enabled")
    spark.conf.set("spark.sql.execution.pythonUDF.arrow.enabled", arrow)
    try:
        got = results(run(elements, {"sql": by_sql(**MERGES), "python": by_function(*MERGES)}, tmp_path, seed=13))
    finally:
        spark.conf.set("spark.sql.execution.pythonUDF.arrow.enabled", str(before))
    streams = {case: [row for row in rows if row.case == case] for case in {row.case for row in rows}}
    assert got.keys() == streams.keys()
    for case, stream in streams.items():
        expected = plain_fold(stream)
        assert {kind: got[case][kind].asDict() for kind in ("sql", "python")} == {"sql": expected, "python": expected}


def test_a_column_that_holds_no_null_may_become_null(spark: SparkSession) -> None:
    aggregate = by_sql(i="nullif(a.i, b.i)", price="a.price + b.price")
    rows = spark.sql("SELECT id, 7 AS i, CAST(0.5 AS DECIMAL(10, 2)) AS price FROM range(2)")
    create = aggregate.partials[1].create.format(order="id")
    row = rows.selectExpr(f"{create} AS reduced").first()
    assert row is not None
    assert row["reduced"].asDict() == {"i": None, "price": Decimal("1.00")}

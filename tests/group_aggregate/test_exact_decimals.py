"""Sums and means of decimals of the greatest precision keep all digits, and values that only finer units tell apart differ."""

from __future__ import annotations

import random
from decimal import ROUND_HALF_UP, Decimal, localcontext
from typing import TYPE_CHECKING

import pytest

from tests.seeds import only_long
from tidemark.spark.columns.changes import same
from tidemark.spark.operators.group_aggregate.exact_decimals import added, divided

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


@pytest.mark.parametrize("scale", [7, 36, *(pytest.param(scale, marks=only_long) for scale in (2, 18, 30))])
def test_sums_and_means(spark: SparkSession, scale: int) -> None:
    drawn, kind = random.Random(scale), f"decimal(38,{scale})"
    unit, most = Decimal(1).scaleb(-scale), 10**38 // 2 - 1
    with localcontext() as context:
        context.prec = 90
        sizes = [1, 10, 10**scale, 10**17, 10**37 // 2, 10**37, most]
        values = [(drawn.choice([-1, 1]) * drawn.randrange(size + 1) * unit, drawn.randrange(1, 9)) for size in sizes for _ in range(30)]
        pairs = [(a, drawn.choice(values)[0], n) for a, n in values] + [(unit, unit, 2), (-unit, unit, 1), (most * unit, most * unit, 3)]
        # Greater means are none of the type that Spark gives an average.
        finer = min(scale + 4, 38)
        fits = f"abs(a) < 1{'0' * (38 - finer)}BD"
        mean = f"if({fits}, {divided('a', 'n', kind, f'decimal(38,{finer})')}, NULL) AS mean"
        rows = spark.createDataFrame(pairs, f"a {kind}, b {kind}, n BIGINT")
        found = rows.selectExpr("a", "b", "n", f"{added('a', 'b', kind)} AS total", mean)
        for row in found.collect():
            assert row.total == row.a + row.b, row
            if row["mean"] is not None:
                assert row["mean"] == (row.a / row.n).quantize(Decimal(1).scaleb(-finer), ROUND_HALF_UP), row


def test_finer_values_in_maps_differ(spark: SparkSession) -> None:
    text = "map('at', timestamp'2026-01-01 00:00:00.{}')"
    pairs = spark.sql(f"SELECT struct({text.format('000001')} AS m) AS b, struct({text.format('000002')} AS m) AS a")
    assert pairs.selectExpr(same(pairs, "b", "a")).first() == (False,)
    assert pairs.selectExpr("b", "b AS a").selectExpr(same(pairs, "b", "a")).first() == (True,)

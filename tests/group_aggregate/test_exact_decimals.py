"""Sums and means of decimals of the greatest precision keep all digits, and values that only finer units tell apart differ."""

from __future__ import annotations

import random
from decimal import ROUND_HALF_UP, Decimal, localcontext
from typing import TYPE_CHECKING

import pytest
from pyspark.sql import functions as F

from tidemark.spark.columns.changes import same
from tidemark.spark.operators.group_aggregate.exact_decimals import added, divided

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


@pytest.mark.parametrize("scale", [2, 7, 18, 30, 36])
def test_sums_and_means(spark: SparkSession, scale: int) -> None:
    drawn, kind = random.Random(scale), f"decimal(38,{scale})"
    unit, most = Decimal(1).scaleb(-scale), 10**38 // 2 - 1
    with localcontext() as context:
        context.prec = 90
        sizes = [1, 10, 10**scale, 10**17, 10**37 // 2, 10**37, most]
        values = [(drawn.choice([-1, 1]) * drawn.randrange(size + 1) * unit, drawn.randrange(1, 9)) for size in sizes for _ in range(30)]
        pairs = [(a, drawn.choice(values)[0], n) for a, n in values] + [(unit, unit, 2), (-unit, unit, 1), (most * unit, most * unit, 3)]
        mean = f"decimal(38,{min(scale + 4, 38)})"
        rows = spark.createDataFrame(pairs, f"a {kind}, b {kind}, n BIGINT")
        found = rows.select(
            "a", "b", "n", F.expr(added("a", "b", kind)).alias("total"), F.expr(divided("a", "n", kind, mean)).alias("mean")
        )
        for row in found.collect():
            assert row.total == row.a + row.b, row
            exact = row.a / row.n
            if scale <= 34 and abs(row.a) < Decimal(10) ** (34 - scale):
                wanted = exact.quantize(Decimal(1).scaleb(-min(scale + 4, 38)), ROUND_HALF_UP)
                assert row["mean"] == wanted, row


def test_finer_values_in_maps_differ(spark: SparkSession) -> None:
    text = "map('at', timestamp'2026-01-01 00:00:00.{}')"
    pairs = spark.sql(f"SELECT struct({text.format('000001')} AS m) AS b, struct({text.format('000002')} AS m) AS a")
    assert pairs.selectExpr(same(pairs, "b", "a")).first() == (False,)
    assert pairs.selectExpr("b", "b AS a").selectExpr(same(pairs, "b", "a")).first() == (True,)

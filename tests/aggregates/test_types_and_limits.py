"""Result types, overflow, error bounds at size, and which aggregates stay on Spark's fast path."""

from __future__ import annotations

import functools
import itertools
import math
import random
import re
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.sql import DataFrame

import tidemark as tm
from tests.aggregates.rig import created, results, run, step_of
from tidemark.graph.model.aggregates import Aggregate

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
STREAM = ("0 AS case", "CAST(id % 5 AS INT) AS epoch", "id AS at", "named_struct('row', id) AS pos")


def numbers(spark: SparkSession, count: int, *columns: str) -> DataFrame:
    """Return so many rows of one stream in five epochs."""
    return spark.range(count).selectExpr(*STREAM, *columns)


def test_types_are_sparks_own_after_any_number_of_merges(spark: SparkSession, tmp_path: Path) -> None:
    rows = numbers(
        spark, 30, "CAST(id AS DECIMAL(10, 2)) AS price", "CAST(id AS SMALLINT) AS small", "CAST(id AS FLOAT) AS f", "DATE'2026-01-01' AS d"
    )
    calls = [
        "sum(price)",
        "avg(price)",
        "sum(small)",
        "avg(small)",
        "sum(f)",
        "avg(f)",
        "min(d)",
        "stddev(price)",
        "collect_list(small)",
        "collect_set(d)",
    ]
    aggregates = {call: getattr(tm, call[: call.index("(")])(call[call.index("(") + 1 : -1]) for call in calls}
    got = run(rows, {f"c{number}": aggregate for number, aggregate in enumerate(aggregates.values())}, tmp_path, seed=1, rounds=2)
    native = rows.selectExpr(*calls)
    assert [field.dataType.simpleString() for field in got.schema][1:] == [field.dataType.simpleString() for field in native.schema]
    row = got.collect()[0]
    assert (row["c0"], row["c1"]) == (Decimal("435.00"), Decimal("14.500000"))


def test_an_overflow_fails_rather_than_wraps(spark: SparkSession, tmp_path: Path) -> None:
    from pyspark.errors import ArithmeticException

    rows = numbers(spark, 5, "9223372036854775807 AS l")
    # One element per epoch, so that it is the merge that overflows.
    with pytest.raises(ArithmeticException, match="overflow"):
        run(rows, {"s": tm.sum("l")}, tmp_path / "sum", seed=1, rounds=0).collect()
    mean = run(rows, {"a": tm.avg("l")}, tmp_path / "avg", seed=1).collect()[0]["a"]
    assert mean == pytest.approx(2**63)


def test_sketch_is_the_same_however_split_and_within_its_error(spark: SparkSession, tmp_path: Path) -> None:
    splits = ("0", "id % 2", "id % 7", "CASE WHEN id < 10 THEN 0 ELSE 1 END", "hash(id) % 50")
    cases = list(itertools.product((100, 700, 40_000), splits))
    frames = (
        spark.range(count).selectExpr(f"{case} AS case", f"CAST({split} AS INT) AS epoch", "id AS at", "id AS pos", "id AS l")
        for case, (count, split) in enumerate(cases)
    )
    rows = functools.reduce(DataFrame.union, frames)
    found = results(run(rows.coalesce(1), {"n": tm.approx_count_distinct("l")}, tmp_path, seed=2, rounds=1))
    estimates: dict[int, set[int]] = {}
    for case, (count, _) in enumerate(cases):
        estimates.setdefault(count, set()).add(found[case]["n"])
    assert len(found) == len(cases)
    for count, same in estimates.items():
        assert len(same) == 1
        assert same.pop() == pytest.approx(count, rel=4 * 0.02)


def test_percentiles_of_many_values_over_all_magnitudes(spark: SparkSession, tmp_path: Path) -> None:
    random_ = random.Random(11)
    values = [random_.choice([-1, 1]) * 10 ** random_.uniform(-305, 308) for _ in range(20_000)]
    shares = [0.0, 0.001, 0.25, 0.5, 0.75, 0.999, 1.0]
    rows = spark.createDataFrame(
        [(0, number % 4, number, number, value) for number, value in enumerate(values)], "case INT, epoch INT, at INT, pos INT, x DOUBLE"
    )
    aggregates = {"fine": tm.approx_percentile("x", shares), "finest": tm.approx_percentile("x", shares, relative_error=0.0025)}
    got = run(rows, aggregates, tmp_path, seed=3).collect()[0]
    ordered = sorted(values)
    exact = [ordered[max(0, math.ceil(share * len(ordered)) - 1)] for share in shares]
    assert got["fine"] == [pytest.approx(value, rel=0.01 * (1 + 1e-9)) for value in exact]
    assert got["finest"] == [pytest.approx(value, rel=0.0025 * (1 + 1e-9)) for value in exact]
    assert got["fine"] != got["finest"]


@pytest.mark.parametrize(
    ("aggregate", "fast"),
    [
        (tm.count(), True),
        (tm.sum("x"), True),
        (tm.avg("l"), True),
        (tm.min("l"), True),
        (tm.max("x"), True),
        (tm.stddev("x"), True),
        (tm.max("s"), False),
        (tm.first("x"), False),
        (tm.collect_set("x"), False),
    ],
    ids=lambda value: f"{value.kind}({', '.join(value.arguments)})" if isinstance(value, Aggregate) else str(value),
)
def test_which_partials_are_made_by_fast_hash_aggregation(spark: SparkSession, aggregate: Aggregate, fast: bool) -> None:  # noqa: FBT001
    rows = numbers(spark, 10, "CAST(id AS DOUBLE) AS x", "id AS l", "CAST(id AS STRING) AS s")
    made = created(rows, step_of({"made": aggregate}))
    plan = made._jdf.queryExecution().executedPlan().toString()  # noqa: SLF001 - PySpark shows a plan in no other way
    assert (set(re.findall(r"\w*Aggregate(?=\()", plan)) == {"HashAggregate"}) == fast

"""Physical plans that are bound to other files and numbers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from py4j.protocol import Py4JError
from pyspark.sql import Observation
from pyspark.sql import functions as F

from tidemark.spark.prepared import prepared_plan

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark


def test_a_plan_is_not_that_of_other_numbers_or_files(spark: SparkSession, tmp_path: Path) -> None:
    for number in range(2):
        pq.write_table(pa.table({"v": [number, number + 10]}), tmp_path / f"{number}.parquet")

    def rows(number: int, more_than: int) -> DataFrame:
        frame = spark.read.schema("v BIGINT").parquet(f"file://{tmp_path}/{number}.parquet").coalesce(1)
        return frame.where(f"v > get(array({more_than}L), CAST(pmod(v, 1) AS INT))")

    plan = prepared_plan.PreparedPlan(rows(0, 77_777))
    place = f"file://{tmp_path}/1.parquet"
    assert plan.equals(rows(1, 5), [[place]], {77_777: 5})
    assert not plan.equals(rows(1, 5), [[place]], {77_777: 6})
    assert not plan.equals(rows(0, 5), [[place]], {77_777: 5})
    assert not plan.equals(rows(1, 5).where("v < 100"), [[place]], {77_777: 5})
    assert plan.run([[place]], {77_777: 5}).table.to_pydict() == {"v": [11]}
    assert plan.run([[place]], {77_777: -5}).table.to_pydict() == {"v": [1, 11]}
    with pytest.raises(Py4JError, match="of 2 files, 1 are there"):
        plan.run([[place, f"file://{tmp_path}/2.parquet"]], {77_777: 5})


def test_a_plan_of_several_tasks_or_other_sources_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    pq.write_table(pa.table({"v": [1]}), tmp_path / "1.parquet")
    rows = spark.read.schema("v BIGINT").parquet(f"file://{tmp_path}/1.parquet")
    with pytest.raises(Exception, match="several tasks"):
        prepared_plan.PreparedPlan(rows.repartition(2))
    with pytest.raises(Exception, match="files alone"):
        prepared_plan.PreparedPlan(rows.coalesce(1).union(spark.range(3).toDF("v").coalesce(1)))
    with pytest.raises(Exception, match="files alone"):
        prepared_plan.PreparedPlan(spark.range(3).coalesce(1))


@pytest.mark.parametrize(
    "condition", ["d >= to_date('today')", "d < ' Tomorrow UTC'", "CAST(d AS TIMESTAMP) < CAST(concat('n', 'ow') AS TIMESTAMP)"]
)
def test_a_plan_that_has_the_day_on_which_it_was_made_is_refused(spark: SparkSession, tmp_path: Path, condition: str) -> None:
    pq.write_table(pa.table({"d": pa.array([0], pa.date32()), "text": ["today"]}), tmp_path / "1.parquet")
    rows = spark.read.schema("d DATE, text STRING").parquet(f"file://{tmp_path}/1.parquet").coalesce(1)
    assert prepared_plan.PreparedPlan(rows.where("text = 'today' AND d < '2000-01-01'")).schema == rows.schema
    with pytest.raises(Exception, match="each run has other values of"):
        prepared_plan.PreparedPlan(rows.where(condition))


def test_a_plan_of_several_tasks_makes_rows_that_are_written(spark: SparkSession, tmp_path: Path) -> None:
    for number in range(3):
        pq.write_table(pa.table({"v": [number, number + 10, number]}), tmp_path / f"{number}.parquet")
    places = [f"file://{tmp_path}/{number}.parquet" for number in range(3)]
    counts = Observation()
    read = spark.read.schema("v BIGINT").parquet(places[0])
    frame = read.repartition(2, "v").groupBy("v").count().observe(counts, F.expr("count(1) AS n")).sortWithinPartitions("v")
    plan = prepared_plan.PreparedPlan(frame, [counts], several=True)
    for number in (1, 2):
        rows = plan.rows([[places[number]]], {})
        rows.frame.write.parquet(str(tmp_path / f"written {number}"))
        written = pq.read_table(tmp_path / f"written {number}").sort_by("v").to_pydict()
        assert written == {"v": [number, number + 10], "count": [2, 1]}
        assert rows.observed == [{"n": 2}]


def test_a_plan_of_several_scans_is_bound_in_their_order(spark: SparkSession, tmp_path: Path) -> None:
    for number in range(4):
        pq.write_table(pa.table({"v": [number]}), tmp_path / f"{number}.parquet")
    places = [f"file://{tmp_path}/{number}.parquet" for number in range(4)]

    def rows(*scans: Sequence[str]) -> DataFrame:
        read = [spark.read.schema("v BIGINT").parquet(*paths).coalesce(1) for paths in scans]
        named = [frame.selectExpr(f"{number}L AS part", "v") for number, frame in enumerate(read)]
        return named[0].union(named[1]).groupBy("v").agg(F.max("part").alias("part"))

    plan = prepared_plan.PreparedPlan(rows(places[:1], places[1:2]))
    other = [places[2:3], [places[3], places[0]]]
    assert plan.equals(rows(*other), other, {})
    assert not plan.equals(rows(*other), other[::-1], {})
    assert sorted(map(tuple, map(dict.values, plan.run(other, {}).table.to_pylist()))) == [(0, 1), (2, 0), (3, 1)]
    with pytest.raises(Exception, match="2 scans, and there are files of 1"):
        plan.run(other[:1], {})


def test_a_join_that_makes_many_rows_of_few_is_left_to_tasks(spark: SparkSession, tmp_path: Path) -> None:
    pq.write_table(pa.table({"k": [1] * 1_000, "v": range(1_000)}), tmp_path / "1.parquet")
    places = [[f"file://{tmp_path}/1.parquet"]] * 2

    def pairs(of_each: int) -> DataFrame:
        one, other = (spark.read.schema("k BIGINT, v BIGINT").parquet(*paths).coalesce(1).where(f"v < {of_each}") for paths in places)
        return one.join(other.withColumnsRenamed({"k": "l", "v": "w"}).hint("shuffle_hash"), F.expr("k = l"))

    assert prepared_plan.PreparedPlan(pairs(700)).run(places, {}).table.num_rows == 490_000
    with pytest.raises(Py4JError, match="more than 64 batches of rows"):
        prepared_plan.PreparedPlan(pairs(900)).run(places, {})

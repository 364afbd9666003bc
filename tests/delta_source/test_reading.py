"""The rows that a job reads of Delta tables: those that are added, and changes that leave the table's content after each version."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

import tidemark as tm
from tests.changelog.changes import Histories, Row, contents_of, sorted_rows
from tests.delta_source.tables import FEED, SCHEMA, append, plan, planner_of, rides, source_of
from tests.seeds import PROFILE
from tidemark.errors import SourceError
from tidemark.graph import DeltaTableSpec
from tidemark.spark.sources.planning.delta_planner import rows_between

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

# The clock of these runs stands still, long before the tables are written.
TIMED = tm.ascending(timestamp="_commit_timestamp", max_future_skew=None)
DAYS = "id BIGINT, zone STRING, day DATE, fare DOUBLE"
ZONES = ("north side", "a=b/c?", "ü%20", None)


def days(first: int, count: int) -> pa.Table:
    """Return rows of two partition columns."""
    return pa.table(
        {
            "id": range(first, first + count),
            "zone": pa.array([ZONES[number % len(ZONES)] for number in range(count)], pa.string()),
            "day": [date(2026, 11, 1 + number % 3) for number in range(count)],
            "fare": [float(number) for number in range(count)],
        }
    )


def content(path: Path, version: int | None = None) -> list[Row]:
    return sorted_rows(cast("list[Row]", pa.table(DeltaTable(str(path), version=version).to_pyarrow_table()).to_pylist()))


def test_rows_that_are_added(spark: SparkSession, tmp_path: Path) -> None:
    """Of partitions with odd names and nulls, of one file and of many, of a column that comes later, over two runs."""
    parted, plain = tmp_path / "parted", tmp_path / "plain"
    for first in (0, 6):
        append(parted, days(first, 6), partition_by=["zone", "day"])
    append(plain, rides(0, 3))
    streams = {
        "parted": tm.source("parted", tm.delta_source(str(parted), schema=DAYS), watermarks=tm.ingestion_time()),
        "cut": tm.source("cut", tm.delta_source(str(parted), schema=DAYS, max_bytes_per_epoch=1), watermarks=tm.ingestion_time()),
        "plain": tm.source("plain", tm.delta_source(str(plain), schema=f"{SCHEMA}, tip DOUBLE"), watermarks=tm.ingestion_time()),
    }
    with pytest.raises(SourceError, match="column 'tip' is missing"):
        Histories(spark, tmp_path).run(streams)
    append(plain, rides(3, 2).append_column("tip", pa.array([0.5, 1.5])), schema_mode="merge")
    histories = Histories(spark, tmp_path)
    found = histories.run(streams)
    expected = content(parted)
    for name in ("parted", "cut"):
        assert sorted_rows(row for epoch in found[name] for row in epoch) == expected
    assert len([epoch for epoch in found["cut"] if epoch]) == len(DeltaTable(str(parted)).file_uris())
    assert sorted((row["id"], row["tip"]) for epoch in found["plain"] for row in epoch) == [
        (0, None),
        (1, None),
        (2, None),
        (3, 0.5),
        (4, 1.5),
    ]
    append(parted, days(24, 5), partition_by=["zone", "day"])
    append(plain, rides(5, 1).append_column("tip", pa.array([2.5])))
    again = histories.run(streams)
    assert sorted(row["id"] for epoch in again["cut"] for row in epoch) == [24, 25, 26, 27, 28]
    assert [[row["id"] for row in epoch] for epoch in again["plain"] if epoch] == [[5]]


def replaced(path: Path, random: Random, number: int) -> None:
    """Change a table in one of several ways."""
    table, kind = DeltaTable(str(path)), number % 5
    if kind == 0:
        table.update(updates={"fare": "fare + 1"}, predicate=f"id % 3 = {random.randrange(3)}")
    elif kind == 1:
        table.delete(f"id = {random.randrange(9)}")
    elif kind == 2:
        rows = rides(random.randrange(6), 4, fare=float(number))
        merged = table.merge(rows, predicate="old.id = new.id", source_alias="new", target_alias="old")
        merged.when_matched_update_all().when_not_matched_insert_all().execute()
    elif kind == 3:
        table.optimize.compact()
    else:
        write_deltalake(str(path), rides(random.randrange(3), 6, fare=float(number)), mode="overwrite")


def test_changes_leave_the_content_of_each_version(spark: SparkSession, tmp_path: Path) -> None:
    streams = {}
    for name, configuration in (("feed", FEED), ("files", {})):
        path, random = tmp_path / name, Random(7)
        append(path, rides(0, 6), configuration=configuration)
        # Each of the ways once, and one behind them.
        for number in range(10 if PROFILE == "long" else 6):
            replaced(path, random, number)
        spec = tm.delta_source(str(path), schema=SCHEMA, changes=True, from_version=0, max_versions_per_epoch=1)
        streams[name] = tm.delta_changes(name, spec, key=["id"], watermarks=TIMED)
        whole = tm.delta_source(str(path), schema=SCHEMA, changes=True, from_version=0)
        streams[f"{name}_whole"] = tm.delta_changes(f"{name}_whole", whole, key=["id"], watermarks=TIMED)
        now = tm.delta_source(str(path), schema=SCHEMA, changes=True)
        streams[f"{name}_now"] = tm.delta_changes(f"{name}_now", now, key=["id"], watermarks=TIMED)
    found = Histories(spark, tmp_path).run(streams)
    for name in ("feed", "files"):
        path = tmp_path / name
        changed = contents_of(found[name], ["id"])
        versions = [content(path, version) for version in range(DeltaTable(str(path)).version() + 1)]
        distinct = [each for number, each in enumerate(versions) if number == 0 or each != versions[number - 1]]
        assert [each for number, each in enumerate(changed) if number == 0 or each != changed[number - 1]] == distinct
        for other in (f"{name}_whole", f"{name}_now"):
            assert contents_of(found[other], ["id"])[0] == versions[-1]


def test_an_epochs_rows_are_read_again(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "parted"
    for first in (0, 12):
        append(path, days(first, 12), partition_by=["zone"])
    for options in ({}, {"from_version": 0}, {"changes": True}):
        source = source_of(path, schema=DAYS, max_bytes_per_epoch=1500, **options)
        spec, before = cast("DeltaTableSpec", source.spec), None
        epochs = list(plan(planner_of(source), source))
        assert len(epochs) > 1
        for files, position in epochs:
            rows = rows_between(spark, source, spec, before, position)
            assert rows.count() == sum(file.rows or 0 for file in files)
            before = cast("Any", position)


@pytest.fixture
def failing(spark: SparkSession, tmp_path: Path) -> Callable[..., None]:
    def run(stream: tm.Stream) -> None:
        Histories(spark, tmp_path).run({"rows": stream})

    return run


def test_a_rewritten_version_ends_the_job_after_those_before_it(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "rides"
    append(path, rides(0, 3))
    append(path, rides(3, 3))
    DeltaTable(str(path)).delete("id = 1")
    output = tmp_path / "copy"

    def job(**options: Any) -> tm.Job:
        rows = tm.source("rides", tm.delta_source(str(path), schema=SCHEMA, **options), watermarks=tm.ingestion_time())
        return tm.Job("copy", outputs={"copy": tm.delta(rows, str(output))}, store=str(tmp_path / "store"))

    with pytest.raises(SourceError, match=r"version 2 \(DELETE\)"):
        tm.run(job(from_version=0), spark=spark, handle_signals=False)
    assert [row["id"] for row in content(output)] == [0, 1, 2, 3, 4, 5]
    append(path, rides(6, 1))
    tm.run(job(from_version=0, on_rewrite="skip"), spark=spark, handle_signals=False)
    assert [row["id"] for row in content(output)] == [0, 1, 2, 3, 4, 5, 6]


def test_a_source_that_needs_a_query_is_refused_beside_a_table(failing: Callable[..., None], tmp_path: Path) -> None:
    append(tmp_path / "rides", rides(0, 1))
    rows = tm.source("rides", tm.delta_source(str(tmp_path / "rides"), schema=SCHEMA), watermarks=tm.ingestion_time())
    ticks = tm.source("ticks", tm.rate(rows_per_second=1), watermarks=tm.ingestion_time())
    with pytest.raises(SourceError, match="read them in two jobs"):
        failing(rows.select("id").union(ticks.select(id="value")))

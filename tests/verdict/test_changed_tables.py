"""A job that gets an aggregate, and its Delta tables: appended to and upserted; back again, and what is refused is refused early."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from deltalake import DeltaTable

import tidemark as tm
from tests.bad_inputs import HOUR, ROWS, Lab
from tidemark.errors import SinkError
from tidemark.savepoints.model.restore import Restore
from tidemark.state.log.joblog import JobLog
from tidemark.state.store.store import JobStore

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow]

# In each of the later epochs the first window of "a" fires once more.
EPOCHS: list[list[tuple[object, ...]]] = [ROWS, [("c", 6 * HOUR, 1), ("a", HOUR + 1, 3)], [("d", 8 * HOUR, 5), ("a", HOUR + 2, 9)]]
TABLES = ("panes", "newest")
Rows = dict[tuple[str, int], tuple[object, ...]]


def job(lab: Lab, *columns: str, kind: str = "delta", **aggregates: tm.Aggregate) -> tm.Job:
    windows = lab.source(*EPOCHS).key_by("zone").window(tm.tumbling("1 hour")).allowed_lateness("1 day")
    hourly = windows.aggregate(total=tm.sum("fare"), **aggregates).uid("hourly")
    made = {text.partition("=")[0]: text.partition("=")[2] for text in columns if "=" in text}
    rows = hourly.with_columns(**made) if made else hourly
    if "-total" in columns:
        rows = rows.select("zone", "window_start", "window_end", "pane_index", *aggregates)
    folder = tm.parquet(rows, lab.path("folder"))
    tables = {"panes": tm.delta(rows, lab.path("panes")), "newest": tm.delta(rows, lab.path("newest"), mode="upsert")}
    return lab.job(**(tables if kind == "delta" else {"folder": folder}))


def newest(lab: Lab) -> Rows:
    """Return of each key and window's start, in hours, what its newest row has of the columns that are asked for."""
    found: Rows = {}
    for row in DeltaTable(lab.path("newest")).to_pyarrow_table().to_pylist():
        key = (row["zone"], row["window_start"].hour)
        assert key not in found
        found[key] = (row.get("total", "-"), row.get("top", "-"))
    return found


def columns(lab: Lab, name: str) -> set[str]:
    return {field.name for field in DeltaTable(lab.path(name)).schema().fields}


def stored(lab: Lab) -> list[object]:
    """Return all that a refused start must leave as it is."""
    versions: list[object] = [DeltaTable(lab.path(name)).version() for name in TABLES]
    log = JobLog(JobStore.open(lab.path("store")).at("fares"), "fares")
    return [*versions, [(record.lineage, record.epoch) for record in log.epochs()]]


def test_an_aggregate_is_added_and_taken_back(spark: SparkSession, tmp_path: Path) -> None:
    lab = Lab(tmp_path, spark)
    old, new = job(lab), job(lab, top=tm.max("fare"))
    lab.run(old, max_epochs=1)
    tm.savepoints_of(old).take("before")
    first: Rows = {("a", 1): (4, "-"), ("b", 2): (0, "-")}
    assert newest(lab) == first
    before = stored(lab)

    # Decimals are beyond the graph, so only Spark tells; from a savepoint and without one nothing is written before.
    wrong = job(lab, "total=CAST(total AS DECIMAL(20, 2)) * 2", top=tm.max("fare"))
    assert tm.check(wrong).fits
    for restore in (None, Restore("before")):
        with pytest.raises(SinkError, match=r"'panes' does not fit .*'total' is DECIMAL.* 'newest' does not fit") as raised:
            lab.run(wrong, restore=restore)
        assert raised.value.job == "fares"
        assert "cast it to BIGINT" in raised.value.fix
        assert stored(lab) == before

    found = tm.check(new, "before")
    assert found.status == "migrates"
    assert [each.findings[0].what for each in found.outputs] == ["the table gets column 'top' (BIGINT)"] * 2
    lab.run(new, max_epochs=1, restore=Restore("before"))
    assert newest(lab) == {("a", 1): (7, 3), ("b", 2): (0, None), ("a", 5): (2, None)}
    panes = [(row["total"], row["top"]) for row in DeltaTable(lab.path("panes")).to_pyarrow_table().to_pylist()]
    assert sorted(panes, key=str) == [(0, None), (2, None), (4, None), (7, 3)]

    # Rows without a column of the table leave those of others as they are, also in files that are written anew.
    less = job(lab, "-total", top=tm.max("fare"))
    assert any("'total' is null from now on" in finding.what for finding in tm.check(less).outputs[1].findings)
    lab.run(less)
    assert newest(lab) == {("a", 1): (None, 9), ("b", 2): (0, None), ("a", 5): (2, None), ("c", 6): (None, 1)}

    tm.rewind(old, "before")
    assert newest(lab) == first
    assert all("top" not in columns(lab, name) for name in TABLES)
    lab.run(old)
    assert newest(lab) == {("a", 1): (16, "-"), ("b", 2): (0, "-"), ("a", 5): (2, "-"), ("c", 6): (1, "-")}
    assert DeltaTable(lab.path("panes")).to_pyarrow_table()["total"].to_pylist().count(16) == 1


def test_a_folder_of_files_is_refused_before_the_first_epoch(spark: SparkSession, tmp_path: Path) -> None:
    lab = Lab(tmp_path, spark)
    lab.run(job(lab, kind="parquet"), max_epochs=1)
    more = job(lab, kind="parquet", top=tm.max("fare"))
    assert not tm.check(more).fits
    with pytest.raises(SinkError, match=r"'folder' does not fit the files in .*the folder lacks column 'top'") as raised:
        lab.run(more)
    assert "Delta table" in raised.value.fix
    assert len(lab.run(job(lab, kind="parquet")).epochs) == 2


def test_another_jobs_table_stays_as_it_is_also_after_epochs_without_rows_for_it(spark: SparkSession, tmp_path: Path) -> None:
    lab, other = Lab(tmp_path, spark), Lab(tmp_path, spark, "other")
    lab.run(job(lab), max_epochs=1)
    before = stored(lab)
    trips = other.source([("c", 6 * HOUR, 1)], [("c", 9 * HOUR, 1)])
    mistaken = other.job(mine=tm.delta(other.hourly(trips, total=tm.sum("fare"), rides=tm.count()), lab.path("panes")))
    first = other.run(mistaken, max_epochs=1)
    assert first.epochs[0].outputs["mine"].rows == 0
    with pytest.raises(SinkError, match=r"'mine' does not fit the table .*lacks column 'rides'"):
        other.run(mistaken)
    assert stored(lab) == before

"""Savepoints that are made: from a history, and from others with operators changed."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import tidemark as tm
from tests.engine.lab import NOW, elements
from tests.engine.test_sessions import put_off
from tests.state_processor.operators import AFTER, BEFORE, MINUTE, RIDES, Lab, first_aggregates, operators
from tidemark.errors import CorruptStoreError, DefinitionError, UserCodeError
from tidemark.savepoints.core.savepoint_store import SavepointStore
from tidemark.savepoints.export.importing import import_savepoint
from tidemark.savepoints.model.restore import Restore
from tidemark.spark.operators.session.session_deferral import DEFERRED
from tidemark.spark.state_api.savepoint_writer import SavepointWriter
from tidemark.state.store.store import JobStore
from tidemark.testing.manual_clock import ManualClock

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

REACHED = 101 * MINUTE - 5 * MINUTE - 1
"""The watermark after the first two files."""


def without_index(rows: list[dict[str, object]]) -> list[dict[str, object]]:
    """Return panes without their numbers: a history is one epoch, and so has other early panes."""
    return [{name: value for name, value in row.items() if name not in {"pane_index", "panes"}} for row in rows]


@pytest.fixture(scope="module")
def world(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Lab:
    lab = Lab(spark, tmp_path_factory.mktemp("world") / "lab")
    lab.folder.mkdir()
    lab.land(0)
    lab.land(1)
    lab.run(lab.job("job", changed=False))
    shutil.copytree(lab.folder, lab.folder.with_name("kept"))
    return lab


@pytest.fixture
def ran(world: Lab) -> Lab:
    """The job with all operators after the first two files, each time as it was then."""
    shutil.rmtree(world.folder)
    shutil.copytree(world.folder.with_name("kept"), world.folder)
    return world


@pytest.mark.slow
def test_state_from_a_history_is_what_running_over_it_leaves(ran: Lab, spark: SparkSession, tmp_path: Path) -> None:
    ran.land(2)
    wanted = ran.run(ran.job("job", changed=False), end_of_input=True)

    lab = Lab(spark, tmp_path)
    lab.land(2)
    job = lab.job("job", changed=False)
    history = spark.createDataFrame([(r["k"], r["t"], r["v"]) for rides in RIDES[:2] for r in rides], BEFORE)
    made = tm.new_savepoint(f"{tmp_path}/made", job, spark=spark)
    for uid in job.outputs:
        made.bootstrap(job, uid, history, time="t", watermark=REACHED)
    with pytest.raises(DefinitionError, match="state of 'count' already"):
        made.bootstrap(job, "count", history, time="t")
    folder = made.write("from-history")
    import_savepoint(SavepointStore(JobStore.open(str(tmp_path / "store")), "job"), folder)
    found = lab.run(job, restore=Restore("from-history"), end_of_input=True)
    for uid, rows in wanted.items():
        assert without_index(found[uid]) == without_index(rows), uid


def test_a_history_that_lacks_a_column_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    job = Lab(spark, tmp_path).job("job", changed=True)
    made = tm.new_savepoint(f"{tmp_path}/made", job, spark=spark)
    with pytest.raises(DefinitionError, match="no column 'c'"):
        made.bootstrap(job, "tumbling", spark.createDataFrame([("a", 1, 2)], BEFORE), time="t")
    with pytest.raises(DefinitionError, match="no operator 'absent'"):
        made.bootstrap(job, "absent", spark.createDataFrame([("a", 1, 2, 3)], AFTER), time="t")
    (tmp_path / "made" / "other").write_text("not ours")
    with pytest.raises(DefinitionError, match="is not empty"):
        tm.new_savepoint(f"{tmp_path}/made", job, spark=spark)


def files_of(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def rows_of(frame: DataFrame) -> list[dict[str, Any]]:
    return sorted(frame.toArrow().to_pylist(), key=repr)


@pytest.mark.slow
def test_a_changed_copy(ran: Lab, spark: SparkSession, tmp_path: Path) -> None:
    job = ran.job("job", changed=False)
    files = files_of(ran.folder)
    stored = tm.savepoint(job)

    def doubled(rows: DataFrame) -> DataFrame:
        return rows.selectExpr("* EXCEPT (total__sum)", "total__sum * 2 AS total__sum")

    def negative(rows: DataFrame) -> DataFrame:
        return rows.withColumn("v", -rows["v"])

    writer = tm.changed_savepoint(f"{tmp_path}/changed", stored, spark=spark)
    writer.filter("tumbling", "k = 'a'").filter("listed", "k IS NULL OR k = 'b'").filter("purging", "k IS NULL").filter("late", "m = 0")
    writer.map("late", doubled).map("session", lambda rows: rows.where("k = 'b'"))
    writer.remove("count").rename("sliding", "everything").map("purging-session", negative)
    check_refusals(writer)
    folder = writer.write("changed")

    found = tm.savepoint(folder)
    assert set(found.operators) == (set(stored.operators) - {"count", "sliding"}) | {"everything"}
    assert (found.offsets, found.watermarks["late"]) == (stored.offsets, stored.watermarks["late"])
    before, after = ({uid: rows_of(each.read_window(uid, spark)) for uid in each.operators} for each in (stored, found))
    expected: Mapping[str, list[dict[str, Any]]] = {
        **before,
        "tumbling": [row for row in before["tumbling"] if row["k"] == "a"],
        "listed": [row for row in before["listed"] if row["k"] != "a"],
        "purging": before["purging"],
        "session": [row for row in before["session"] if row["k"] == "b"],
        "late": [{**row, "total": twice(row["total"]), "total__sum": twice(row["total__sum"])} for row in before["late"] if row["m"] == 0],
        "everything": before["sliding"],
    }
    for uid, rows in after.items():
        if uid != "purging-session":
            assert rows == sorted(expected[uid], key=repr), uid
    elements = rows_of(found.read_elements("purging-session", spark))
    changed = [{**row, "v": -row["v"]} for row in rows_of(stored.read_elements("purging-session", spark))]
    assert elements == sorted(changed, key=repr)
    # What it was made from is as it was.
    assert files_of(ran.folder) == files

    # A job goes on from it, without the operator that was removed.
    import_savepoint(SavepointStore(JobStore.open(str(tmp_path / "store")), "job"), folder)
    streams = operators(ran.rides(BEFORE), first_aggregates())
    kept = {uid: streams[uid] for uid in ("late", "session", "listed")}
    tm.run(
        tm.Job(
            "job",
            outputs={uid: tm.memory(stream, f"{tmp_path}/again/{uid}") for uid, stream in kept.items()},
            store=str(tmp_path / "store"),
        ),
        spark=spark,
        restore=Restore("changed", allow_non_restored_state=True),
        end_of_input=True,
        handle_signals=False,
    )
    panes = tm.memory_table(f"{tmp_path}/again/session")
    assert panes is not None
    assert [(row["k"], row["n"], row["window_start"].minute) for row in panes.to_pylist()] == [("b", 1, 40)]


def check_refusals(writer: SavepointWriter) -> None:
    with pytest.raises(UserCodeError, match="lost the column 'n__count'"):
        writer.map("late", lambda rows: rows.drop("n__count"))
    with pytest.raises(UserCodeError, match="made 'n__count' a string"):
        writer.map("late", lambda rows: rows.withColumn("n__count", rows["m"].cast("string")))
    with pytest.raises(UserCodeError, match="the function failed: AnalysisException"):
        writer.map("late", lambda rows: rows.withColumn("n__count", rows["k"]))
    # How many elements a window holds is kept beside them.
    with pytest.raises(CorruptStoreError, match=r"rows of state became .*'listed'.*Fix: .*it must return one row for each"):
        writer.map("listed", lambda rows: rows.where("v > 4"))
    with pytest.raises(DefinitionError, match=r"'k = 1' cannot be used.*keys of 'late': m"):
        writer.filter("late", "k = 1")
    for name in ("absent", "count"):
        with pytest.raises(DefinitionError, match=f"no state of '{name}'"):
            writer.remove(name)
    with pytest.raises(DefinitionError, match="state of 'late' already"):
        writer.rename("tumbling", "late")


def twice(value: int | None) -> int | None:
    return None if value is None else 2 * value


def test_what_sessions_put_off_is_changed_too(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put_off(monkeypatch)
    source = elements([("a", 0, 1), ("z", 1, 1)], [("a", 5, 2)], [("z", 6, 2)], schema="k STRING, t BIGINT, v BIGINT")
    sums = source.key_by("k").window(tm.session("10 ms")).aggregate(total=tm.sum("v")).uid("s")
    job = tm.Job("job", outputs={"s": tm.memory(sums, f"{tmp_path}/s")}, store=str(tmp_path / "store"))
    tm.run(job, spark=spark, clock=ManualClock(NOW), handle_signals=False)
    stored = tm.savepoint(job)
    assert any(file.part == DEFERRED for file in stored.record.operators["s"].files)
    writer = tm.changed_savepoint(f"{tmp_path}/changed", stored, spark=spark)
    folder = writer.map("s", lambda rows: rows.withColumn("total__sum", rows["total__sum"] * 2)).write()
    found = tm.savepoint(folder).read_window("s", spark).collect()
    assert {row["k"]: row["total"] for row in found} == {"a": 6, "z": 6}

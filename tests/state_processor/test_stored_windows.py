"""State of windows as tables: it is what their panes will show, what a history of elements makes, and what copies of it may change."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

import tidemark as tm
from tests.state_processor.operators import BEFORE, HOUR, MINUTE, RIDES, Lab, add, first_aggregates, nothing, operators, same
from tidemark.cli.program.main import main
from tidemark.errors import CorruptStoreError, DefinitionError, StateMismatchError, UserCodeError
from tidemark.savepoints.core.savepoint_store import SavepointStore
from tidemark.savepoints.export.importing import import_savepoint
from tidemark.savepoints.model.restore import Restore
from tidemark.spark.state_api.savepoint_writer import SavepointWriter
from tidemark.spark.state_api.state_processor import first_rows, savepoint
from tidemark.state.store.store import JobStore

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

REACHED = 101 * MINUTE - 5 * MINUTE - 1
"""The watermark after the first two files."""


OPEN = ("tumbling", "late", "sliding", "session", "triggered", "triggered-session")
"""Operators whose windows' next panes hold all that they keep, none of which has been emptied."""


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
def kept(world: Lab) -> Path:
    """The store as it was then."""
    return world.folder.with_name("kept") / "store"


@pytest.fixture
def ran(world: Lab) -> Lab:
    """The job with all operators after the first two files, each time as it was then."""
    shutil.rmtree(world.folder)
    shutil.copytree(world.folder.with_name("kept"), world.folder)
    return world


@pytest.mark.slow
def test_state_is_what_the_next_panes_show(ran: Lab, spark: SparkSession) -> None:
    job = ran.job("job", changed=False)
    found = savepoint("job", store=str(ran.folder / "store"))
    assert (found.job, found.epoch, list(found.sources)) == ("job", 1, ["rides"])
    assert found.watermarks["tumbling"] == REACHED
    assert found.operators["listed"].keeps == "elements"
    assert found.operators["purging-session"].keeps == "elements"
    assert (found.operators["late"].keys, found.operators["late"].aggregates[0]) == (("m",), "n")
    stored = {uid: found.read_window(uid, spark).toArrow().to_pylist() for uid in found.operators}

    # Nothing more comes: the panes at the end of input are made of what was stored, and nothing else.
    panes = ran.run(job, end_of_input=True)
    for uid in OPEN:
        shown = {identity(row): values(row) for row in stored[uid]}
        fired = {identity(row): values(row) for row in panes[uid]}
        assert len(shown) == len(stored[uid]), uid
        assert fired.items() <= shown.items(), uid
        gone = [row for row in shown if row not in fired]
        # What is there besides has had its pane, and waits for late elements.
        assert not gone or uid in {"late", "session"}, (uid, gone)

    check_windows_without_bounds(stored)
    check_elements(found, spark, stored)
    check_views(found, spark)
    check_refusals(found, spark)


def identity(row: Mapping[str, Any]) -> tuple[object, ...]:
    return row.get("k"), row.get("m"), row["window_start"], row["window_end"]


def values(row: Mapping[str, Any]) -> tuple[object, ...]:
    return tuple(row[name] for name in ("n", "low", "high", "total"))


def check_windows_without_bounds(stored: Mapping[str, list[dict[str, Any]]]) -> None:
    """Count windows: slices of what groups to come need."""
    slices = {(row["k"], row["first_element"], row["n"], row["total"]) for row in stored["count"]}
    assert slices == {("a", 2, 2, 9), ("b", 0, 2, 1), (None, 0, 1, 2)}
    assert all(row["window_start"] is None and row["window_end"] is None for row in stored["count"])
    # Panes of two elements have emptied the windows.
    assert {(row["k"], row["n"]) for row in stored["purging"]} == {(None, 1)}


def check_elements(found: Any, spark: SparkSession, stored: Mapping[str, list[dict[str, Any]]]) -> None:
    held = {(row["k"], row["window_start"].timestamp(), row["held"]) for row in stored["listed"]}
    assert held == {("a", 0, 4), ("b", 0, 2), (None, 0, 1)}
    elements = found.read_elements("listed", spark).toArrow().to_pylist()
    wanted = [ride for rides in RIDES[:2] for ride in rides]
    assert sorted((str(row["k"]), row["t"], row["v"]) for row in elements) == sorted((str(r["k"]), r["t"], r["v"]) for r in wanted)
    assert elements[0]["event_time"].timestamp() * 1000 == elements[0]["t"]
    # A purged pane's elements are stored until files are merged, and not shown.
    assert found.read_elements("purging-session", spark).count() == sum(row["held"] for row in stored["purging-session"])
    keys = found.read_keyed("listed", spark).toArrow().to_pylist()
    assert {row["k"] for row in keys} == {"a", "b", None}
    assert all(row["due"] == datetime.fromtimestamp(4 * HOUR / 1000 - 0.001, UTC) for row in keys)
    assert {row["domain"] for row in found.timers("listed", spark).toArrow().to_pylist()} == {"event"}


def check_views(found: Any, spark: SparkSession) -> None:
    names = found.register(spark)
    assert names["triggered-session"] == "state_triggered_session"
    spark.createDataFrame([("a", "Alpha")], "k STRING, name STRING").createOrReplaceTempView("zones")
    rows = spark.sql("SELECT name, sum(n) AS n FROM state_tumbling JOIN zones USING (k) GROUP BY name").collect()
    assert [tuple(row) for row in rows] == [("Alpha", 4)]
    assert [row["n"] for row in first_rows(found.read_window("sliding", spark), where="n > 5", limit=1)] == [7]
    with pytest.raises(DefinitionError, match="over the columns window_start"):
        first_rows(found.read_window("sliding", spark), where="absent > 1")


def check_refusals(found: Any, spark: SparkSession) -> None:
    refusals: tuple[tuple[Callable[[], object], str], ...] = (
        (lambda: found.read_window("absent", spark), "no state of 'absent'"),
        (lambda: found.read_elements("tumbling", spark), "keeps partial results"),
        (lambda: found.read_keyed("tumbling", spark), "keeps nothing by key"),
        (lambda: found.timers("sliding", spark), "has no timers"),
    )
    for act, says in refusals:
        with pytest.raises(StateMismatchError, match=says):
            act()


@pytest.mark.slow
def test_what_only_the_jobs_functions_can_merge_asks_for_the_job(spark: SparkSession, tmp_path: Path) -> None:
    lab = Lab(spark, tmp_path)
    for number in range(3):
        lab.land(number)
    job = lab.job("job", changed=True, only=["tumbling"])
    lab.run(job)
    rows_only = tm.source("rows", tm.from_elements([("a", 0)], schema="k STRING, t BIGINT"), watermarks=tm.ascending(timestamp="t"))
    another = tm.Job("job", {"rows": tm.memory(rows_only, "rows-only")}, store=str(tmp_path / "store"))
    for without in (savepoint("job", store=str(tmp_path / "store")), savepoint(another)):
        with pytest.raises(StateMismatchError, match=r"functions can merge the state of c_own.*pass the job"):
            without.read_window("tumbling", spark)
    rows = savepoint(job).read_window("tumbling", spark).toArrow().to_pylist()
    found = {row["k"]: (f"{row['window_start']:%H}", row["c_own"], row["c_half"] and round(row["c_half"])) for row in rows}
    assert found == {"a": ("02", 0, None), "b": ("02", 3, 3)}


def test_state_is_read_by_the_rules_that_made_it(spark: SparkSession, tmp_path: Path) -> None:
    """The job that is passed may have changed since."""
    lab = Lab(spark, tmp_path)
    lab.land(0)
    sums = tm.python_aggregate(nothing, add, add, same, arguments=["v"], state="BIGINT", returns="BIGINT")

    def job(name: str, size: str, **aggregates: tm.Aggregate) -> tm.Job:
        hours = lab.rides(BEFORE).key_by("k").window(tm.tumbling(size)).aggregate(n=tm.count(), **aggregates).uid("hours")
        return tm.Job(name, outputs={"hours": tm.memory(hours, f"{tmp_path}/{name}/hours")}, store=str(tmp_path / "store"))

    lab.run(job("plain", "2 hours"))
    changed = job("plain", "3 hours", more=tm.max("v"))
    read = {row["k"]: row for row in savepoint(changed).read_window("hours", spark).toArrow().to_pylist()}
    assert {key: (row["n"], row["window_end"].hour) for key, row in read.items()} == {None: (1, 2), "a": (2, 2), "b": (1, 2)}
    assert "more" not in read["a"]

    lab.run(job("own", "2 hours", own=sums))
    with pytest.raises(StateMismatchError, match=r"written by other code than the job's: the windows were.*pass the job as it was"):
        savepoint(job("own", "3 hours", own=sums)).read_window("hours", spark)

    # All windows are gone; the columns are those that there would be.
    lab.run(job("plain", "2 hours"), end_of_input=True)
    none = savepoint("plain", store=str(tmp_path / "store")).read_window("hours", spark)
    assert (none.count(), none.columns) == (0, ["k", "window_start", "window_end", "n", "n__count"])


def test_the_command(kept: Path) -> None:
    store = ("--store", str(kept))
    operators = CliRunner().invoke(main, ["state", "show", "job", *store])
    assert operators.exit_code == 0, operators.output
    assert "sliding" in operators.output
    assert "session gap 30m" in operators.output
    shown = CliRunner().invoke(main, ["state", "show", "job", "tumbling", *store, "--where", "n > 2", "--json"])
    assert shown.exit_code == 0, shown.output
    (row,) = [json.loads(line) for line in shown.stdout.splitlines()]
    assert (row["k"], row["n"], row["window_end"]) == ("a", 4, "1970-01-01T02:00:00+00:00")
    table = CliRunner().invoke(main, ["state", "show", "job", "listed", *store, "--elements", "--limit", "2"])
    assert table.stdout.splitlines()[0].split() == ["k", "t", "v", "event_time", "position"]
    assert len(table.stdout.splitlines()) == 3
    unknown = CliRunner().invoke(main, ["state", "show", "job", "absent", *store])
    assert (unknown.exit_code, "there is no state of 'absent'" in unknown.output) == (1, True)


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
    check_refused_changes(writer)
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


def check_refused_changes(writer: SavepointWriter) -> None:
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

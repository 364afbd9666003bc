"""Sessions over several runs, without input, and where only some of many are due."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import tidemark as tm
from tests.engine.lab import NOW, Lab, elements, run_on
from tests.engine.test_sessions import put_off
from tests.milliseconds import ms
from tests.seeds import only_long
from tidemark.spark.operators.session import session_deferral, session_epoch
from tidemark.spark.operators.session.session_state import SessionState
from tidemark.state.log.joblog import JobLog
from tidemark.state.store.store import JobStore

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

SCHEMA = "k STRING, t BIGINT"
MINUTE = 60_000
HOUR = 60 * MINUTE
Rows = list[tuple[object, ...]]


def panes_of(rows: Sequence[dict[str, object]]) -> list[tuple[object, ...]]:
    """Return panes as key, bounds, timing, index, sessions replaced, count."""

    def millis(moment: object) -> int:
        assert isinstance(moment, datetime)
        return (moment.replace(tzinfo=UTC) - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)

    found: list[tuple[object, ...]] = []
    for row in rows:
        replaces = row["replaces"]
        assert isinstance(replaces, list)
        bounds = millis(row["window_start"]), millis(row["window_end"])
        listed = tuple(tuple(map(millis, each.values())) for each in replaces)
        found.append((row["k"], *bounds, row["pane_timing"], row["pane_index"], listed, row["n"]))
    return found


def runs_with_lateness(spark: SparkSession, folder: Path, runs: Sequence[tuple[int, Sequence[Rows]]]) -> list[list[tuple[object, ...]]]:
    """Run a job again and again, each time with an allowed lateness and further epochs; return each run's panes of key ``a``."""
    lab, epochs, shown = Lab(spark, folder), list[Rows](), []
    for lateness, further in runs:
        epochs += further
        windows = elements(*epochs, schema=SCHEMA).key_by("k").window(tm.session("10 ms")).allowed_lateness(ms(lateness))
        ran = lab.run({"panes": windows.aggregate(n=tm.count()).uid("sessions")}, end_of_input=False)
        shown.append(sorted((pane for pane in panes_of(ran.rows["panes"]) if pane[0] == "a"), key=str))
    return shown


@pytest.mark.parametrize("touched", [pytest.param(False, marks=only_long), True])
def test_lateness_allowed_from_now_on(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, touched: bool) -> None:  # noqa: FBT001
    if touched:
        monkeypatch.setattr(session_epoch, "FEW_ROWS", -1)
        monkeypatch.setattr(session_epoch, "FEW_TOUCHED", 1e-4)
    first, second, third = runs_with_lateness(
        spark,
        tmp_path,
        [
            (0, [[("a", 0), ("a", 30), ("z", 12)], [("z", 35)]]),
            # What is gone does not come back: the element at 3 is late, that at 22 joins the open session alone.
            (50, [[("a", 3), ("a", 22)], [("z", 45)], [("a", 13), ("a", 40)], [("z", 70)]]),
            # What has fired is remembered as long as it is there, though nothing is accepted for it any more.
            (0, [[("a", 41)], [("a", 75), ("z", 90)]]),
        ],
    )
    assert first == [("a", 0, 10, "ON_TIME", 0, (), 1)]
    assert second == [("a", 13, 50, "ON_TIME", 1, ((22, 40),), 4), ("a", 22, 40, "ON_TIME", 0, (), 2)]
    assert third == [("a", 75, 85, "ON_TIME", 0, (), 1)]


def test_less_lateness_ends_what_the_old_one_kept(spark: SparkSession, tmp_path: Path) -> None:
    first, second = runs_with_lateness(
        spark,
        tmp_path,
        [
            (100, [[("a", 0), ("z", 40)], [("a", 5)]]),
            # 41 - 1 + 10 is beyond the session's end: it is over, and what would have joined it begins anew or is late.
            (20, [[("a", 6), ("a", 35)], [("z", 60)]]),
        ],
    )
    assert first == [("a", 0, 10, "ON_TIME", 0, (), 1), ("a", 0, 15, "LATE", 1, ((0, 10),), 2)]
    assert second == [("a", 35, 45, "ON_TIME", 0, (), 1)]


def test_what_was_put_off_is_there_when_more_lateness_is_allowed(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_off(monkeypatch)
    first, second = runs_with_lateness(
        spark,
        tmp_path,
        [
            (0, [[("a", 0), ("z", 1)], [("a", 5)], [("z", 6)]]),
            (50, [[("z", 12)], [("z", 20)], [("a", 14)], [("z", 40)]]),
        ],
    )
    records = {record.epoch: record for record in JobLog(JobStore.open(str(tmp_path / "store")).at("job"), "job").epochs()}
    waiting = [sum(file.part == session_deferral.DEFERRED for file in records[epoch].operators["sessions"].files) for epoch in range(4)]
    assert waiting[0] == waiting[3] == 0 < waiting[1] < waiting[2]
    assert first == []
    assert second == [("a", 0, 15, "ON_TIME", 0, (), 2), ("a", 0, 24, "ON_TIME", 1, ((0, 15),), 3)]


def test_sessions_close_without_input(spark: SparkSession, tmp_path: Path) -> None:
    """Each at its own time, though one file holds them all; epochs in between would be a sign of a wrong deadline."""
    strategy = tm.bounded_out_of_orderness("1 minute", timestamp="t", idle_after="5 minutes", advance_when_idle=True)
    rows: Rows = [("a", NOW - 50 * MINUTE), ("b", NOW - 30 * MINUTE), ("c", NOW)]
    panes = elements(rows, schema=SCHEMA, watermarks=strategy).key_by("k").window(tm.session("1 hour")).aggregate(n=tm.count())
    # Once the source is silent, W is a minute behind the clock.
    seen = run_on(panes.uid("sessions"), spark, tmp_path, waits=[5 * MINUTE, 6 * MINUTE, 20 * MINUTE, 30 * MINUTE])
    assert [epoch.operators["sessions"].windows_closed for epoch in seen] == [0, 0, 1, 1, 1]
    table = tm.memory_table(f"{tmp_path}/job")
    assert table is not None
    assert [row["k"] for row in table.to_pylist()] == ["a", "b", "c"]
    assert max(epoch.spark_jobs for epoch in seen[1:]) <= 3


def test_sessions_behind_a_function_close_without_input(spark: SparkSession, tmp_path: Path) -> None:
    """The first fires with the input; the epoch at 20 s fires nothing and has to find out that the second ends before the third."""
    strategy = tm.bounded_out_of_orderness("70 seconds", timestamp="t", idle_after="20 seconds", advance_when_idle=True)
    begin = NOW - HOUR
    rows: Rows = [("a", begin), ("b", begin + MINUTE), ("c", begin + 2 * MINUTE)]
    windows = elements(rows, schema=SCHEMA, watermarks=strategy).key_by("k").window(tm.session("30 seconds"))
    panes = windows.aggregate(tm.window_function(lambda found, _context: [{"m": found[0]["n"]}], "m BIGINT"), n=tm.count())
    seen = run_on(panes.uid("sessions"), spark, tmp_path, waits=[20_000, 20_000])
    assert [epoch.operators["sessions"].panes_on_time for epoch in seen] == [1, 0, 1]


def test_few_due_among_many_open(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the keys of those that may be due are looked for among all rows."""
    monkeypatch.setattr(session_epoch, "FEW_ROWS", 50)
    asked: list[bool] = []
    newest = SessionState.newest

    def noting(self: SessionState, *args: object, of: DataFrame | None = None) -> DataFrame:
        asked.append(of is not None)
        return newest(self, *args, of=of)  # type: ignore[arg-type]

    monkeypatch.setattr(SessionState, "newest", noting)
    many: Rows = [(f"k{number}", number * 10) for number in range(400)]
    # The second epoch makes a session longer that would be due in the third, which closes five others.
    epochs: list[Rows] = [many, [("k3", 400), ("z", 4000)], [("z", 4540), (None, 4540)], [("z", 4541)]]
    windows = elements(*epochs, schema=SCHEMA, watermarks=tm.bounded_out_of_orderness("4000 ms", timestamp="t")).key_by("k")
    panes = windows.window(tm.session("500 ms")).aggregate(n=tm.count()).uid("sessions")
    ran = Lab(spark, tmp_path).run({"panes": panes}, end_of_input=False)
    assert asked.count(True) >= 3, "neither absorbing nor firing looked for keys"
    assert sorted(panes_of(ran.rows["panes"]), key=str) == [
        (f"k{number}", number * 10, number * 10 + 500, "ON_TIME", 0, (), 1) for number in (0, 1, 2, 4)
    ]
    assert [epoch.operators["sessions"].panes_on_time for epoch in ran.epochs] == [0, 0, 4, 0]

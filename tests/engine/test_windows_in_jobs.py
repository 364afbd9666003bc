"""Windows in jobs of the job API: over unions, side outputs, late rows and other windows, and at both ends of the calendar."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from deltalake import DeltaTable

import tidemark as tm
from tests.engine.lab import MINUTE, Lab, Ran, elements
from tidemark.semantics.watermarks.event_time import MAX_EVENT_TIME, MIN_EVENT_TIME

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

HOUR = 60 * MINUTE


@pytest.fixture
def lab(spark: SparkSession, tmp_path: Path) -> Lab:
    return Lab(spark, tmp_path)


@pytest.fixture(scope="module")
def ran(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Ran:
    """What one job of two epochs and the end of input does with streams of their own, at each of which a test looks."""
    streams = uniting() | several() | side_outputs() | following() | nulls_in_keys() | united_with_input() | late_only()
    return Lab(spark, tmp_path_factory.mktemp("windows")).run(streams)


def uniting() -> dict[str, tm.Stream]:
    left = elements([(1, "l")], [(2 * HOUR, "l"), (5 * HOUR, "l")], schema="t BIGINT, v STRING", name="l")
    right = elements([(2, "r"), (HOUR, "r")], schema="t BIGINT, v STRING", name="r")
    counted = left.union(right).window_all(tm.tumbling("1 hour")).aggregate(n=tm.count()).uid("united-counts")
    return {"united": left.union(right), "united-counts": counted}


def test_union_takes_the_least_watermark(ran: Ran) -> None:
    assert ran.of("united", "t", "v") == sorted([(1, "l"), (2, "r"), (HOUR, "r"), (2 * HOUR, "l"), (5 * HOUR, "l")], key=str)
    assert [epoch.operators["united-counts"].watermark for epoch in ran.epochs] == [0, HOUR - 1, 2**63 - 1]
    assert sorted(ran.of("united-counts", "n")) == [1, 1, 1, 2]


def several() -> dict[str, tm.Stream]:
    late = tm.OutputTag("late_hours")
    rows = [("a", 1), ("b", HOUR - 1), ("a", 2 * HOUR)], [("a", 5), ("b", 3 * HOUR)]
    source = elements(*rows, schema="k STRING, t BIGINT", name="several")
    hours = source.key_by("k").window(tm.tumbling("1 hour")).late_to(late).aggregate(n=tm.count()).uid("hours")
    halves = source.key_by(half="t < 5").window(tm.tumbling("30 minutes")).allowed_lateness("5 hours").aggregate(n=tm.count()).uid("halves")
    everyone = source.window_all(tm.tumbling("1 hour", offset="-1 ms")).aggregate(n=tm.count()).uid("all")
    return {"hours": hours, "halves": halves, "all": everyone, "late": hours.side_output(late)}


def test_several_windows_over_one_stream(ran: Ran) -> None:
    assert ran.of("hours", "k", "n", "pane_timing") == [("a", 1, "ON_TIME"), ("a", 1, "ON_TIME"), ("b", 1, "ON_TIME"), ("b", 1, "ON_TIME")]
    assert ran.of("late", "k", "t") == [("a", 5)]
    assert ran.of("halves", "half", "n", "pane_timing", "pane_index") == [
        (False, 1, "LATE", 0),
        (False, 1, "ON_TIME", 0),
        (False, 1, "ON_TIME", 0),
        (False, 1, "ON_TIME", 0),
        (True, 1, "ON_TIME", 0),
    ]
    # With the offset of -1 ms the hours begin one earlier: b's first element is in the second one, which is late for nothing yet.
    assert ran.of("all", "n") == [1, 1, 1, 1]
    assert [epoch.operators["all"].rows_late for epoch in ran.epochs] == [0, 1, 0]


def side_outputs() -> dict[str, tm.Stream]:
    rejected, late = tm.OutputTag("rejected"), tm.OutputTag("late")
    source = elements(
        [("a", 1, 5), ("a", 2, -1), ("a", 3 * HOUR, 1), ("b", 3 * HOUR, -2)],
        [("a", 3, 9), ("b", 4, -3)],
        schema="k STRING, t BIGINT, v INT",
        name="side_outputs",
    )
    kept = source.filter("v > 0", rejects_to=rejected)
    sums = kept.key_by("k").window(tm.tumbling("1 hour")).late_to(late).aggregate(total=tm.sum("v")).uid("sums")
    refused = kept.side_output(rejected).with_columns(why="'not positive'")
    negatives = refused.key_by("k").window(tm.tumbling("1 hour")).aggregate(n=tm.count()).uid("negatives")
    missed = sums.side_output(late).select("k", missed="v * 10")
    again = sums.side_output(late).window_all(tm.tumbling("1 hour")).allowed_lateness("10 hours").aggregate(n=tm.count()).uid("again")
    return {"sums": sums, "refused": refused, "negatives": negatives, "missed": missed, "again": again}


def test_side_outputs_feed_further_operators(ran: Ran) -> None:
    assert ran.of("sums", "k", "total") == [("a", 1), ("a", 5)]
    assert ran.of("refused", "k", "v", "why") == [("a", -1, "not positive"), ("b", -2, "not positive"), ("b", -3, "not positive")]
    assert ran.of("missed", "k", "missed") == [("a", 90)]
    # The rejected row that came late is late for the window over rejected rows too.
    assert ran.of("negatives", "k", "n") == [("a", 1), ("b", 1)]
    assert ran.of("again", "n", "pane_timing") == [(1, "LATE")]


def following() -> dict[str, tm.Stream]:
    source = elements(
        [("a", 1, 2), ("b", 2, 3), ("a", HOUR, 4), ("b", 2 * HOUR + 1, 5)],
        [("a", HOUR + 5, 7), ("a", 4 * HOUR, 1)],
        schema="k STRING, t BIGINT, v INT",
        name="followed",
    )
    hourly = source.key_by("k").window(tm.tumbling("1 hour")).allowed_lateness("2 hours").aggregate(total=tm.sum("v")).uid("hourly")
    busiest = (
        hourly.filter("pane_timing = 'ON_TIME'")
        .window_all(tm.tumbling("1 hour"))
        .aggregate(best=tm.max("total"), n=tm.count())
        .uid("busiest")
    )
    daily = hourly.window_all(tm.tumbling("1 day")).aggregate(panes=tm.count()).uid("daily")
    return {"hourly": hourly, "busiest": busiest, "daily": daily}


def test_window_after_window(ran: Ran) -> None:
    assert ran.of("hourly", "k", "total", "pane_timing") == [
        ("a", 1, "ON_TIME"),
        ("a", 11, "LATE"),
        ("a", 2, "ON_TIME"),
        ("a", 4, "ON_TIME"),
        ("b", 3, "ON_TIME"),
        ("b", 5, "ON_TIME"),
    ]
    # A result's time is its window's end - 1, so that the hour after it closes with the same watermark.
    assert ran.of("busiest", "best", "n") == [(1, 1), (3, 2), (4, 1), (5, 1)]
    assert ran.of("daily", "panes") == [6]


def nulls_in_keys() -> dict[str, tm.Stream]:
    rows = [("a", None, 1), (None, None, 2), (None, 3, 3), (None, None, 4)]
    windows = elements(rows, schema="k STRING, z INT, t BIGINT", name="nulls").key_by("k", zone="z").window(tm.tumbling("1 hour"))
    return {"zones": windows.aggregate(n=tm.count(), zones=tm.count("z")).uid("zones")}


def test_nulls_in_keys_and_composite_keys(ran: Ran) -> None:
    assert ran.of("zones", "k", "zone", "n", "zones") == [("a", None, 1, 0), (None, 3, 1, 1), (None, None, 2, 0)]


def test_ingestion_time(lab: Lab) -> None:
    source = elements([("a",), ("b",)], [("a",)], schema="k STRING", watermarks=tm.ingestion_time())
    counted = source.window_all(tm.tumbling("1 hour")).aggregate(n=tm.count()).uid("w")
    ran = lab.run({"counted": counted})
    assert ran.of("counted", "n") == [3]
    assert [epoch.operators["w"].watermark for epoch in ran.epochs] == [lab.clock.now_ms() - 1] * 2 + [2**63 - 1]


def test_results_of_two_windows_united(lab: Lab) -> None:
    source = elements([("a", 1), ("b", HOUR)], [("a", 2 * HOUR)], schema="k STRING, t BIGINT")
    hours = source.key_by("k").window(tm.tumbling("1 hour")).aggregate(n=tm.count()).uid("hours")
    days = source.key_by("k").window(tm.tumbling("1 day")).aggregate(n=tm.count()).uid("days")
    together = days.union(hours)
    daily = together.window_all(tm.tumbling("1 day")).aggregate(panes=tm.count(), elements=tm.sum("n")).uid("daily")
    ran = lab.run({"both": hours.union(days), "daily": daily})
    assert ran.of("both", "k", "n") == [("a", 1), ("a", 1), ("a", 2), ("b", 1), ("b", 1)]
    assert ran.of("daily", "panes", "elements") == [(5, 6)]
    assert [epoch.outputs["both"].rows for epoch in ran.epochs] == [1, 1, 3]
    # Also where only the window behind the union reads the results.
    assert lab.run({"daily": daily}, job="alone").of("daily", "panes", "elements") == [(5, 6)]


def united_with_input() -> dict[str, tm.Stream]:
    source = elements([("a", 1), ("b", 2 * HOUR)], [("a", 3)], schema="k STRING, t BIGINT", name="own_input")
    late = tm.OutputTag("own_late")
    hours = source.key_by("k").window(tm.tumbling("1 hour")).late_to(late).aggregate(n=tm.count()).uid("own-hours")
    both = source.select("k").union(hours.select("k"), hours.side_output(late).select("k"))
    return {"own-input": both}


def test_results_united_with_their_own_input(ran: Ran) -> None:
    assert ran.of("own-input", "k") == ["a", "a", "a", "a", "b", "b"]
    assert [epoch.outputs["own-input"].rows for epoch in ran.epochs] == [3, 2, 1]


def late_only() -> dict[str, tm.Stream]:
    late = tm.OutputTag("followed_late")
    source = elements([("a", 1), ("b", 2 * HOUR)], [("a", 3)], schema="k STRING, t BIGINT", name="late_only")
    hours = source.key_by("k").window(tm.tumbling("1 hour")).late_to(late).aggregate(n=tm.count()).uid("late-hours")
    windows = hours.side_output(late).key_by("k").window(tm.tumbling("1 hour")).allowed_lateness("10 hours")
    return {"late-again": windows.aggregate(n=tm.count()).uid("late-again")}


def test_a_window_that_only_late_rows_follow(ran: Ran) -> None:
    assert ran.of("late-again", "k", "n", "pane_timing") == [("a", 1, "LATE")]
    assert [epoch.operators["late-hours"].rows_late for epoch in ran.epochs] == [0, 1, 0]


def test_windows_at_both_ends_of_the_calendar(lab: Lab) -> None:
    endless = tm.bounded_out_of_orderness("0 ms", timestamp="t", max_future_skew=None)
    source = elements([("first", MIN_EVENT_TIME)], [("last", MAX_EVENT_TIME)], schema="k STRING, t BIGINT", watermarks=endless)
    hours = source.key_by("k").window(tm.tumbling("1 hour", offset="1 ms")).aggregate(n=tm.count()).uid("hours")
    path = str(lab.folder / "hours")
    lab.run_job(tm.Job("job", outputs={"hours": tm.delta(hours, path)}, store=str(lab.folder / "store")), {})
    # The first window begins before the year 1 and the last one ends after the year 9999: instants that Python has no name for.
    table = DeltaTable(path).to_pyarrow_table().sort_by("k")
    ends = [value // 1000 for value in table.column("window_end").cast(pa.int64()).to_pylist()]
    assert ends == [MIN_EVENT_TIME + 1, MAX_EVENT_TIME + 2]
    assert DeltaTable(path).to_pyarrow_table(filters=[("k", "=", "last")]).column("n").to_pylist() == [1]

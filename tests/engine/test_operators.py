"""Each operator of the job API, run by the engine: its rows, its counts, and that rows which left do no harm further on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable

import tidemark as tm
from tests.engine.lab import MINUTE, Lab, elements
from tidemark.errors import UserCodeError
from tidemark.semantics.watermarks.event_time import MAX_EVENT_TIME, MIN_EVENT_TIME

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

pytestmark = pytest.mark.spark

HOUR = 60 * MINUTE


@pytest.fixture
def lab(spark: SparkSession, tmp_path: Path) -> Lab:
    return Lab(spark, tmp_path)


def doubled() -> Column:
    from pyspark.sql import functions as F

    return F.col("v") * 2


def positive() -> Column:
    from pyspark.sql import functions as F

    return F.col("v") > 0


def test_select_and_with_columns(lab: Lab) -> None:
    source = elements([("a", 1, 10), ("b", 2, None)], schema="k STRING, t BIGINT, v INT")
    ran = lab.run(
        {
            "selected": source.select("k", "v + 1 AS next", half="v / 2"),
            "extended": source.with_columns(v="v * 10", old="v", twice=doubled),
            "swapped": source.with_columns(t="v", v="t"),
        }
    )
    assert ran.of("selected", "k", "next", "half") == [("a", 11, 5.0), ("b", None, None)]
    assert [*ran.rows["selected"][0]] == ["k", "next", "half"]
    # Every expression sees the columns as they were before.
    assert ran.of("extended", "k", "v", "old", "twice") == [("a", 100, 10, 20), ("b", None, None, None)]
    assert ran.of("swapped", "k", "t", "v") == [("a", 10, 1), ("b", None, 2)]
    assert not any(column.startswith("__tm") for rows in ran.rows.values() for row in rows for column in row)


def test_filter_counts_and_keeps_what_it_rejects(lab: Lab) -> None:
    rejected = tm.OutputTag("rejected")
    source = elements([(1, 5), (2, -5), (3, None)], [(4, 0)], [(5, 7)], schema="t BIGINT, v INT")
    kept = source.filter("v >= 0", rejects_to=rejected).filter(positive)
    ran = lab.run({"kept": kept, "rejected": kept.side_output(rejected)})
    assert ran.of("kept", "t") == [1, 5]
    # False and null alike are rejected; rejected rows have the columns that the filter saw.
    assert ran.of("rejected", "t", "v") == [(2, -5), (3, None)]
    counts = [[(f.rows_in, f.rows_passed, f.rows_rejected) for f in epoch.filters.values()] for epoch in ran.epochs]
    assert counts == [[(3, 1, 2), (1, 1, 0)], [(1, 1, 0), (1, 0, 1)], [(1, 1, 0), (1, 1, 0)], [(0, 0, 0), (0, 0, 0)]]
    assert [filter_.rejects_to for filter_ in ran.epochs[0].filters.values()] == ["rejected", None]


def test_what_would_fail_on_rejected_rows_does_not_see_them(lab: Lab) -> None:
    zero, text = tm.OutputTag("zero"), tm.OutputTag("text")
    source = elements([(1, 4, "7"), (2, 0, "8"), (3, 2, "seven")], [(4, 0, "nine")], schema="t BIGINT, v INT, s STRING")
    kept = (
        source.filter("v <> 0", rejects_to=zero)
        .with_columns(share="8 DIV v")
        .filter("s RLIKE '^[0-9]+$'", rejects_to=text)
        .select("t", "share", number="CAST(s AS INT)")
    )
    window = kept.window_all(tm.tumbling("1 hour")).aggregate(total=tm.sum("number DIV share")).uid("w")
    ran = lab.run({"kept": kept, "window": window, "zero": kept.side_output(zero), "text": kept.side_output(text)})
    assert ran.of("kept", "t", "share", "number") == [(1, 2, 7)]
    assert ran.of("window", "total") == [3]
    assert ran.of("zero", "t", "s") == [(2, "8"), (4, "nine")]
    assert ran.of("text", "t", "share") == [(3, 4)]


def test_a_condition_does_not_see_what_an_earlier_filter_rejected(lab: Lab) -> None:
    """Spark works out beforehand what a projection has twice, or between bounds."""
    source = elements([(1, 4), (2, 0), (3, 8)], schema="t BIGINT, v INT").filter("v <> 0").with_columns(share="8 DIV v")
    conditions = ("8 DIV v > 1 AND 8 DIV v < 5", "8 DIV v BETWEEN 2 AND 4", "8 DIV v > 1")
    ran = lab.run({f"kept-{number}": source.filter(condition) for number, condition in enumerate(conditions)})
    for number, condition in enumerate(conditions):
        assert ran.of(f"kept-{number}", "t", "share") == [(1, 2)], condition


def test_an_expression_that_fails_on_good_rows_stops_the_epoch(lab: Lab) -> None:
    source = elements([(1, 4)], [(2, 0)], schema="t BIGINT, v INT")
    with pytest.raises(UserCodeError, match="DIVIDE_BY_ZERO") as raised:
        lab.run({"out": source.with_columns(share="8 DIV v")})
    assert raised.value.epoch == 1
    assert "try_" in raised.value.fix


def test_explode(lab: Lab) -> None:
    schema = "t BIGINT, items ARRAY<STRING>, fees MAP<STRING, INT>, tags STRING"
    source = elements([(1, ["x", "y"], [("toll", 3), ("tax", 1)], "p,q"), (2, [], [], None), (3, None, None, "")], schema=schema)
    ran = lab.run(
        {
            "inner": source.explode("items", as_="item"),
            "outer": source.explode("items", as_="item", outer=True),
            "entries": source.explode("fees", as_="fee").select("t", "fee.key", amount="fee.value"),
            "split": source.explode("split(tags, ',')", as_="tag").filter("tag <> ''"),
        }
    )
    assert ran.of("inner", "t", "item") == [(1, "x"), (1, "y")]
    assert ran.of("outer", "t", "item") == [(1, "x"), (1, "y"), (2, None), (3, None)]
    assert ran.of("entries", "t", "key", "amount") == [(1, "tax", 1), (1, "toll", 3)]
    assert ran.of("split", "t", "tag") == [(1, "p"), (1, "q")]


def test_exploded_rows_keep_their_event_time(lab: Lab) -> None:
    source = elements([(1, ["x", "y"]), (HOUR, ["x"])], [(3 * HOUR, [])], schema="t BIGINT, items ARRAY<STRING>")
    counted = (
        source.explode("items", as_="item").select("item").key_by("item").window(tm.tumbling("1 hour")).aggregate(n=tm.count()).uid("w")
    )
    ran = lab.run({"counted": counted}, end_of_input=False)
    assert ran.of("counted", "item", "n") == [("x", 1), ("x", 1), ("y", 1)]
    # The row without items makes none, but its time counts.
    assert ran.epochs[1].operators["w"].watermark == 3 * HOUR - 1
    assert [epoch.operators["w"].rows_in for epoch in ran.epochs] == [3, 0]


def test_what_is_made_of_one_row_stays_in_order(lab: Lab) -> None:
    def letters(row: Mapping[str, Any]) -> Iterator[dict[str, object]]:
        return ({"item": item} for item in row["items"])

    rows = elements([(1, ["c", "a", "b"]), (1, ["d"])], [(1, ["a", "c"])], schema="t BIGINT, items ARRAY<STRING>")
    streams = {"exploded": rows.explode("items", as_="item").select("item"), "mapped": rows.flat_map(letters, returns="item STRING")}
    twice = streams["mapped"].explode("array(item, upper(item))", as_="both").select(item="both")
    outputs = {}
    for name, stream in {**streams, "twice": twice}.items():
        windows = stream.window_all(tm.tumbling("1 hour"))
        made = windows.aggregate(first=tm.first("item"), last=tm.last("item"), all=tm.collect_list("item"))
        outputs[f"{name}-made"] = made.uid(f"{name}-made")
        seen = windows.process(lambda items, _context: [{"all": [item["item"] for item in items]}], returns="all ARRAY<STRING>")
        outputs[f"{name}-seen"] = seen.uid(f"{name}-seen")
    ran = lab.run(outputs)
    for name, expected in {"exploded": "cabdac", "mapped": "cabdac", "twice": "cCaAbBdDaAcC"}.items():
        assert ran.of(f"{name}-seen", "all") == [list(expected)]
        assert ran.of(f"{name}-made", "first", "last", "all") == [(expected[0], expected[-1], list(expected))]


def test_map_and_flat_map(lab: Lab) -> None:
    def shout(row: dict[str, Any]) -> dict[str, Any]:
        return {"word": row["word"].upper(), "at": row["t"]}

    def letters(row: dict[str, Any]) -> Iterator[dict[str, Any]]:
        for letter in row["word"]:
            yield {"letter": letter}

    def lengths(batch: pa.RecordBatch) -> pa.RecordBatch:
        return pa.RecordBatch.from_arrays([batch.column("word"), pc.utf8_length(batch.column("word"))], names=["word", "length"])

    source = elements([(1, "ab"), (2, "")], [(HOUR, "cab")], schema="t BIGINT, word STRING")
    spelled = source.flat_map(letters, returns="letter STRING")
    ran = lab.run(
        {
            "shouted": source.map(shout, returns="word STRING, at BIGINT"),
            "spelled": spelled,
            "measured": source.map(lengths, returns="word STRING, length INT", batches=True),
            "counted": spelled.key_by("letter").window(tm.tumbling("1 hour")).aggregate(n=tm.count()).uid("w"),
        }
    )
    assert ran.of("shouted", "word", "at") == [("", 2), ("AB", 1), ("CAB", HOUR)]
    assert ran.of("spelled", "letter") == ["a", "a", "b", "b", "c"]
    assert ran.of("measured", "word", "length") == [("", 0), ("ab", 2), ("cab", 3)]
    assert ran.of("counted", "letter", "n") == [("a", 1), ("a", 1), ("b", 1), ("b", 1), ("c", 1)]


def test_a_function_that_returns_no_row_is_named(lab: Lab) -> None:
    source = elements([(1, "ab")], schema="t BIGINT, word STRING")
    with pytest.raises(UserCodeError, match="not a row"):
        lab.run({"out": source.map(lambda row: row["word"], returns="word STRING")})
    with pytest.raises(UserCodeError, match="KeyError"):
        lab.run({"out": source.map(lambda row: {"word": row["wrod"]}, returns="word STRING")}, job="other")


def test_transform(lab: Lab) -> None:
    def twice(rows: DataFrame) -> DataFrame:
        return rows.unionAll(rows)

    source = elements([(1, 5), (2, 6)], [(HOUR, 7)], schema="t BIGINT, v INT")
    grown = source.transform(twice, columns=["t", "v"])
    ran = lab.run({"grown": grown, "sums": grown.window_all(tm.tumbling("1 hour")).aggregate(total=tm.sum("v")).uid("w")})
    assert ran.of("grown", "v") == [5, 5, 6, 6, 7, 7]
    assert ran.of("sums", "total") == [14, 22]


def test_transform_that_loses_the_time_is_refused(lab: Lab) -> None:
    source = elements([(1, 5)], schema="t BIGINT, v INT")
    with pytest.raises(UserCodeError, match="__tm_meta") as raised:
        lab.run({"out": source.transform(lambda rows: rows.select("v"), columns=["v"])})
    assert "select" in raised.value.fix
    assert raised.value.place is not None
    assert "test_operators.py" in raised.value.place


def test_split_sends_each_row_to_the_first_branch_that_takes_it(lab: Lab) -> None:
    big, even, rest = tm.OutputTag("big"), tm.OutputTag("even"), tm.OutputTag("rest")
    source = elements([(1, 100), (2, 4), (3, 5), (4, None)], [(5, 6)], [(6, 8), (7, 7)], schema="t BIGINT, v INT")
    parts = source.split({big: "v >= 100", even: "v % 2 = 0"}, otherwise=rest)
    dropping = source.split({tm.OutputTag("odd"): "v % 2 = 1"})
    evens = parts.side_output(even).window_all(tm.tumbling("1 hour")).aggregate(n=tm.count()).uid("w")
    ran = lab.run(
        {
            "big": parts.side_output(big),
            "even": parts.side_output(even).with_columns(half="v DIV 2"),
            "rest": parts.side_output(rest),
            "evens": evens,
            "odd": dropping.side_output(tm.OutputTag("odd")),
        }
    )
    assert ran.of("big", "v") == [100]
    assert ran.of("even", "v", "half") == [(4, 2), (6, 3), (8, 4)]
    assert ran.of("rest", "t") == [3, 4, 7]
    assert ran.of("odd", "v") == [5, 7]
    assert ran.of("evens", "n") == [3]
    by_input = [sorted((f.rows_in, f.rows_passed, f.rows_rejected) for f in epoch.filters.values()) for epoch in ran.epochs]
    assert by_input[0] == [(4, 1, 3), (4, 4, 0)]


def test_union_takes_the_least_watermark(lab: Lab) -> None:
    left = elements([(1, "l")], [(2 * HOUR, "l")], [(5 * HOUR, "l")], schema="t BIGINT, v STRING", name="l")
    right = elements([(2, "r")], [(HOUR, "r")], schema="t BIGINT, v STRING", name="r")
    counted = left.union(right).window_all(tm.tumbling("1 hour")).aggregate(n=tm.count()).uid("w")
    ran = lab.run({"both": left.union(right), "counted": counted})
    assert ran.of("both", "t", "v") == sorted([(1, "l"), (2, "r"), (HOUR, "r"), (2 * HOUR, "l"), (5 * HOUR, "l")], key=str)
    assert [epoch.operators["w"].watermark for epoch in ran.epochs] == [0, HOUR - 1, HOUR - 1, 2**63 - 1]
    assert sorted(ran.of("counted", "n")) == [1, 1, 1, 2]


def test_several_windows_over_one_stream(lab: Lab) -> None:
    late = tm.OutputTag("late_hours")
    source = elements([("a", 1), ("b", HOUR - 1)], [("a", 2 * HOUR)], [("a", 5), ("b", 3 * HOUR)], schema="k STRING, t BIGINT")
    hours = source.key_by("k").window(tm.tumbling("1 hour")).late_to(late).aggregate(n=tm.count()).uid("hours")
    halves = source.key_by(half="t < 5").window(tm.tumbling("30 minutes")).allowed_lateness("5 hours").aggregate(n=tm.count()).uid("halves")
    everyone = source.window_all(tm.tumbling("1 hour", offset="-1 ms")).aggregate(n=tm.count()).uid("all")
    ran = lab.run({"hours": hours, "halves": halves, "all": everyone, "late": hours.side_output(late)})
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
    assert [epoch.operators["all"].rows_late for epoch in ran.epochs] == [0, 0, 1, 0]


def test_side_outputs_feed_further_operators(lab: Lab) -> None:
    rejected, late = tm.OutputTag("rejected"), tm.OutputTag("late")
    source = elements(
        [("a", 1, 5), ("a", 2, -1)],
        [("a", 3 * HOUR, 1), ("b", 3 * HOUR, -2)],
        [("a", 3, 9), ("b", 4, -3)],
        schema="k STRING, t BIGINT, v INT",
    )
    kept = source.filter("v > 0", rejects_to=rejected)
    sums = kept.key_by("k").window(tm.tumbling("1 hour")).late_to(late).aggregate(total=tm.sum("v")).uid("sums")
    refused = kept.side_output(rejected).with_columns(why="'not positive'")
    negatives = refused.key_by("k").window(tm.tumbling("1 hour")).aggregate(n=tm.count()).uid("negatives")
    missed = sums.side_output(late).select("k", missed="v * 10")
    again = sums.side_output(late).window_all(tm.tumbling("1 hour")).allowed_lateness("10 hours").aggregate(n=tm.count()).uid("again")
    ran = lab.run({"sums": sums, "refused": refused, "negatives": negatives, "missed": missed, "again": again})
    assert ran.of("sums", "k", "total") == [("a", 1), ("a", 5)]
    assert ran.of("refused", "k", "v", "why") == [("a", -1, "not positive"), ("b", -2, "not positive"), ("b", -3, "not positive")]
    assert ran.of("missed", "k", "missed") == [("a", 90)]
    # The rejected row that came late is late for the window over rejected rows too.
    assert ran.of("negatives", "k", "n") == [("a", 1), ("b", 1)]
    assert ran.of("again", "n", "pane_timing") == [(1, "LATE")]


def test_window_after_window(lab: Lab) -> None:
    source = elements(
        [("a", 1, 2), ("b", 2, 3), ("a", HOUR, 4)],
        [("b", 2 * HOUR + 1, 5)],
        [("a", HOUR + 5, 7), ("a", 4 * HOUR, 1)],
        schema="k STRING, t BIGINT, v INT",
    )
    hourly = source.key_by("k").window(tm.tumbling("1 hour")).allowed_lateness("2 hours").aggregate(total=tm.sum("v")).uid("hourly")
    busiest = (
        hourly.filter("pane_timing = 'ON_TIME'")
        .window_all(tm.tumbling("1 hour"))
        .aggregate(best=tm.max("total"), n=tm.count())
        .uid("busiest")
    )
    daily = hourly.window_all(tm.tumbling("1 day")).aggregate(panes=tm.count()).uid("daily")
    ran = lab.run({"hourly": hourly, "busiest": busiest, "daily": daily})
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


def test_nulls_in_keys_and_composite_keys(lab: Lab) -> None:
    source = elements([("a", None, 1), (None, None, 2), (None, 3, 3), (None, None, 4)], schema="k STRING, z INT, t BIGINT")
    counted = source.key_by("k", zone="z").window(tm.tumbling("1 hour")).aggregate(n=tm.count(), zones=tm.count("z")).uid("w")
    ran = lab.run({"counted": counted})
    assert ran.of("counted", "k", "zone", "n", "zones") == [("a", None, 1, 0), (None, 3, 1, 1), (None, None, 2, 0)]


def test_sinks_alone_and_malformed_records_without_windows(lab: Lab) -> None:
    bad = tm.OutputTag("bad")
    source = elements([(1, "x"), (None, "y")], [(10**15, "z")], [(2, "w")], schema="t BIGINT, v STRING", malformed_to=bad)
    ran = lab.run({"all": source, "bad": source.side_output(bad), "again": source.select("v")})
    assert ran.of("all", "v") == ["w", "x"]
    assert ran.of("again", "v") == ["w", "x"]
    assert ran.of("bad", "raw", "reason") == [
        ('{"t":1000000000000000,"v":"z"}', "event time 't' is out of range"),
        ('{"t":null,"v":"y"}', "event time 't' is null"),
    ]
    assert [epoch.sources["e"].rows_malformed for epoch in ran.epochs] == [1, 1, 0, 0]


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


def test_results_united_with_their_own_input(lab: Lab) -> None:
    source = elements([("a", 1)], [("b", 2 * HOUR)], [("a", 3)], schema="k STRING, t BIGINT")
    late = tm.OutputTag("late")
    hours = source.key_by("k").window(tm.tumbling("1 hour")).late_to(late).aggregate(n=tm.count()).uid("hours")
    both = source.select("k").union(hours.select("k"), hours.side_output(late).select("k"))
    ran = lab.run({"both": both})
    assert ran.of("both", "k") == ["a", "a", "a", "a", "b", "b"]
    assert [epoch.outputs["both"].rows for epoch in ran.epochs] == [1, 2, 2, 1]


def test_a_window_that_only_late_rows_follow(lab: Lab) -> None:
    late = tm.OutputTag("late")
    source = elements([("a", 1)], [("b", 2 * HOUR)], [("a", 3)], schema="k STRING, t BIGINT")
    hours = source.key_by("k").window(tm.tumbling("1 hour")).late_to(late).aggregate(n=tm.count()).uid("hours")
    again = (
        hours.side_output(late).key_by("k").window(tm.tumbling("1 hour")).allowed_lateness("10 hours").aggregate(n=tm.count()).uid("again")
    )
    ran = lab.run({"again": again})
    assert ran.of("again", "k", "n", "pane_timing") == [("a", 1, "LATE")]
    assert [epoch.operators["hours"].rows_late for epoch in ran.epochs] == [0, 0, 1, 0]


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

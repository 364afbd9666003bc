"""Each operator of the job API, run by the engine: its rows, its counts, and that rows which left do no harm further on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import tidemark as tm
from tests.engine.lab import MINUTE, Lab, Ran, elements
from tidemark.errors import UserCodeError

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

pytestmark = pytest.mark.spark

HOUR = 60 * MINUTE


@pytest.fixture
def lab(spark: SparkSession, tmp_path: Path) -> Lab:
    return Lab(spark, tmp_path)


@pytest.fixture(scope="module")
def ran(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Ran:
    """What one job of two epochs and the end of input does with streams of their own, at each of which a test looks."""
    streams = projected() | dividing() | conditions() | exploding() | in_order() | mapping() | transforming() | malformed()
    return Lab(spark, tmp_path_factory.mktemp("operators")).run(streams)


def doubled() -> Column:
    from pyspark.sql import functions as F

    return F.col("v") * 2


def positive() -> Column:
    from pyspark.sql import functions as F

    return F.col("v") > 0


def projected() -> dict[str, tm.Stream]:
    source = elements([("a", 1, 10), ("b", 2, None)], schema="k STRING, t BIGINT, v INT", name="projected")
    return {
        "selected": source.select("k", "v + 1 AS next", half="v / 2"),
        "extended": source.with_columns(v="v * 10", old="v", twice=doubled),
        "swapped": source.with_columns(t="v", v="t"),
    }


def test_select_and_with_columns(ran: Ran) -> None:
    assert ran.of("selected", "k", "next", "half") == [("a", 11, 5.0), ("b", None, None)]
    assert [*ran.rows["selected"][0]] == ["k", "next", "half"]
    # Every expression sees the columns as they were before.
    assert ran.of("extended", "k", "v", "old", "twice") == [("a", 100, 10, 20), ("b", None, None, None)]
    assert ran.of("swapped", "k", "t", "v") == [("a", 10, 1), ("b", None, 2)]
    assert not any(column.startswith("__tm") for rows in ran.rows.values() for row in rows for column in row)


def test_filter_counts_and_keeps_what_it_rejects(lab: Lab) -> None:
    rejected = tm.OutputTag("rejected")
    source = elements([(1, 5), (2, -5), (3, None)], [(4, 0), (5, 7)], schema="t BIGINT, v INT")
    kept = source.filter("v >= 0", rejects_to=rejected).filter(positive)
    ran = lab.run({"kept": kept, "rejected": kept.side_output(rejected)})
    assert ran.of("kept", "t") == [1, 5]
    # False and null alike are rejected; rejected rows have the columns that the filter saw.
    assert ran.of("rejected", "t", "v") == [(2, -5), (3, None)]
    counts = [[(f.rows_in, f.rows_passed, f.rows_rejected) for f in epoch.filters.values()] for epoch in ran.epochs]
    assert counts == [[(3, 1, 2), (1, 1, 0)], [(2, 2, 0), (2, 1, 1)], [(0, 0, 0), (0, 0, 0)]]
    assert [filter_.rejects_to for filter_ in ran.epochs[0].filters.values()] == ["rejected", None]


def dividing() -> dict[str, tm.Stream]:
    zero, text = tm.OutputTag("zero"), tm.OutputTag("text")
    rows = [(1, 4, "7"), (2, 0, "8"), (3, 2, "seven")], [(4, 0, "nine")]
    source = elements(*rows, schema="t BIGINT, v INT, s STRING", name="dividing")
    kept = (
        source.filter("v <> 0", rejects_to=zero)
        .with_columns(share="8 DIV v")
        .filter("s RLIKE '^[0-9]+$'", rejects_to=text)
        .select("t", "share", number="CAST(s AS INT)")
    )
    window = kept.window_all(tm.tumbling("1 hour")).aggregate(total=tm.sum("number DIV share")).uid("shares")
    return {"divided": kept, "shares": window, "zero": kept.side_output(zero), "text": kept.side_output(text)}


def test_what_would_fail_on_rejected_rows_does_not_see_them(ran: Ran) -> None:
    assert ran.of("divided", "t", "share", "number") == [(1, 2, 7)]
    assert ran.of("shares", "total") == [3]
    assert ran.of("zero", "t", "s") == [(2, "8"), (4, "nine")]
    assert ran.of("text", "t", "share") == [(3, 4)]


CONDITIONS = ("8 DIV v > 1 AND 8 DIV v < 5", "8 DIV v BETWEEN 2 AND 4", "8 DIV v > 1")


def conditions() -> dict[str, tm.Stream]:
    given = elements([(1, 4), (2, 0), (3, 8)], schema="t BIGINT, v INT", name="conditions")
    source = given.filter("v <> 0").with_columns(share="8 DIV v")
    return {f"kept-{number}": source.filter(condition) for number, condition in enumerate(CONDITIONS)}


def test_a_condition_does_not_see_what_an_earlier_filter_rejected(ran: Ran) -> None:
    """Spark works out beforehand what a projection has twice, or between bounds."""
    for number, condition in enumerate(CONDITIONS):
        assert ran.of(f"kept-{number}", "t", "share") == [(1, 2)], condition


def test_an_expression_that_fails_on_good_rows_stops_the_epoch(lab: Lab) -> None:
    source = elements([(1, 4)], [(2, 0)], schema="t BIGINT, v INT")
    with pytest.raises(UserCodeError, match="DIVIDE_BY_ZERO") as raised:
        lab.run({"out": source.with_columns(share="8 DIV v")})
    assert raised.value.epoch == 1
    assert "try_" in raised.value.fix


def exploding() -> dict[str, tm.Stream]:
    schema = "t BIGINT, items ARRAY<STRING>, fees MAP<STRING, INT>, tags STRING"
    rows = [(1, ["x", "y"], [("toll", 3), ("tax", 1)], "p,q"), (2, [], [], None), (3, None, None, "")]
    source = elements(rows, schema=schema, name="exploding")
    return {
        "inner": source.explode("items", as_="item"),
        "outer": source.explode("items", as_="item", outer=True),
        "entries": source.explode("fees", as_="fee").select("t", "fee.key", amount="fee.value"),
        "split": source.explode("split(tags, ',')", as_="tag").filter("tag <> ''"),
    }


def test_explode(ran: Ran) -> None:
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


def in_order() -> dict[str, tm.Stream]:
    def letters(row: Mapping[str, Any]) -> Iterator[dict[str, object]]:
        return ({"item": item} for item in row["items"])

    rows = elements([(1, ["c", "a", "b"]), (1, ["d"])], [(1, ["a", "c"])], schema="t BIGINT, items ARRAY<STRING>", name="in_order")
    streams = {"exploded": rows.explode("items", as_="item").select("item"), "mapped": rows.flat_map(letters, returns="item STRING")}
    twice = streams["mapped"].explode("array(item, upper(item))", as_="both").select(item="both")
    outputs = {}
    for name, stream in {**streams, "twice": twice}.items():
        windows = stream.window_all(tm.tumbling("1 hour"))
        made = windows.aggregate(first=tm.first("item"), last=tm.last("item"), all=tm.collect_list("item"))
        outputs[f"{name}-made"] = made.uid(f"{name}-made")
        seen = windows.process(lambda items, _context: [{"all": [item["item"] for item in items]}], returns="all ARRAY<STRING>")
        outputs[f"{name}-seen"] = seen.uid(f"{name}-seen")
    return outputs


def test_what_is_made_of_one_row_stays_in_order(ran: Ran) -> None:
    for name, expected in {"exploded": "cabdac", "mapped": "cabdac", "twice": "cCaAbBdDaAcC"}.items():
        assert ran.of(f"{name}-seen", "all") == [list(expected)]
        assert ran.of(f"{name}-made", "first", "last", "all") == [(expected[0], expected[-1], list(expected))]


def mapping() -> dict[str, tm.Stream]:
    def shout(row: dict[str, Any]) -> dict[str, Any]:
        return {"word": row["word"].upper(), "at": row["t"]}

    def letters(row: dict[str, Any]) -> Iterator[dict[str, Any]]:
        for letter in row["word"]:
            yield {"letter": letter}

    def lengths(batch: pa.RecordBatch) -> pa.RecordBatch:
        return pa.RecordBatch.from_arrays([batch.column("word"), pc.utf8_length(batch.column("word"))], names=["word", "length"])

    source = elements([(1, "ab"), (2, "")], [(HOUR, "cab")], schema="t BIGINT, word STRING", name="words")
    spelled = source.flat_map(letters, returns="letter STRING")
    return {
        "shouted": source.map(shout, returns="word STRING, at BIGINT"),
        "spelled": spelled,
        "measured": source.map(lengths, returns="word STRING, length INT", batches=True),
        "letters": spelled.key_by("letter").window(tm.tumbling("1 hour")).aggregate(n=tm.count()).uid("letters"),
    }


def test_map_and_flat_map(ran: Ran) -> None:
    assert ran.of("shouted", "word", "at") == [("", 2), ("AB", 1), ("CAB", HOUR)]
    assert ran.of("spelled", "letter") == ["a", "a", "b", "b", "c"]
    assert ran.of("measured", "word", "length") == [("", 0), ("ab", 2), ("cab", 3)]
    assert ran.of("letters", "letter", "n") == [("a", 1), ("a", 1), ("b", 1), ("b", 1), ("c", 1)]


def test_a_function_that_returns_no_row_is_named(lab: Lab) -> None:
    source = elements([(1, "ab")], schema="t BIGINT, word STRING")
    with pytest.raises(UserCodeError, match="not a row"):
        lab.run({"out": source.map(lambda row: row["word"], returns="word STRING")})
    with pytest.raises(UserCodeError, match="KeyError"):
        lab.run({"out": source.map(lambda row: {"word": row["wrod"]}, returns="word STRING")}, job="other")


def transforming() -> dict[str, tm.Stream]:
    def twice(rows: DataFrame) -> DataFrame:
        return rows.unionAll(rows)

    source = elements([(1, 5), (2, 6)], [(HOUR, 7)], schema="t BIGINT, v INT", name="grown")
    grown = source.transform(twice, columns=["t", "v"])
    return {"grown": grown, "grown-sums": grown.window_all(tm.tumbling("1 hour")).aggregate(total=tm.sum("v")).uid("grown-sums")}


def test_transform(ran: Ran) -> None:
    assert ran.of("grown", "v") == [5, 5, 6, 6, 7, 7]
    assert ran.of("grown-sums", "total") == [14, 22]


def test_transform_that_loses_the_time_is_refused(lab: Lab) -> None:
    source = elements([(1, 5)], schema="t BIGINT, v INT")
    with pytest.raises(UserCodeError, match="__tm_meta") as raised:
        lab.run({"out": source.transform(lambda rows: rows.select("v"), columns=["v"])})
    assert "select" in raised.value.fix
    assert raised.value.place is not None
    assert "test_operators.py" in raised.value.place


def test_split_sends_each_row_to_the_first_branch_that_takes_it(lab: Lab) -> None:
    big, even, rest = tm.OutputTag("big"), tm.OutputTag("even"), tm.OutputTag("rest")
    source = elements([(1, 100), (2, 4), (3, 5), (4, None)], [(5, 6), (6, 8), (7, 7)], schema="t BIGINT, v INT")
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


def malformed() -> dict[str, tm.Stream]:
    bad, rows = tm.OutputTag("bad"), ([(1, "x"), (None, "y")], [(10**15, "z"), (2, "w")])
    source = elements(*rows, schema="t BIGINT, v STRING", malformed_to=bad, name="malformed")
    return {"good": source, "bad": source.side_output(bad), "good-again": source.select("v")}


def test_sinks_alone_and_malformed_records_without_windows(ran: Ran) -> None:
    assert ran.of("good", "v") == ["w", "x"]
    assert ran.of("good-again", "v") == ["w", "x"]
    assert ran.of("bad", "raw", "reason") == [
        ('{"t":1000000000000000,"v":"z"}', "event time 't' is out of range"),
        ('{"t":null,"v":"y"}', "event time 't' is null"),
    ]
    assert [epoch.sources["malformed"].rows_malformed for epoch in ran.epochs] == [1, 1, 0]

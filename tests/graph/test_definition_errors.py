"""Everything that can be wrong in a definition: the class of the error, the names in it, the user's line, and the fix."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

import tidemark as tm
from tidemark.errors import ColumnError, DefinitionError, DurationError, ExpressionError, InvalidNameError, TidemarkError
from tidemark.graph.model.aggregates import Aggregate, Partial
from tidemark.semantics.watermarks.watermarks import WatermarkStrategy

TRIP = "zone INT, pickup_at TIMESTAMP, fare DOUBLE, note STRING, stops ARRAY<STRING>, place STRUCT<lat: DOUBLE, lon: DOUBLE>"
LATE = tm.OutputTag("late")
COUNT = Aggregate("count", (), (Partial("n", "count(1)", "sum({n})"),), "{n}")
HOUR = tm.tumbling("1 hour")


def total(expression: str) -> Aggregate:
    return Aggregate("sum", (expression,), (Partial("s", f"sum({expression})", "sum({s})"),), "{s}")


def own(create: str) -> Aggregate:
    return Aggregate("sql", (), (Partial("x", create, "sum({x})"),), "{x}")


def timed(timestamp: str = "pickup_at") -> WatermarkStrategy:
    return tm.bounded_out_of_orderness("5 minutes", timestamp=timestamp)


def trips(name: str = "trips", **settings: Any) -> tm.Stream:
    return tm.source(name, tm.files("landing", format="json", schema=TRIP), **{"watermarks": timed(), **settings})


def hourly(stream: tm.Stream | None = None) -> tm.WindowedStream:
    return (trips() if stream is None else stream).key_by("zone").window(HOUR)


def job(*streams: tm.Stream, **settings: Any) -> tm.Job:
    return tm.Job("taxi", outputs={f"out{i}": tm.delta(stream, f"tables/{i}") for i, stream in enumerate(streams)}, **settings)


def wrong(value: object) -> Any:
    """Pass for any type, as a caller without a type checker would."""
    return value


def late_from_before_the_uid() -> tm.Job:
    windowed = hourly().late_to(LATE).aggregate(n=COUNT)
    return job(windowed.uid("w"), windowed.side_output(LATE))


def one_uid_twice() -> tm.Job:
    stream = trips()
    return job(stream.filter("fare > 0").uid("x"), stream.filter("fare > 1").uid("x"))


def one_tag_twice() -> tm.Job:
    stream = trips()
    return job(stream.filter("fare > 0", rejects_to=LATE), stream.filter("fare > 1", rejects_to=LATE))


def max_of_two(one: float, other: float) -> float:
    return max(one, other)


class Unfinished:
    """A watermark generator that lacks most of what one needs."""

    bound_ms = 0


@dataclass(frozen=True)
class Case:
    build: Callable[[], object]
    error: type[TidemarkError]
    says: tuple[str, ...]
    fix: str


MALFORMED = tm.OutputTag("bad")

CASES = {
    # names
    "source name": Case(lambda: trips("my trips"), InvalidNameError, ("source", "'my trips'"), "letters, digits"),
    "source name with a path": Case(lambda: trips("../trips"), InvalidNameError, ("'../trips'",), "letters, digits"),
    "job name with a path": Case(
        lambda: tm.Job("../x", outputs={"a": tm.delta(trips(), "t")}), InvalidNameError, ("job", "'../x'"), "letters"
    ),
    "output name": Case(lambda: tm.Job("taxi", outputs={"a/b": tm.delta(trips(), "t")}), InvalidNameError, ("output", "'a/b'"), "letters"),
    "uid": Case(lambda: trips().filter("fare > 0").uid("a b"), InvalidNameError, ("uid", "'a b'"), "letters"),
    "uid with dots": Case(lambda: trips().filter("fare > 0").uid("a..b"), InvalidNameError, ("'a..b'",), "without '..'"),
    "tag name": Case(lambda: trips().filter("fare > 0", rejects_to=tm.OutputTag("")), InvalidNameError, ("output tag", "''"), "letters"),
    "tag as text": Case(
        lambda: trips().filter("fare > 0", rejects_to=wrong("no")), DefinitionError, ("rejects_to", "'no'"), "tm.OutputTag('no')"
    ),
    "uid of a source": Case(lambda: trips().uid("x"), DefinitionError, ("'trips'", "no uid"), "leave .uid"),
    "uid of a side output": Case(
        lambda: trips(malformed_to=MALFORMED).side_output(MALFORMED).uid("x"), DefinitionError, ("'bad'",), "operator that emits it"
    ),
    # durations
    "bad window size": Case(lambda: tm.tumbling("1 fortnight"), DurationError, ("size", "'1 fortnight'"), "whole number and a unit"),
    "window of no size": Case(lambda: tm.tumbling("0 seconds"), DurationError, ("size", "positive"), "whole number"),
    "offset beyond size": Case(lambda: tm.tumbling("1 hour", offset="2 hours"), DurationError, ("offset='2h'", "1h, either way"), "modulo"),
    "negative lateness": Case(lambda: hourly().allowed_lateness("-1 second"), DurationError, ("allowed_lateness",), "whole number"),
    "lateness without unit": Case(lambda: hourly().allowed_lateness("10"), DurationError, ("'10'",), "unit"),
    "negative bound": Case(lambda: tm.bounded_out_of_orderness("-5 minutes", timestamp="t"), DurationError, ("bound",), "whole number"),
    "no idle time": Case(lambda: tm.ascending(timestamp="t", idle_after="0 ms"), DurationError, ("idle_after",), "whole number"),
    "negative skew": Case(
        lambda: tm.ascending(timestamp="t", max_future_skew="-1 ms"), DurationError, ("max_future_skew",), "whole number"
    ),
    "advance without idleness": Case(
        lambda: tm.ascending(timestamp="t", advance_when_idle=True), DefinitionError, ("advance_when_idle",), "idle_after"
    ),
    # SQL
    "unparsable filter": Case(
        lambda: trips().filter("fare >= "), ExpressionError, ("filter condition 'fare >= '", "line 1, column 6"), "correct the SQL"
    ),
    "unclosed text": Case(
        lambda: trips().filter("note = 'x"), ExpressionError, ("filter condition", "cannot be parsed"), "correct the SQL"
    ),
    "empty filter": Case(lambda: trips().filter(" "), ExpressionError, ("filter condition", "nothing in it"), "correct the SQL"),
    "statement": Case(lambda: trips().filter("drop table x"), ExpressionError, ("'drop table x'",), "one SQL expression"),
    "two statements": Case(lambda: trips().filter("fare > 0; fare < 9"), ExpressionError, ("fare < 9",), "one SQL expression"),
    "missing operator": Case(
        lambda: trips().with_columns(x="fare zone"),
        ExpressionError,
        ("with_columns column 'x' = 'fare zone'", "alias"),
        "one SQL expression",
    ),
    "subquery": Case(lambda: trips().filter("zone in (select 1)"), ExpressionError, ("subquery",), "one SQL expression"),
    "star": Case(lambda: trips().with_columns(x="to_json(struct(*))"), ExpressionError, ("star",), "one SQL expression"),
    "parameter": Case(lambda: trips().filter("fare > :limit"), ExpressionError, ("parameter",), "one SQL expression"),
    "aggregate in a row": Case(
        lambda: trips().with_columns(x="fare / sum(fare)"), ExpressionError, ("aggregate 'sum'",), ".aggregate(...)"
    ),
    "unlisted aggregate": Case(lambda: trips().with_columns(x="try_sum(fare)"), ExpressionError, ("aggregate 'try_sum'",), ".aggregate("),
    "window function": Case(
        lambda: trips().with_columns(x="row_number() over (order by fare)"), ExpressionError, ("window function",), ".window("
    ),
    "window function without over": Case(lambda: trips().with_columns(x="lag(fare)"), ExpressionError, ("'lag'",), ".window("),
    "generator in select": Case(lambda: trips().select(x="explode(stops)"), ExpressionError, ("generator 'explode'",), ".explode('items'"),
    "time window function": Case(lambda: trips().select(w="window(pickup_at, '1 hour')"), ExpressionError, ("'window'",), "tm.tumbling"),
    "neither text nor function": Case(lambda: trips().filter(wrong(True)), ExpressionError, ("True",), "lambda"),
    "deferred with argument": Case(lambda: trips().filter(wrong(lambda df: df)), ExpressionError, ("takes arguments",), ".transform(...)"),
    "filter on a number": Case(lambda: trips().filter("fare + 1"), ExpressionError, ("DOUBLE", "not BOOLEAN"), "fare_amount >= 0"),
    "column without name": Case(lambda: trips().select("fare * 2"), ExpressionError, ("'fare * 2'", "no name"), "'fare * 2 AS name'"),
    "select star": Case(lambda: trips().select("*"), ExpressionError, ("'*'",), ".with_columns(...)"),
    "timestamp of another type": Case(
        lambda: trips(watermarks=timed("fare")), ExpressionError, ("timestamp of source 'trips'", "DOUBLE"), "TRY_CAST(fare AS TIMESTAMP)"
    ),
    "marker unparsable": Case(
        lambda: trips(watermarks=tm.punctuated("fare >", timestamp="pickup_at")),
        ExpressionError,
        ("watermark marker of source 'trips' = 'fare >'",),
        "correct the SQL",
    ),
    # columns
    "unknown column": Case(
        lambda: trips().filter("fair > 0"), ColumnError, ("'fair'", "did you mean 'fare'?", "zone, pickup_at"), "'fare'"
    ),
    "unknown in select": Case(lambda: trips().select("zoen"), ColumnError, ("'zoen'", "select"), "'zone'"),
    "unknown nested": Case(lambda: trips().select(x="palce.lat"), ColumnError, ("'palce'",), "'place'"),
    "unknown after select": Case(
        lambda: trips().select("zone").filter("fare > 0"), ColumnError, ("'fare'", "columns are: zone"), "add it before"
    ),
    "unknown key": Case(lambda: trips().key_by("zon").window(HOUR).aggregate(n=COUNT), ColumnError, ("key 'zon'",), "'zone'"),
    "unknown in an aggregate": Case(
        lambda: hourly().aggregate(tips=total("tip")), ColumnError, ("aggregate 'tips'", "'tip'"), "add it before"
    ),
    "unknown in own SQL": Case(lambda: hourly().aggregate(x=own("sum(fares)")), ColumnError, ("'fares'",), "'fare'"),
    "unknown timestamp": Case(lambda: trips(watermarks=timed("pickup")), ColumnError, ("timestamp of source 'trips'",), "'pickup_at'"),
    "unknown split column": Case(
        lambda: trips(watermarks=tm.ascending(timestamp="pickup_at", split_by="vendor")), ColumnError, ("split_by", "'vendor'"), "add it"
    ),
    "unknown in malformed": Case(
        lambda: trips(malformed_to=MALFORMED).side_output(MALFORMED).filter("fare > 0"), ColumnError, ("raw, reason",), "add it before"
    ),
    "reserved column": Case(lambda: trips().with_columns(__tm_time="1"), InvalidNameError, ("'__tm_time'",), "another name"),
    "reserved source column": Case(
        lambda: tm.source("s", tm.files("x", format="json", schema="__tm_a INT"), watermarks=tm.ingestion_time()),
        InvalidNameError,
        ("'__tm_a'", "source 's'"),
        "another name",
    ),
    "column twice": Case(lambda: trips().select("zone", Zone="fare"), InvalidNameError, ("'zone'", "'Zone'"), "another name"),
    "key named like a bound": Case(
        lambda: trips().key_by(window_start="zone").window(HOUR).aggregate(n=COUNT), InvalidNameError, ("'window_start'",), "another name"
    ),
    "aggregate named like a pane": Case(lambda: hourly().aggregate(pane_index=COUNT), InvalidNameError, ("'pane_index'",), "another name"),
    "aggregate named like a key": Case(lambda: hourly().aggregate(zone=COUNT), InvalidNameError, ("'zone'",), "another name"),
    "explode into a column": Case(lambda: trips().explode("stops", as_="zone"), ColumnError, ("'zone'",), "another name"),
    "explode a number": Case(lambda: trips().explode("fare", as_="x"), ExpressionError, ("DOUBLE",), "explode an array"),
    "union of other columns": Case(lambda: trips().union(trips("b").select("zone")), ColumnError, ("pickup_at",), ".select(...)"),
    "union of other types": Case(
        lambda: trips().union(trips("b").with_columns(fare="zone")), ColumnError, ("'fare'", "DOUBLE", "INT"), "CAST(fare AS DOUBLE)"
    ),
    # DDL
    "schema unreadable": Case(lambda: tm.files("x", format="json", schema="zone INTT"), DefinitionError, ("'zone INTT'",), "Spark DDL"),
    "schema with an open end": Case(lambda: tm.files("x", format="json", schema="a INT,"), DefinitionError, ("'a INT,'",), "Spark DDL"),
    "schema missing": Case(lambda: tm.files("x", format="json"), DefinitionError, ("no schema",), "schema="),
    "schema column twice": Case(lambda: tm.from_elements([], schema="a INT, A INT"), DefinitionError, ("'A'", "twice"), "another name"),
    "map returns": Case(lambda: trips().map(lambda row: row, returns="a, b"), DefinitionError, ("map(returns=...)",), "Spark DDL"),
    "flat_map returns nothing": Case(lambda: trips().flat_map(lambda row: [row], returns=""), DefinitionError, ("flat_map",), "Spark DDL"),
    # arguments
    "no columns": Case(lambda: trips().with_columns(), DefinitionError, ("with_columns",), "at least one"),
    "map no function": Case(lambda: trips().map(wrong("f"), returns="a INT"), DefinitionError, ("map", "'f'"), "one argument"),
    "map function of two": Case(lambda: trips().map(max_of_two, returns="a INT"), DefinitionError, ("one argument",), ".map(function"),
    "transform of none": Case(lambda: trips().transform(wrong(lambda: None)), DefinitionError, ("transform",), "one argument"),
    "key_by nothing": Case(lambda: trips().key_by(), DefinitionError, ("key_by",), ".window_all"),
    "window by text": Case(
        lambda: trips().key_by("zone").window(wrong("1 hour")).aggregate(n=COUNT), DefinitionError, ("'1 hour'",), "tm.tumbling"
    ),
    "no aggregates": Case(lambda: hourly().aggregate(), DefinitionError, ("no aggregate",), "tm.count()"),
    "aggregate not called": Case(lambda: hourly().aggregate(n=wrong(tm.count)), DefinitionError, ("'n'",), "n=tm.count(...)"),
    "aggregate as text": Case(lambda: hourly().aggregate(n=wrong("count(*)")), DefinitionError, ("'count(*)'",), "tm.count()"),
    "aggregate of an aggregate": Case(lambda: hourly().aggregate(n=total("max(fare)")), ExpressionError, ("'max'",), ".aggregate("),
    "partial that is no aggregate": Case(lambda: hourly().aggregate(n=own("fare + 1")), ExpressionError, ("fare + 1",), "sum(fare)"),
    "partial with a stray brace": Case(lambda: hourly().aggregate(n=own("sum({fare})")), ExpressionError, ("{fare}",), "braces"),
    "late_to as text": Case(
        lambda: hourly().late_to(wrong("late")).aggregate(n=COUNT), DefinitionError, ("late_to",), "tm.OutputTag('late')"
    ),
    "windows over malformed records": Case(
        lambda: trips(malformed_to=MALFORMED).side_output(MALFORMED).window_all(HOUR).aggregate(n=COUNT),
        DefinitionError,
        ("'trips'", "no event time"),
        "bind the malformed output",
    ),
    "split without branches": Case(lambda: trips().split({}), DefinitionError, ("split",), "tm.OutputTag('big')"),
    "split into rows": Case(
        lambda: trips().split({LATE: "fare > 1"}).select("zone"), DefinitionError, ("split", "'late'"), ".side_output(tag)"
    ),
    "split into a sink": Case(lambda: tm.delta(trips().split({LATE: "fare > 1"}), "x"), DefinitionError, ("'late'",), ".side_output(tag)"),
    "split keyed": Case(lambda: trips().split({LATE: "fare > 1"}).key_by("zone"), DefinitionError, ("'late'",), ".side_output(tag)"),
    "split and otherwise alike": Case(
        lambda: trips().split({LATE: "fare > 1"}, otherwise=LATE), DefinitionError, ("'late'",), "its own tag"
    ),
    "union with nothing": Case(lambda: trips().union(), DefinitionError, ("union",), ".union(other)"),
    "union with a job": Case(lambda: trips().union(wrong("b")), DefinitionError, ("'b'",), ".union(other"),
    "tag nobody emits": Case(
        lambda: trips(malformed_to=MALFORMED).side_output(LATE), DefinitionError, ("'late'", "tags here: 'bad'"), "late_to"
    ),
    "tag of another branch": Case(
        lambda: (trips().filter("fare > 0", rejects_to=LATE), trips("b").side_output(LATE)),
        DefinitionError,
        ("tags here: none",),
        "late_to",
    ),
    "watermarks missing a method": Case(
        lambda: trips(watermarks=tm.watermark_strategy(wrong(Unfinished()), timestamp="pickup_at")),
        DefinitionError,
        ("metrics, watermark",),
        "bound_ms",
    ),
    "watermarks no strategy": Case(lambda: trips(watermarks="5 minutes"), DefinitionError, ("'5 minutes'",), "bounded_out_of_orderness"),
    "source of no specification": Case(
        lambda: tm.source("s", wrong("landing"), watermarks=timed()), DefinitionError, ("'s'", "'landing'"), "files(...)"
    ),
    "file format": Case(lambda: tm.files("x", format=wrong("xml"), schema="a INT"), DefinitionError, ("'xml'", "json"), "streaming_format"),
    "no folder": Case(lambda: tm.files("", format="text"), DefinitionError, ("no folder",), "give the folder"),
    "no files per epoch": Case(
        lambda: tm.files("x", format="text", max_files_per_epoch=0), DefinitionError, ("max_files_per_epoch=0",), "1 or more"
    ),
    "rate of nothing": Case(lambda: tm.rate(rows_per_second=0), DefinitionError, ("rows_per_second=0",), "1 or more"),
    "element of another length": Case(
        lambda: tm.from_elements([(1, 2)], schema="a INT"), DefinitionError, ("(1, 2)", "2 values"), "columns a"
    ),
    "element with another column": Case(lambda: tm.from_elements([{"b": 1}], schema="a INT"), DefinitionError, ("'b'",), "columns a"),
    "rows and epochs": Case(lambda: tm.from_elements([], epochs=[], schema="a INT"), DefinitionError, ("rows or epochs",), "epochs="),
    # sinks
    "sink without path": Case(lambda: tm.delta(trips(), " "), DefinitionError, ("delta(path=' ')",), "give a path"),
    "memory without name": Case(lambda: tm.memory(trips(), ""), DefinitionError, ("memory",), "give a name"),
    "console of no rows": Case(lambda: tm.console(trips(), rows=0), DefinitionError, ("rows=0",), "1 row or more"),
    "sink of a windowed stream": Case(lambda: tm.delta(wrong(hourly()), "x"), DefinitionError, ("WindowedStream",), ".aggregate(...)"),
    # job
    "no outputs": Case(lambda: tm.Job("taxi", outputs={}), DefinitionError, ("no outputs", "job 'taxi'"), "tm.delta"),
    "output not bound": Case(
        lambda: tm.Job("taxi", outputs={"a": wrong(trips())}), DefinitionError, ("'a'", "Stream"), "'a': tm.delta(stream"
    ),
    "outputs as a list": Case(
        lambda: tm.Job("taxi", outputs=wrong([tm.delta(trips(), "x")])),
        DefinitionError,
        ("outputs is a list", "by name"),
        "outputs={'name'",
    ),
    "outputs as one": Case(
        lambda: tm.Job("taxi", outputs=wrong(tm.delta(trips(), "x"))), DefinitionError, ("outputs is an Output",), "outputs={'name'"
    ),
    "swapped arguments of delta": Case(
        lambda: tm.delta(wrong("tables/x"), wrong(trips())),
        DefinitionError,
        ("path 'tables/x' first", "<Stream: source trips"),
        "tm.delta(stream, 'warehouse/tips')",
    ),
    "swapped arguments of memory": Case(
        lambda: tm.memory(wrong("rows"), wrong(trips())), DefinitionError, ("name 'rows' first",), "tm.memory(stream, 'tips')"
    ),
    "type of a schema": Case(
        lambda: tm.from_elements([], schema="zone INT, name STRNG"), DefinitionError, ("'STRNG', did you mean STRING?",), "Spark DDL"
    ),
    "one place twice": Case(
        lambda: tm.Job("taxi", outputs={"a": tm.delta(trips(), "x"), "b": tm.parquet(trips("u"), "./x/")}),
        DefinitionError,
        ("'a'", "'b'", "'x'"),
        "its own path",
    ),
    "one memory name twice": Case(
        lambda: tm.Job("taxi", outputs={"a": tm.memory(trips(), "x"), "b": tm.memory(trips("u"), "x")}),
        DefinitionError,
        ("'b'",),
        "its own",
    ),
    "outputs that differ in case": Case(
        lambda: tm.Job("taxi", outputs={"a": tm.delta(trips(), "x"), "A": tm.delta(trips("u"), "y")}),
        DefinitionError,
        ("'a'", "'A'"),
        "name",
    ),
    "two sources of one name": Case(lambda: job(trips(), trips()), DefinitionError, ("two sources", "'trips'"), "another name"),
    "window without uid": Case(
        lambda: job(hourly().aggregate(n=COUNT)), DefinitionError, ("aggregates n", "no uid"), ".uid('hourly-tips')"
    ),
    "side output from before the uid": Case(
        late_from_before_the_uid,
        DefinitionError,
        ("no uid",),
        ".uid('w')",
    ),
    "uid twice": Case(
        one_uid_twice,
        DefinitionError,
        ("'x'",),
        "its own uid",
    ),
    "tag twice": Case(
        one_tag_twice,
        DefinitionError,
        ("'late'", "twice"),
        "its own tag",
    ),
    "tag twice in a row": Case(
        lambda: trips().filter("fare > 0", rejects_to=LATE).filter("fare > 1", rejects_to=LATE).side_output(LATE),
        DefinitionError,
        ("'late'", "several"),
        "its own tag",
    ),
    "source of which nothing is used": Case(
        lambda: job(trips(malformed_to=MALFORMED).side_output(MALFORMED)), DefinitionError, ("'trips'", "nothing uses"), "bind an output"
    ),
    "no parallelism": Case(lambda: job(trips(), parallelism=0), DefinitionError, ("parallelism=0",), "1 or more"),
    "no retained epochs": Case(lambda: job(trips(), retained_epochs=0), DefinitionError, ("retained_epochs=0",), "1 or more"),
    "blank store": Case(lambda: job(trips(), store=" "), DefinitionError, ("store=' '",), "folder"),
    "owners as text": Case(lambda: job(trips(), owners="team:data"), DefinitionError, ("'team:data'",), "owners=['team:data']"),
    "tags of numbers": Case(lambda: job(trips(), tags={"a": 1}), DefinitionError, ("tags",), "tags={"),
    "drawing format": Case(lambda: job(trips()).explain(wrong("svg")), DefinitionError, ("'svg'",), "'mermaid'"),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_error_says_what_where_and_how_to_mend_it(case: Case) -> None:
    with pytest.raises(TidemarkError) as caught:
        case.build()
    error = caught.value
    assert type(error) is case.error
    message = str(error)
    what, fix = message.split(" Fix: ")
    for part in case.says:
        assert part in what
    assert case.fix in fix
    assert re.search(rf"at {re.escape(__file__)}:\d+\)", what.rstrip(". ")), message


def test_place_is_the_users_line() -> None:
    stream = trips()
    line = inspect.stack()[0].lineno + 2
    with pytest.raises(ColumnError) as caught:
        stream.filter("fair > 0")
    assert caught.value.place == f"{__file__}:{line}"


def test_errors_of_a_job_name_the_job() -> None:
    with pytest.raises(DefinitionError) as caught:
        job(hourly().aggregate(n=COUNT))
    assert caught.value.job == "taxi"


def test_there_are_many_kinds() -> None:
    assert len(CASES) >= 100

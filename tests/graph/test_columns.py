"""Columns from operator to operator: schemas and lineage."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

import tidemark as tm
from tidemark.graph.api.columns import lineage, referenced_columns, schema_of
from tidemark.graph.model.aggregates import Aggregate, Partial

TRIP = (
    "zone INT, pickup_at TIMESTAMP, fare DOUBLE, tip DECIMAL(8,2), note STRING, stops ARRAY<STRING>, place STRUCT<lat: DOUBLE>, vendor INT"
)
BAD, LATE, BIG, SMALL, NO = (tm.OutputTag(name) for name in ("bad", "late", "big", "small", "no"))
Build = Callable[[tm.Stream], tm.Stream]


def trips(name: str = "trips") -> tm.Stream:
    watermarks = tm.bounded_out_of_orderness("5 minutes", timestamp="pickup_at")
    return tm.source(name, tm.files("landing", format="json", schema=TRIP), watermarks=watermarks, malformed_to=BAD)


def aggregate(kind: str, argument: str) -> Aggregate:
    return Aggregate(kind, (argument,), (Partial("x", f"{kind}({argument})", "max({x})"),), "{x}")


def hourly(stream: tm.Stream) -> tm.Stream:
    windowed = stream.key_by("zone", busy="fare > 10").window(tm.tumbling("1 hour")).late_to(LATE)
    return windowed.aggregate(tips=aggregate("sum", "tip"), best=aggregate("max", "fare")).uid("w")


def of_window(elements: object, context: object) -> list[dict[str, object]]:
    return [{"elements": elements, "context": context}]


def one_per_row(row: dict[str, object]) -> dict[str, object]:
    return row


def several(row: dict[str, object]) -> Iterator[dict[str, object]]:
    yield row


SCHEMAS: dict[str, tuple[Build, str | None]] = {
    "select": (
        lambda s: s.select("Zone", "place.lat", "fare * 2 AS twice", day="CAST(pickup_at AS DATE)"),
        "Zone INT, lat DOUBLE, twice DOUBLE, day DATE",
    ),
    "with_columns": (lambda s: s.select("zone", "fare").with_columns(FARE="zone", x="upper('a')"), "zone INT, FARE INT, x STRING"),
    "deferred": (lambda s: s.select(x=lambda: NotImplemented), "x"),
    "unknown type": (lambda s: s.select(x="my_function(zone)"), "x"),
    "filter": (lambda s: s.select("zone").filter("zone > 1", rejects_to=NO), "zone INT"),
    "rejected": (lambda s: s.select("zone").filter("zone > 1", rejects_to=NO).side_output(NO), "zone INT"),
    "explode": (lambda s: s.select("zone", "stops").explode("stops", as_="stop"), "zone INT, stops ARRAY<STRING>, stop STRING"),
    "explode a map": (
        lambda s: s.select("zone").explode("CAST(zone AS MAP<INT, DATE>)", as_="e"),
        "zone INT, e STRUCT<key: INT, value: DATE>",
    ),
    "map": (lambda s: s.map(one_per_row, returns="a LONG, b array<int>"), "a BIGINT, b ARRAY<INT>"),
    "flat_map": (lambda s: s.flat_map(several, returns="a: byte"), "a TINYINT"),
    "transform": (lambda s: s.transform(lambda df: df), None),
    "transform with columns": (lambda s: s.transform(lambda df: df, columns=["a", "b"]), "a, b"),
    "after an unknown": (lambda s: s.transform(lambda df: df).filter("x > 1").with_columns(y="1"), None),
    "select after an unknown": (lambda s: s.transform(lambda df: df).select("x", y="1"), "x, y INT"),
    "branch": (lambda s: s.select("zone").split({BIG: "zone > 1"}, otherwise=SMALL).side_output(SMALL), "zone INT"),
    "union": (lambda s: s.select("zone", "fare").union(s.select("fare", "zone")), "zone INT, fare DOUBLE"),
    "malformed": (
        lambda s: s.filter("fare > 0").side_output(BAD),
        "raw STRING, reason STRING, event_time TIMESTAMP, source STRING, split STRING, read_at TIMESTAMP",
    ),
    "window": (
        hourly,
        (
            "zone INT, busy BOOLEAN, window_start TIMESTAMP, window_end TIMESTAMP, tips DECIMAL(18, 2), best DOUBLE, "
            "pane_timing STRING, pane_index INT"
        ),
    ),
    "session": (
        lambda s: s.key_by("zone").window(tm.session(gap_by="vendor")).aggregate(best=aggregate("max", "fare")),
        (
            "zone INT, window_start TIMESTAMP, window_end TIMESTAMP, best DOUBLE, pane_timing STRING, pane_index INT, "
            "replaces ARRAY<STRUCT<window_start: TIMESTAMP, window_end: TIMESTAMP>>"
        ),
    ),
    "process": (
        lambda s: s.window_all(tm.count_window(5)).process(of_window, returns="n long, tags array<string>"),
        "window_start TIMESTAMP, window_end TIMESTAMP, n BIGINT, tags ARRAY<STRING>, pane_timing STRING, pane_index INT",
    ),
    "aggregate then process": (
        lambda s: s.window_all(tm.tumbling("5 ms")).aggregate(tm.window_function(of_window, "n INT"), best=aggregate("max", "fare")),
        "window_start TIMESTAMP, window_end TIMESTAMP, n INT, pane_timing STRING, pane_index INT",
    ),
    "reduce": (
        lambda s: s.key_by("zone").window(tm.tumbling("5 ms")).reduce(TIP="a.tip + b.tip", fare="a.fare"),
        "zone INT, window_start TIMESTAMP, window_end TIMESTAMP, TIP DECIMAL(8, 2), fare DOUBLE, pane_timing STRING, pane_index INT",
    ),
    "reduce in Python": (
        lambda s: (
            s.with_columns(odd="my_function(1)").window_all(tm.session("5 ms")).reduce(of_window, returns="odd struct<x:int>, fare double")
        ),
        (
            "window_start TIMESTAMP, window_end TIMESTAMP, odd STRUCT<x: INT>, fare DOUBLE, pane_timing STRING, pane_index INT, "
            "replaces ARRAY<STRUCT<window_start: TIMESTAMP, window_end: TIMESTAMP>>"
        ),
    ),
    "reduce after an unknown": (
        lambda s: s.transform(lambda df: df).window_all(tm.tumbling("5 ms")).reduce(x="a.x"),
        "window_start TIMESTAMP, window_end TIMESTAMP, x, pane_timing STRING, pane_index INT",
    ),
    "running aggregates": (
        lambda s: s.key_by("zone", busy="fare > 10").running_aggregate(n=tm.count(), best=aggregate("max", "fare")),
        "zone INT, busy BOOLEAN, n BIGINT, best DOUBLE",
    ),
    "greatest element": (lambda s: s.select("zone", "fare").key_by("zone").max_by("fare"), "zone INT, fare DOUBLE"),
    "reduced by element": (lambda s: s.key_by("zone").reduce(TIP="a.tip + b.tip"), "zone INT, TIP DECIMAL(8, 2)"),
    "state in SQL": (
        lambda s: s.key_by("zone").process(
            tm.sql_state({"last": ("fare", "DOUBLE")}, returns={"z": "zone", "was": "last", "now": "new.last", "more": "fare > last"})
        ),
        "z INT, was DOUBLE, now DOUBLE, more BOOLEAN",
    ),
    "late": (lambda s: hourly(s.select("zone", "fare", "tip")).side_output(LATE), "zone INT, fare DOUBLE, tip DECIMAL(8, 2)"),
}


@pytest.mark.parametrize(("build", "expected"), SCHEMAS.values(), ids=SCHEMAS.keys())
def test_schema(build: Build, expected: str | None) -> None:
    schema = schema_of(build(trips()).node)
    assert (None if schema is None else str(schema)) == expected


@pytest.mark.parametrize(
    ("format", "options", "expected"),
    [
        ("rate", {}, "timestamp TIMESTAMP, value BIGINT"),
        ("kafka", {}, "key BINARY, value BINARY, topic STRING, partition INT, offset BIGINT, timestamp TIMESTAMP, timestampType INT"),
        ("Kafka", {}, "key BINARY, value BINARY, topic STRING, partition INT, offset BIGINT, timestamp TIMESTAMP, timestampType INT"),
        ("my-format", {}, None),
    ],
)
def test_schema_of_formats(format: str, options: dict[str, str], expected: str | None) -> None:
    stream = tm.source("s", tm.streaming_format(format, options=options), watermarks=tm.ingestion_time())
    schema = schema_of(stream.node)
    assert (None if schema is None else str(schema)) == expected


@pytest.mark.parametrize("option", ["includeHeaders", "includeheaders"])
def test_kafka_headers_are_a_column_when_asked_for(option: str) -> None:
    spec = tm.streaming_format("kafka", options={option: "true"})
    schema = schema_of(tm.source("s", spec, watermarks=tm.ingestion_time()).node)
    assert schema is not None
    assert schema.names[-1] == "headers"


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("a + b", {"a", "b"}),
        ("place.lat", {"place"}),
        ("stops[0].name.first", {"stops"}),
        ("`odd name` + `a.b`", {"odd name", "a.b"}),
        ("transform(items, (item, i) -> item.x + i + rate)", {"items", "rate"}),
        ("timestampdiff(MINUTE, a, b)", {"a", "b"}),
        ("extract(hour FROM ts) + CAST('1' AS INT)", {"ts"}),
        ("current_date", set()),
    ],
)
def test_referenced_columns(expression: str, expected: set[str]) -> None:
    assert referenced_columns(expression) == frozenset(expected)


def test_deferred_functions_may_read_anything() -> None:
    assert referenced_columns(lambda: NotImplemented) is None


LINEAGE: dict[str, tuple[Build, str, set[str]]] = {
    "as it is": (lambda s: s, "ZONE", {"zone"}),
    "computed": (lambda s: s.with_columns(x="fare / zone").select(y="x + 1"), "y", {"fare", "zone"}),
    "replaced": (lambda s: s.with_columns(fare="zone"), "fare", {"zone"}),
    "nested": (lambda s: s.select("place.lat"), "lat", {"place"}),
    "exploded": (lambda s: s.explode("stops", as_="stop"), "stop", {"stops"}),
    "key": (hourly, "busy", {"fare"}),
    "aggregate": (hourly, "tips", {"tip"}),
    "bound": (hourly, "window_end", {"pickup_at"}),
    "pane": (hourly, "pane_index", set()),
    "late": (lambda s: hourly(s).side_output(LATE), "note", {"note"}),
    "late of a computed input": (lambda s: hourly(s.with_columns(fare="vendor")).side_output(LATE), "fare", {"vendor"}),
    "event time of malformed": (lambda s: s.side_output(BAD), "event_time", {"pickup_at"}),
    "bound of a session": (lambda s: s.window_all(tm.session("5 ms")).aggregate(n=tm.count()), "replaces", {"pickup_at"}),
    "bound of a session with gaps": (
        lambda s: s.window_all(tm.session(gap_by="vendor")).aggregate(n=tm.count()),
        "window_end",
        {"pickup_at", "vendor"},
    ),
    "bound of the clock": (lambda s: s.window_all(tm.tumbling("5 ms", time="processing")).aggregate(n=tm.count()), "window_end", set()),
    "bound of a count": (lambda s: s.window_all(tm.count_window(5)).aggregate(n=tm.count()), "window_end", set()),
    "bound of windows of counts": (
        lambda s: s.window_all(tm.count_window(5)).aggregate(n=tm.count()).window_all(tm.tumbling("5 ms")).aggregate(m=tm.count()),
        "window_end",
        {"pickup_at"},
    ),
    "bound of windows of the clock": (
        lambda s: (
            s.window_all(tm.tumbling("5 ms", time="processing"))
            .aggregate(n=tm.count())
            .window_all(tm.tumbling("5 ms"))
            .aggregate(m=tm.count())
        ),
        "window_end",
        set(),
    ),
    "processed": (
        lambda s: s.select("zone", "fare", "pickup_at").key_by("zone").window(tm.tumbling("5 ms")).process(of_window, "n INT"),
        "n",
        {"zone", "fare", "pickup_at"},
    ),
    "aggregated, then processed": (
        lambda s: s.key_by("zone").window(tm.tumbling("5 ms")).aggregate(tm.window_function(of_window, "n INT"), tips=tm.sum("tip")),
        "n",
        {"zone", "tip", "pickup_at"},
    ),
    "reduced": (lambda s: s.window_all(tm.tumbling("5 ms")).reduce(fare="a.fare + b.fare", tip="a.tip"), "fare", {"fare"}),
    "reduced by way of others": (
        lambda s: s.window_all(tm.tumbling("5 ms")).reduce(
            note="if(a.fare > b.fare, a.note, b.note)", fare="a.fare + b.tip", tip="b.tip", zone="a.zone"
        ),
        "note",
        {"note", "fare", "tip"},
    ),
    "reduced in Python": (lambda s: s.window_all(tm.tumbling("5 ms")).reduce(of_window, columns=["fare", "tip"]), "fare", {"fare", "tip"}),
    "running": (lambda s: s.key_by("zone").running_aggregate(best=aggregate("max", "fare")), "best", {"fare"}),
    "reduced by element": (
        lambda s: s.key_by("zone").reduce(note="if(a.fare > b.fare, a.note, b.note)", fare="b.fare"),
        "note",
        {"note", "fare"},
    ),
    "field by way of another": (
        lambda s: s.key_by("zone").process(
            tm.sql_state({"last": ("fare", "DOUBLE"), "sum": ("coalesce(sum, 0) + last", "DOUBLE")}, returns={"x": "new.sum", "y": "zone"})
        ),
        "x",
        {"fare"},
    ),
    "through a function": (lambda s: s.select("zone", "fare").map(one_per_row, returns="a INT"), "a", {"zone", "fare"}),
    "deferred": (lambda s: s.select("zone", "tip").with_columns(x=lambda: NotImplemented), "x", {"zone", "tip"}),
    "two windows": (
        lambda s: hourly(s).window_all(tm.tumbling("1 day")).aggregate(best=aggregate("max", "best")).uid("day"),
        "best",
        {"fare"},
    ),
}


@pytest.mark.parametrize(("build", "column", "expected"), LINEAGE.values(), ids=LINEAGE.keys())
def test_lineage(build: Build, column: str, expected: set[str]) -> None:
    assert lineage(build(trips()).node, column) == {("trips", name) for name in expected}


def test_lineage_of_a_union_has_both_sources() -> None:
    merged = trips().select("zone").union(trips("other").select(zone="vendor"))
    assert lineage(merged.node, "zone") == {("trips", "zone"), ("other", "vendor")}


def test_lineage_of_a_long_chain() -> None:
    stream = trips()
    for _ in range(1500):
        stream = stream.with_columns(fare="fare + 1")
    assert lineage(stream.node, "fare") == {("trips", "fare")}

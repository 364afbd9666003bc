"""Drawings of the graph, and that they hold what people look for."""

from __future__ import annotations

import re

import tidemark as tm
from tidemark.graph.aggregates import Aggregate, Partial

COUNT = Aggregate("count", (), (Partial("n", "count(1)", "sum({n})"),), "{n}")
REJECTED, LATE, BAD = (tm.OutputTag(name) for name in ("rejected", "late", "bad"))


def taxi() -> tm.Job:
    trips = tm.source(
        "trips",
        tm.files("s3://key:secret@bucket/landing", format="json", schema="zone INT, at TIMESTAMP, fare DOUBLE"),
        watermarks=tm.bounded_out_of_orderness("5 minutes", timestamp="at", idle_after="1 minute"),
        malformed_to=BAD,
    )
    windows = trips.filter("fare >= 0 AND zone < 300", rejects_to=REJECTED).key_by("zone").window(tm.tumbling("1 hour"))
    hourly = windows.allowed_lateness("10 minutes").late_to(LATE).aggregate(trips=COUNT).uid("hourly-tips")
    outputs = {"hourly": tm.delta(hourly, "warehouse/hourly"), "late": tm.parquet(hourly.side_output(LATE), "warehouse/late")}
    return tm.Job("taxi", outputs=outputs)


def test_text() -> None:
    assert (
        taxi().explain()
        == """\
job taxi
  1. source trips: json files in s3://***@bucket/landing
       event time at, at most 5m out of order, idle after 1m
       malformed -> bad (counted only: bound to no output)
  2. filter fare >= 0 AND zone < 300 <- 1
       rejected -> rejected (counted only: bound to no output)
  3. window by zone, tumbling 1h, allowed lateness 10m: trips = count() [hourly-tips] <- 2
       late -> late
outputs
  hourly <- 3: delta warehouse/hourly, exactly once
  late <- 3 (late): parquet warehouse/late, exactly once, an epoch's files one after the other"""
    )


def test_mermaid() -> None:
    drawing = taxi().explain("mermaid")
    lines = drawing.splitlines()
    assert lines[0] == "flowchart LR"
    assert '  n3 -. "late" .-> o2' in lines
    assert "  n1 --> n2" in lines
    assert "secret" not in drawing
    labels = re.findall(r'"([^"]*)"', drawing)
    assert any("hourly-tips" in label and "tumbling 1h" in label for label in labels)
    assert any("exactly once" in label for label in labels)


def test_mermaid_survives_every_character_of_sql() -> None:
    stream = taxi().sources["trips"]
    odd = tm.Stream(stream).filter("""concat('"', `zone`, '<b>') <> '}]' OR fare > 1 -- #""")
    drawing = tm.Job("taxi", outputs={"odd": tm.console(odd)}).explain("mermaid")
    node = r'(\(\["[^"]*"\]\)|\["[^"]*"\]|\{\{"[^"]*"\}\}|\[\("[^"]*"\)\])'
    for line in drawing.splitlines()[1:]:
        assert re.fullmatch(rf"  [no]\d+({node}| --> [no]\d+)", line), line
        label = line.replace("<br/>", "")
        assert "<" not in label
        assert "`" not in label


def test_every_operator_is_drawn() -> None:
    big, rest = tm.OutputTag("big"), tm.OutputTag("rest")
    source = tm.source("rows", tm.rate(rows_per_second=5), watermarks=tm.ingestion_time())
    branches = source.with_columns(x="value % 7").split({big: "x > 3"}, otherwise=rest)
    mapped = branches.side_output(big).map(dict, returns="x INT").union(branches.side_output(rest).select(x="CAST(x AS INT)"))
    exploded = mapped.explode("array(x, x)", as_="y").transform(lambda df: df, columns=["y"])
    days = exploded.window_all(tm.tumbling("1 day", offset="2 hours")).aggregate(n=COUNT).uid("days")
    text = tm.Job("every", outputs={"days": tm.memory(days, "days")}).explain()
    for part in (
        "source rows: rate, 5 rows/s",
        "ingestion time",
        "with_columns x = value % 7 <- 1",
        "split big: x > 3; rest: otherwise <- 2",
        "map dict returns x INT <- 3 (big)",
        "select x = CAST(x AS INT) <- 3 (rest)",
        "union <- 4, 5",
        "explode array(x, x) as y <- 6",
        "transform <lambda> <- 7",
        "window over all rows, tumbling 1d offset 2h: n = count() [days] <- 8",
        "days <- 9: memory days, exactly once within the process",
    ):
        assert part in text

"""Drawings of the graph, and that they hold what people look for."""

from __future__ import annotations

import re

import tidemark as tm
from tidemark.graph.model.aggregates import Aggregate, Partial
from tidemark.semantics.windows.windows import WindowAssigner

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


def every(elements: object, context: object) -> list[dict[str, object]]:
    return [{"elements": elements, "context": context}]


def far(one: object, other: object) -> float:
    return 0.0 if one == other else 1.0


def test_windows_of_every_kind() -> None:
    spec = tm.from_elements([], schema="zone INT, fare DOUBLE, top INT, at TIMESTAMP")
    trips = tm.source("trips", spec, watermarks=tm.ascending(timestamp="at"))

    def zones(assigner: WindowAssigner) -> tm.WindowedStream:
        return trips.key_by("zone").window(assigner)

    streams = {
        "sliding 1d every 15m offset 5m: n = count()": zones(tm.sliding("1 day", "15 minutes", offset="5 minutes")).aggregate(n=COUNT),
        "sliding 7d every 1d in Asia/Tokyo: n = count()": zones(tm.sliding("7 days", "1 day", zone="Asia/Tokyo")).aggregate(n=COUNT),
        "cumulative 1d by 1h: n = count()": zones(tm.cumulative("1 day", "1 hour")).aggregate(n=COUNT),
        "session gap 30m, trigger event time (early: count 100; late: each epoch): n = count()": zones(tm.session("30 minutes"))
        .trigger(tm.event_time_trigger(early=tm.count_trigger(100), late=tm.each_epoch_trigger()))
        .aggregate(n=COUNT),
        "session gap by zone * 1000 of processing time: n = count()": zones(
            tm.session(gap_by="zone  *\n 1000", time="processing")
        ).aggregate(n=COUNT),
        "count 10 every 5: n = count(), then process every returns x INT": zones(tm.count_window(10, 5)).aggregate(
            tm.window_function(every, "x INT"), n=COUNT
        ),
        (
            "global, trigger every 30s of processing time, purging, evictor time 5m after the function: "
            "process every on batches returns x INT"
        ): zones(tm.global_window())
        .trigger(tm.continuous_processing_time_trigger("30 seconds"))
        .discarding()
        .evictor(tm.time_evictor("5 minutes", after=True))
        .process(tm.window_function(every, "x INT", batches=True)),
        "tumbling 1h, trigger delta far > 2.5, evictor delta far >= 3: process every returns x INT": zones(tm.tumbling("1 hour"))
        .trigger(tm.delta_trigger(2.5, far))
        .evictor(tm.delta_evictor(3, far))
        .process(every, "x INT"),
        "tumbling 1h of processing time, trigger never: reduce fare = a.fare + b.fare, top = a.top": zones(
            tm.tumbling("1 hour", time="processing")
        )
        .trigger(tm.never_trigger())
        .reduce(fare="a.fare +\n  b.fare", top="a.top"),
        "tumbling 1h, trigger every 1m of event time, allowed lateness 5s: reduce fare": zones(tm.tumbling("1 hour"))
        .trigger(tm.continuous_event_time_trigger("1 minute"))
        .allowed_lateness("5 seconds")
        .reduce(every, columns=["fare"]),
    }
    named = {f"w{number}": stream.uid(f"w{number}") for number, stream in enumerate(streams.values())}
    job = tm.Job("windows", outputs={name: tm.console(stream) for name, stream in named.items()})
    lines = [line for line in job.explain().splitlines() if " window " in line]
    assert lines == [f"  {number + 2}. window by zone, {said} [w{number}] <- 1" for number, said in enumerate(streams)]
    # Where nothing can be late, nothing is said of it.
    assert job.explain().count("late rows are counted only") == 6
    assert all(f"w{number}" in job.explain("mermaid") for number in range(len(streams)))


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

"""The fluent face: which nodes it builds, and that nothing built before is changed."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING

import tidemark as tm
from tidemark.graph.model.aggregates import Aggregate, Partial
from tidemark.graph.model.nodes import FilterNode, Node, SelectNode, SideOutputNode, SourceNode, SplitNode, UnionNode, WithColumnsNode
from tidemark.graph.operators.window.node import WindowNode
from tidemark.semantics.watermarks.watermarks import BoundedOutOfOrderness, IngestionTime, Punctuated
from tidemark.semantics.windows.assigners import Tumbling

if TYPE_CHECKING:
    from pyspark.sql import Column

COUNT = Aggregate("count", (), (Partial("n", "count(1)", "sum({n})"),), "{n}")
LATE, REJECTED, MALFORMED = (tm.OutputTag(name) for name in ("late", "rejected", "malformed"))


def trips() -> tm.Stream:
    spec = tm.files("landing", format="json", schema="zone INT, at TIMESTAMP, fare DOUBLE, miles DOUBLE, hours DOUBLE")
    watermarks = tm.bounded_out_of_orderness("5 minutes", timestamp="at", idle_after="1 minute", max_future_skew=None)
    return tm.source("trips", spec, watermarks=watermarks, malformed_to=MALFORMED)


def test_whole_chain() -> None:
    source = trips()
    hourly = (
        source.filter("fare >= 0", rejects_to=REJECTED)
        .with_columns(speed="miles / hours")
        .key_by("zone", fast="speed > 20")
        .window(tm.tumbling("1 hour", offset="-15 minutes"))
        .allowed_lateness("10 minutes")
        .late_to(LATE)
        .aggregate(trips=COUNT)
        .uid("hourly-tips")
    )
    outputs = {"hourly": tm.delta(hourly, "a"), "late": tm.delta(hourly.side_output(LATE), "b")}
    job = tm.Job("taxi", outputs=outputs, owners=["team:data"], tags={"domain": "taxi"})
    assert [type(node) for node in job.nodes] == [SourceNode, FilterNode, WithColumnsNode, WindowNode, SideOutputNode]
    start, kept, added, window, late = job.nodes
    assert [node.inputs for node in job.nodes] == [(), (start,), (kept,), (added,), (window,)]
    assert isinstance(start, SourceNode)
    assert start.watermarks.generator == BoundedOutOfOrderness(300_000)
    assert (start.watermarks.idle_after_ms, start.watermarks.max_future_skew_ms) == (60_000, None)
    assert isinstance(window, WindowNode)
    assert window.keys == (("zone", "zone"), ("fast", "speed > 20"))
    assert window.assigner == Tumbling(3_600_000, -900_000)
    assert (window.allowed_lateness_ms, window.late_to, window.uid) == (600_000, LATE, "hourly-tips")
    assert isinstance(late, SideOutputNode)
    assert late.tag == LATE
    assert dict(job.sources) == {"trips": start}
    assert job.owners == ("team:data",)


def test_methods_leave_the_stream_as_it_was() -> None:
    stream = trips()
    windowed = stream.key_by("zone").window(tm.tumbling("1 hour"))
    kept = stream.filter("fare > 0")
    named = kept.uid("kept")
    late = windowed.allowed_lateness("1 minute").late_to(LATE)
    assert (kept.node.uid, named.node.uid) == (None, "kept")
    assert kept.node is not named.node
    assert (windowed.allowed_lateness_ms, windowed.late_tag) == (0, None)
    assert (late.allowed_lateness_ms, late.late_tag) == (60_000, LATE)
    assert stream.node.inputs == ()


def test_side_outputs_are_found_among_ancestors() -> None:
    source = trips()
    kept = source.filter("fare >= 0", rejects_to=REJECTED)
    later = kept.select("zone", "at").with_columns(x="1")
    assert later.side_output(REJECTED).node.inputs == (kept.node,)
    assert later.side_output(MALFORMED).node.inputs == (source.node,)


def test_select_takes_names_paths_and_aliases() -> None:
    node = trips().select("zone", "fare * 2 AS `double fare`", miles="miles").node
    assert isinstance(node, SelectNode)
    assert node.columns == (("zone", "zone"), ("double fare", "fare * 2"), ("miles", "miles"))


def test_split_and_union() -> None:
    big, small = tm.OutputTag("big"), tm.OutputTag("small")
    branches = trips().split({big: "fare > 100"}, otherwise=small)
    together = branches.side_output(big).union(branches.side_output(small))
    assert isinstance(branches.node, SplitNode)
    assert branches.node.branches == ((big, "fare > 100"),)
    assert isinstance(together.node, UnionNode)
    assert [child.inputs for child in together.node.inputs] == [(branches.node,)] * 2


def test_window_all_has_no_keys() -> None:
    node = trips().window_all(tm.tumbling("1 day")).aggregate(n=COUNT).uid("all").node
    assert isinstance(node, WindowNode)
    assert node.keys == ()


def test_deferred_functions_are_not_called() -> None:
    def fails() -> Column:
        raise AssertionError

    node = trips().with_columns(x=fails).node
    assert isinstance(node, WithColumnsNode)
    assert [expression is fails for _, expression in node.columns] == [True]


def test_places_are_lines_of_the_user() -> None:
    stream = trips()
    first = inspect.stack()[0].lineno + 2
    chained = (
        stream.filter("fare > 0")
        .select("zone")
    )  # fmt: skip
    nodes: list[Node] = [chained.node.input, chained.node]
    assert [node.place for node in nodes] == [f"{__file__}:{first}", f"{__file__}:{first + 1}"]


def test_other_strategies() -> None:
    marked = tm.punctuated("CAST(m AS BIGINT)", timestamp="at", split_by="zone")
    assert (marked.generator, marked.split_by) == (Punctuated("CAST(m AS BIGINT)"), "zone")
    ingested = tm.ingestion_time()
    assert (ingested.generator, ingested.timestamp) == (IngestionTime(), None)


def test_elements_by_name_or_position_in_epochs() -> None:
    spec = tm.from_elements(epochs=[[(1, "a"), {"k": "b"}], []], schema="n INT, k STRING")
    assert spec.batches == (((1, "a"), (None, "b")), ())


def test_job_is_frozen_apart_from_what_was_passed() -> None:
    outputs = {"a": tm.delta(trips(), "a")}
    job = tm.Job("taxi", outputs=outputs)
    outputs["b"] = tm.delta(trips(), "b")
    assert list(job.outputs) == ["a"]


def test_what_sinks_guarantee() -> None:
    stream = trips()
    outputs = [tm.delta(stream, "x"), tm.parquet(stream, "x"), tm.console(stream), tm.memory(stream, "x")]
    said = [tm.guarantee(output.sink).split(",")[0] for output in outputs]
    assert said == ["exactly once", "exactly once", "at least once", "exactly once within the process"]

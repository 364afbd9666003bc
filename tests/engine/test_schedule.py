"""The passes of an epoch, from the graph alone: each output is staged once, each operator processes before it emits."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tidemark as tm
from tests.engine.lab import elements
from tests.engine.two_ports import make_known, pair
from tidemark.graph.model.nodes import (
    FilterNode,
    MemorySpec,
    Node,
    Output,
    OutputTag,
    SelectNode,
    SideOutputNode,
    SourceNode,
    SplitNode,
    TransformNode,
    UnionNode,
)
from tidemark.graph.operators.window.node import WindowNode
from tidemark.spark.epoch.schedule import EpochSchedule, Pass, build_schedule
from tidemark.spark.epoch.topology import Topology, build_topology, operators_before, result_operators

SCHEMA = "k STRING, t BIGINT, v BIGINT"


def source(name: str = "e", bad: str = "") -> tm.Stream:
    return elements(schema=SCHEMA, name=name, malformed_to=tm.OutputTag(bad) if bad else None)


def hours(stream: tm.Stream, uid: str, late: str = "", *, kept: bool = False) -> tm.Stream:
    windows = stream.key_by("k").window(tm.tumbling("1 hour"))
    if late:
        windows = windows.late_to(tm.OutputTag(late))
    if kept:
        return windows.process(lambda rows, _: rows, returns="t BIGINT, v BIGINT").uid(uid).select("k", "t", "v")
    return windows.aggregate(t=tm.max("t"), v=tm.sum("v")).uid(uid).select("k", "t", "v")


def topology_of(**outputs: tm.Stream | Node) -> Topology:
    nodes = {name: stream if isinstance(stream, Node) else stream.node for name, stream in outputs.items()}
    return build_topology({name: Output(node, MemorySpec(name)) for name, node in nodes.items()})


def lines(schedule: EpochSchedule) -> list[str]:
    return list(map(str, schedule.passes))


def test_a_job_with_every_kind_of_output() -> None:
    stream = source("e", "bad")
    kept = stream.filter("v > 0", rejects_to=tm.OutputTag("rejected"))
    windows = kept.key_by("k").window(tm.tumbling("1 hour")).late_to(tm.OutputTag("late")).aggregate(n=tm.count()).uid("hours")
    late, rejected, bad = (tm.OutputTag(name) for name in ("late", "rejected", "bad"))
    made = build_schedule(
        topology_of(hours=windows, late=windows.side_output(late), rejected=kept.side_output(rejected), malformed=stream.side_output(bad))
    )
    assert [str(each) for each in made.input] == [
        "side output late: reads late of hours, e; writes output late; in the background; if it had rows in the epoch before",
        "side output rejected: reads e; writes output rejected; in the background; if it had rows in the epoch before",
        "side output malformed: reads e; writes output malformed; in the background; if it had rows in the epoch before",
        "process hours: reads e; writes state of hours; counts e, rejected, late; if there is anything to read",
    ]
    assert [str(each) for each in made.rest] == [
        "watermarks: reads counts of e; writes watermarks",
        "side output late: reads late of hours, e; writes output late; in the background; if late has rows",
        "side output rejected: reads e; writes output rejected; in the background; if rejected has rows",
        "side output malformed: reads e; writes output malformed; in the background; if bad has rows",
        "emit hours: reads state of hours, watermarks; writes results of hours",
        "output hours: reads results of hours; writes output hours; if there is anything to read",
        "consume hours: counts results of hours; if hours emitted",
        "compact hours: reads state of hours; writes state of hours; in the background; if there is something to merge",
    ]


def test_what_waits_for_results_is_counted_before_them() -> None:
    stream = source()
    united = hours(source("other"), "w").union(stream.filter("v > 0", rejects_to=tm.OutputTag("rejected")))
    made = build_schedule(topology_of(rows=united))
    assert lines(made)[1] == "count e: reads e; counts e; if there is anything to read"


def test_results_that_only_an_operator_behind_two_reads_are_read_at_once() -> None:
    first, second = hours(source("a"), "first"), hours(source("b"), "second")
    made = build_schedule(topology_of(out=hours(first.union(second), "both")))
    assert [
        str(each) for each in made.rest if each.subject in ("first", "second", "both") and each.what in ("process", "emit", "consume")
    ] == [
        "emit first: reads state of first, watermarks; writes results of first",
        "consume first: reads results of first; counts results of first; if first emitted",
        "emit second: reads state of second, watermarks; writes results of second",
        "process both: reads results of first, results of second; writes state of both; if there is anything to read",
        "consume second: counts results of second; if second emitted",
        "emit both: reads state of both, watermarks; writes results of both",
        "consume both: counts results of both; if both emitted",
    ]


def test_a_filter_whose_rejected_rows_alone_are_read_is_counted() -> None:
    few = source().filter("v > 0").filter("v < 9", rejects_to=tm.OutputTag("many"))
    united = few.side_output(tm.OutputTag("many")).union(source("f"))
    for stream in (hours(few.side_output(tm.OutputTag("many")), "w"), united):
        topology = topology_of(out=stream)
        schedule = build_schedule(topology)
        require_sound(topology, schedule)
        assert "count many: reads e; counts e, filter-1, many; if there is anything to read" in lines(schedule)


@pytest.mark.parametrize("after", [False, True])
def test_a_kind_with_two_ports(monkeypatch: pytest.MonkeyPatch, *, after: bool) -> None:
    make_known(monkeypatch, late_after=after)
    left, right = source("left"), source("right").filter("v > 0", rejects_to=tm.OutputTag("rejected"))
    node = pair(left.node, right.node, late_to="late", unmatched_to="unmatched")
    late, unmatched = (SideOutputNode(inputs=(node,), tag=tm.OutputTag(name)) for name in ("late", "unmatched"))
    topology = topology_of(pairs=node, late=late, unmatched=unmatched)
    assert topology.operators == (node,)
    assert topology.ordered == ({id(left.node), id(node.inputs[1].inputs[0])} if after else frozenset())
    made = build_schedule(topology)
    (process,) = (each for each in made.passes if each.what == "process")
    assert process.reads == ("left", "right")
    known = ("late", "unmatched")
    assert process.counts == (("left", "right", "rejected") if after else ("left", "right", "rejected", *known))
    (emit,) = (each for each in made.passes if each.what == "emit")
    assert emit.counts == (known if after else ())
    sides = [(each.subject, each.when) for each in made.passes if each.what == "side_output"]
    regular = [("late", "has_rows"), ("unmatched", "has_rows")]
    assert sides == (regular if after else [("late", "expected"), ("unmatched", "expected"), *regular])
    require_sound(topology, made)


def test_two_ports_behind_one_operator(monkeypatch: pytest.MonkeyPatch) -> None:
    make_known(monkeypatch)
    panes = hours(source(), "w")
    topology = topology_of(pairs=pair(panes.node, panes.node))
    made = build_schedule(topology)
    require_sound(topology, made)
    assert [(each.what, each.subject) for each in made.passes if each.what in ("process", "consume")] == [
        ("process", "w"),
        ("process", "pairs"),
        ("consume", "w"),
        ("consume", "pairs"),
    ]


AGGREGATED = hours(source(), "aggregated").node.input
KEPT = hours(source(), "kept", kept=True).node.input


@dataclass
class Drawn:
    """A graph in the making: nodes to go on with, and rows that were put aside. Nodes are made by hand, whatever their columns."""

    draw: st.DrawFn
    pool: list[Node] = field(default_factory=list)
    sides: list[Node] = field(default_factory=list)

    def any(self) -> Node:
        return self.draw(st.sampled_from(self.pool))

    def put(self, node: Node, aside: OutputTag | None = None) -> None:
        self.pool.append(node)
        if aside is not None:
            self.sides.append(SideOutputNode(inputs=(node,), tag=aside))

    def put_split(self, tag: OutputTag) -> None:
        split = SplitNode(inputs=(self.any(),), branches=((tag, "v > 0"),))
        self.put(SideOutputNode(inputs=(split,), tag=tag))

    def put_window(self, template: Node, tag: OutputTag) -> None:
        assert isinstance(template, WindowNode)
        self.put(dataclasses.replace(template, inputs=(self.any(),), uid=f"w-{tag.name}", late_to=tag), tag)

    def put_side(self) -> None:
        """Once in the pool, rows that were put aside may be filtered, united and windowed as any others."""
        if self.sides:
            self.pool.append(self.draw(st.sampled_from(self.sides)))


MAKES: list[Callable[[Drawn, OutputTag], None]] = [
    lambda drawn, _: drawn.put(SelectNode(inputs=(drawn.any(),), columns=(("v", "v + 1"),))),
    lambda drawn, _: drawn.put(FilterNode(inputs=(drawn.any(),), condition="v > 0")),
    lambda drawn, tag: drawn.put(FilterNode(inputs=(drawn.any(),), condition="v > 0", rejects_to=tag), tag),
    lambda drawn, _: drawn.put(TransformNode(inputs=(drawn.any(),), function=lambda frame: frame)),
    lambda drawn, tag: drawn.put_split(tag),
    lambda drawn, _: drawn.put(UnionNode(inputs=(drawn.any(), drawn.any()))),
    lambda drawn, tag: drawn.put_window(AGGREGATED, tag),
    lambda drawn, tag: drawn.put_window(KEPT, tag),
    lambda drawn, tag: drawn.put(pair(drawn.any(), drawn.any(), f"p-{tag.name}", late_to=tag.name), tag),
    lambda drawn, _: drawn.put_side(),
]


@st.composite
def graphs(draw: st.DrawFn) -> dict[str, Node]:
    """Draw outputs over a graph of sources, filters, splits, unions, windows, pairs and side outputs, with nodes that are shared."""
    drawn = Drawn(draw)
    for name in ("a", "b")[: draw(st.integers(1, 2))]:
        bad = f"bad-{name}" if draw(st.booleans()) else ""
        drawn.put(source(name, bad).node, OutputTag(bad) if bad else None)
    for number, make in enumerate(draw(st.lists(st.sampled_from(MAKES), max_size=10))):
        make(drawn, OutputTag(f"tag{number}"))
    picked = draw(st.lists(st.sampled_from([*drawn.pool, *drawn.sides]), min_size=1, max_size=5))
    return {f"out{place}": node for place, node in enumerate(picked)}


@given(graphs())
def test_schedules_are_sound(nodes: Mapping[str, Node]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        make_known(patch)
        topology = topology_of(**nodes)
        require_sound(topology, build_schedule(topology))


def require_sound(topology: Topology, schedule: EpochSchedule) -> None:
    """Hold a schedule against what every epoch needs."""
    passes = schedule.passes
    staged = Counter(each.subject for each in passes if each.what in ("output", "side_output") and each.when != "expected")
    assert staged == dict.fromkeys(topology.outputs, 1)
    for what in ("process", "emit", "compact"):
        assert Counter(each.node for each in passes if each.what == what) == dict.fromkeys(topology.operators, 1)
    counted = Counter(name for each in passes for name in each.counts)
    assert set(counted.values()) <= {1}
    emitters = {node for node in topology.nodes if isinstance(node, SourceNode | FilterNode | SplitNode)}
    assert {node.name if isinstance(node, SourceNode) else topology.name(node) for node in emitters} <= counted.keys()
    known: set[str] = set()
    had_turn: set[Node] = set()
    processed: set[Node] = set()
    for each in passes:
        _require_in_order(topology, each, known, had_turn, processed)
        known |= set(each.counts)
        had_turn |= {each.node} if each.what == "emit" and each.node else set()
        processed |= {each.node} if each.what == "process" and each.node else set()
    results = {each.node for each in passes if each.what == "consume"}
    assert results == {node for node in topology.operators if topology.consumers.get(id(node))}


def _require_in_order(topology: Topology, each: Pass, known: set[str], had_turn: set[Node], processed: set[Node]) -> None:
    """Hold a pass against those before it."""
    match each.what:
        case "process" | "output" | "side_output" | "count":
            assert each.node is not None
            read = each.node.inputs if each.what == "process" else (each.node,)
            assert set(operators_before(*read)) <= had_turn, each
            if each.when == "has_rows":
                assert each.gate is not None
                if each.gate.emitter not in had_turn | processed:
                    emitter = each.gate.emitter
                    assert (emitter.name if isinstance(emitter, SourceNode) else topology.name(emitter)) in known, each
        case "emit":
            assert each.node in processed
            assert set(result_operators(*each.node.inputs)) <= had_turn
            assert {found.name for found in topology.upstream_sources(each.node)} <= known
        case "consume":
            assert each.node in had_turn
        case "watermarks":
            assert {found.name for found in topology.sources} <= known

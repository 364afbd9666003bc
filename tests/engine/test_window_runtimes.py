"""Which step runs which windows: elements are kept only where nothing less will do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import tidemark as tm
from tidemark.graph.operators.registry import kind_of
from tidemark.graph.operators.window.node import WindowNode
from tidemark.semantics.triggers.triggers import QuietTrigger
from tidemark.spark.operators.aligned.triggered import TriggeredRuntime
from tidemark.spark.operators.base.contract import OperatorRuntime
from tidemark.spark.operators.count.counted import CountedRuntime
from tidemark.spark.operators.process.buffered import BufferedRuntime
from tidemark.spark.operators.process.result_functions import ResultFunctionRuntime
from tidemark.spark.operators.window.runtimes import window_runtime_of

EARLY = tm.event_time_trigger(early=tm.count_trigger(3))
THEN = tm.window_function(lambda rows, _context: rows, "n BIGINT")

Make = Callable[[Any], tm.Stream]


def counted(windowed: Any) -> tm.Stream:
    made: tm.Stream = windowed.aggregate(n=tm.count())
    return made


def processed(windowed: Any) -> tm.Stream:
    made: tm.Stream = windowed.process(lambda rows, _context: rows, returns="n BIGINT")
    return made


CASES: dict[str, tuple[Make, type[OperatorRuntime]]] = {
    "count windows": (lambda keyed: counted(keyed.window(tm.count_window(5))), CountedRuntime),
    "count windows that slide": (lambda keyed: counted(keyed.window(tm.count_window(5, 2))), CountedRuntime),
    "count windows, reduced": (lambda keyed: keyed.window(tm.count_window(5)).reduce(t="a.t + b.t"), CountedRuntime),
    "count windows, processed": (lambda keyed: processed(keyed.window(tm.count_window(5))), BufferedRuntime),
    "discarding": (lambda keyed: counted(keyed.window(tm.tumbling("9 ms")).trigger(EARLY).discarding()), TriggeredRuntime),
    "discarding late panes": (
        lambda keyed: counted(keyed.window(tm.sliding("9 ms", "3 ms")).allowed_lateness("5 ms").discarding()),
        TriggeredRuntime,
    ),
    "the global one, discarding": (
        lambda keyed: counted(keyed.window(tm.global_window()).trigger(tm.count_trigger(2)).discarding()),
        TriggeredRuntime,
    ),
    "discarding, processed": (lambda keyed: processed(keyed.window(tm.tumbling("9 ms")).trigger(EARLY).discarding()), BufferedRuntime),
    "by a delta, discarding": (
        lambda keyed: counted(keyed.window(tm.tumbling("9 ms")).trigger(tm.delta_trigger(3, lambda a, b: b["t"] - a["t"])).discarding()),
        BufferedRuntime,
    ),
    "by a trigger of one's own, discarding": (
        lambda keyed: counted(keyed.window(tm.tumbling("9 ms")).trigger(tm.purging_trigger(QuietTrigger()))),
        BufferedRuntime,
    ),
    "with an evictor": (
        lambda keyed: processed(keyed.window(tm.global_window()).trigger(tm.count_trigger(2)).evictor(tm.count_evictor(2))),
        BufferedRuntime,
    ),
}


def node_of(make: Make) -> WindowNode:
    source = tm.source(
        "e", tm.from_elements(epochs=[[]], schema="k STRING, t BIGINT"), watermarks=tm.bounded_out_of_orderness("0 ms", timestamp="t")
    )
    node = make(source.key_by("k")).node
    assert isinstance(node, WindowNode)
    return node


@pytest.mark.parametrize("name", CASES)
def test_aggregates_keep_no_elements_where_a_rule_says_when_windows_fire(name: str) -> None:
    make, expected = CASES[name]
    node = node_of(make)
    assert type(window_runtime_of(node)) is expected
    # What is scheduled from the graph alone is what that step does.
    assert kind_of(node).late_known_after_emit(node) is (expected is BufferedRuntime)


def test_a_function_behind_aggregates_leaves_them_their_step() -> None:
    runtime = window_runtime_of(node_of(lambda keyed: keyed.window(tm.count_window(5)).aggregate(THEN, n=tm.count())))
    assert isinstance(runtime, ResultFunctionRuntime)
    assert type(runtime.inner) is CountedRuntime

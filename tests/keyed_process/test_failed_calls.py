"""What a failed call did is undone, all of it; and wrong calls say what is wrong at once."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pyarrow as pa
import pytest

import tidemark as tm
from tests.keyed_process.tasks import Tasks
from tidemark.errors import UserCodeError
from tidemark.graph.operators.keyed_process.node import KeyedProcessNode
from tidemark.semantics.keyed_process.times import EpochTimes
from tidemark.spark.operators.keyed_process.task import ProcessKeys
from tidemark.testing import OperatorHarness

FAILED, SIDE = tm.OutputTag("failed"), tm.OutputTag("side")
Row = Mapping[str, Any]


def read(name: str, schema: str = "k STRING, t BIGINT, ops STRING") -> tm.Stream:
    return tm.source(name, tm.from_elements([], schema=schema), watermarks=tm.ascending(timestamp="t"))


KEYED = read("rows").key_by("k")


class CleansUp:
    """Fails while its generator is suspended, which writes more when it is closed."""

    n = tm.value_state("BIGINT")

    def process(self, element: Row, ctx: tm.ProcessContext) -> Iterator[Any]:
        try:
            yield element["t"]
        finally:
            self.n.update(1)
            ctx.timer_service().register_event_time_timer(10**6)
            ctx.output(SIDE, {"n": 1})


def test_what_a_generator_does_at_its_end_is_undone() -> None:
    stream = KEYED.process(CleansUp, returns="n BIGINT", side_outputs={SIDE: "n BIGINT"}, on_error=FAILED).uid("p")
    harness = OperatorHarness(stream)
    harness.process({"k": "a", "t": 5, "ops": ""}, at=5)
    assert harness.advance_watermark(10) == []
    assert len(harness.side_output(FAILED)) == 1
    assert (harness.state(), harness.timers(), harness.side_output(SIDE)) == ([], [], [])


def test_what_a_generator_without_a_key_emits_at_its_end_is_dropped() -> None:
    def leaves(element: Row, ctx: tm.ProcessContext) -> Iterator[Any]:
        try:
            yield element["t"] if element["k"] == "a" else {"n": 2}
        finally:
            ctx.output(SIDE, {"n": element["t"]})

    stream = read("rows").process(leaves, returns="n BIGINT", side_outputs={SIDE: "n BIGINT"}, on_error=FAILED)
    harness = OperatorHarness(stream)
    for time, key in enumerate("ab"):
        harness.process({"k": key, "t": time, "ops": ""}, at=time)
    assert harness.advance_watermark(10) == [{"n": 2}]
    assert harness.side_output(SIDE) == [{"n": 1}]


def emits_batch(element: Row, ctx: tm.ProcessContext) -> None:
    ctx.output(SIDE, pa.RecordBatch.from_pydict({"n": [element["t"]]}))


def names_timer(element: Row, ctx: tm.ProcessContext) -> None:
    del element
    ctx.timer_service().register_event_time_timer(10**6, json.loads('"\\ud83d"'))


@pytest.mark.parametrize(
    ("function", "message"),
    [(emits_batch, "the side output 'side' is given a RecordBatch as a row"), (names_timer, "a timer's name is '\\ud83d', not a text")],
)
def test_wrong_calls_are_refused(function: Callable[..., None], message: str) -> None:
    for on_error in (None, FAILED):
        harness = OperatorHarness(KEYED.process(function, returns="n BIGINT", side_outputs={SIDE: "n BIGINT"}, on_error=on_error).uid("p"))
        harness.process({"k": "a", "t": 5, "ops": ""}, at=5)
        if on_error is None:
            with pytest.raises(UserCodeError) as raised:
                harness.advance_watermark(10)
            assert message in raised.value.what
        else:
            assert harness.advance_watermark(10) == []
            (failed,) = harness.side_output(FAILED)
            assert message in str(failed["error"])


def shows_half(element: Row, ctx: tm.ProcessContext) -> None:
    del element, ctx
    raise ValueError("no " + json.loads('"\\ud83d"'))


def test_what_a_failed_call_says_can_be_written() -> None:
    harness = OperatorHarness(KEYED.process(shows_half, returns="n BIGINT", on_error=FAILED).uid("p"))
    harness.process({"k": "a", "t": 5, "ops": ""}, at=5)
    harness.advance_watermark(10)
    (failed,) = harness.side_output(FAILED)
    assert str(failed["error"]).startswith("ValueError: no \\ud83d (at ")


class Edits:
    """Does what an element says with a map, and fails if it says so; emits the keys of the map, in their order."""

    seen = tm.map_state("STRING", "INT")

    def process(self, element: Row, ctx: tm.ProcessContext) -> Iterator[Row]:
        del ctx
        for op in element["ops"]:
            if op == "!":
                raise ValueError("refused")
            if op == "0":
                self.seen.clear()
            elif op.isupper():
                self.seen.remove(op.lower())
            else:
                self.seen.put(op, element["t"])
        yield {"order": "".join(self.seen.keys())}


@pytest.mark.parametrize(
    "refused", ["A", "B", "C", "BA", "Bb", "BbB", "xB", "BxX", "CyAzBcC", "Ax0ab", "ABC", "ABCcba", "B0pqrPb", "BxXaAb", "DdA", "bBxC0aAyY"]
)
@pytest.mark.parametrize("before", ["", "A", "xX", "Dd"])
def test_a_map_keeps_its_order_when_what_a_call_removed_is_undone(before: str, refused: str) -> None:
    orders = []
    for tried in ("", refused + "!"):
        harness = OperatorHarness(KEYED.process(Edits, returns="order STRING", on_error=FAILED).uid("p"))
        for time, ops in enumerate(("dabcef", before, tried, "Eg")):
            harness.process({"k": "a", "t": time, "ops": ops or "d"}, at=time)
        orders.append([row["order"] for row in harness.advance_watermark(10)][-1])
        assert len(harness.side_output(FAILED)) == bool(tried)
    assert orders[0] == orders[1]


class Both:
    """A function of two inputs."""

    def process1(self, element: Row, ctx: tm.ProcessContext) -> None:
        raise ValueError(f"refused {element} at {ctx.timestamp}")

    process2 = process1


def test_failed_elements_of_two_inputs_may_have_a_column_error() -> None:
    with_error = "k STRING, t BIGINT, error STRING"
    one, other = (read(name, with_error).key_by("k") for name in ("a", "b"))
    harness = OperatorHarness(one.connect(other).process(Both, returns="v BIGINT", on_error=FAILED).uid("p"))
    harness.process({"k": "a", "t": 5, "error": "own"}, at=5, port="first")
    harness.advance_watermark(10)
    (failed,) = harness.side_output(FAILED)
    assert json.loads(str(failed["element"]))["error"] == "own"


class Zeros:
    """Turns the sign of a zero around."""

    zero = tm.value_state("DOUBLE", default=0.0)
    within = tm.list_state("STRUCT<x: DOUBLE>")

    def process(self, element: Row, ctx: tm.ProcessContext) -> Iterator[Row]:
        del ctx
        (nested,) = self.within.get() or [{"x": 0.0}]
        yield {"text": f"{self.zero.value()} {nested['x']}"}
        if element["t"] != 3:
            self.zero.update(-self.zero.value())
            self.within.update([{"x": -nested["x"]}])


@pytest.mark.usefixtures("spark")
def test_a_zero_of_the_other_sign_is_another_value() -> None:
    node = KEYED.process(Zeros, returns="text STRING").uid("p").node
    assert isinstance(node, KeyedProcessNode)
    tasks = Tasks(ProcessKeys, node, {"zero": (pa.float64(), None), "within": (pa.struct([("x", pa.float64())]), None)})
    found: list[Any] = []
    for time in range(1, 6):
        rows = [json.loads(row) for row in tasks.run([("k1", time, "")], EpochTimes(time - 1, time, 0, 0))]
        found += [row["result_text"] for row in rows if "result_text" in row]
    assert found == ["0.0 0.0", "-0.0 -0.0", "0.0 0.0", "0.0 0.0", "-0.0 -0.0"]

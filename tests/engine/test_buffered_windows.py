"""Windows that keep their elements, in jobs: deadlines without input, what follows them, restarts, errors, files; by hand."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import tidemark as tm
from tests.engine.lab import NOW, Lab, Ran, elements, require_conservation
from tidemark.errors import UserCodeError
from tidemark.semantics.triggers.triggers import QuietTrigger, TriggerContext, TriggerResult
from tidemark.semantics.windows.windows import Window
from tidemark.state.log.progress import EpochProgress
from tidemark.testing.manual_clock import ManualClock

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

SCHEMA = "k STRING, t BIGINT, v INT"
LISTED = "values ARRAY<INT>, calls BIGINT"


def listed(rows: Sequence[Mapping[str, Any]], context: tm.WindowContext) -> Iterator[dict[str, object]]:
    calls = int(str(context.key_state.get("calls", 0))) + 1
    context.key_state["calls"] = calls
    yield {"values": [row["v"] for row in rows], "calls": calls}


@pytest.fixture
def lab(spark: SparkSession, tmp_path: Path) -> Lab:
    return Lab(spark, tmp_path)


@pytest.fixture(scope="module")
def ran(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Ran:
    """What one job does with streams of their own, at each of which a test looks."""
    streams = in_order() | touched() | following() | late_rows() | reduced() | keys_with_nulls() | called_as_state() | kept_with_a_map()
    return Lab(spark, tmp_path_factory.mktemp("buffered")).run(streams)


def waiting(job: tm.Job, spark: SparkSession, *, waits: Sequence[int]) -> list[EpochProgress]:
    """Run a job without an end: after each epoch the clock goes on by the next of ``waits``; after the last of them it stops."""
    clock, stop, seen = ManualClock(NOW), threading.Event(), list[EpochProgress]()

    def after(epoch: EpochProgress) -> None:
        seen.append(epoch)
        if len(seen) > len(waits):
            stop.set()
        else:
            clock.advance(waits[len(seen) - 1])

    tm.run(job, spark=spark, trigger="50 milliseconds", clock=clock, stop=stop, on_epoch=after, handle_signals=False)
    for epoch in seen:
        require_conservation(epoch)
    return seen


def in_order() -> dict[str, tm.Stream]:
    rows = [("a", 5, 1), ("b", 3, 2), ("a", 2, 3)], [("a", 9, 4), ("a", 12, 5), ("a", 1, 6)]
    windows = elements(*rows, schema=SCHEMA, name="in_order").key_by("k").window(tm.tumbling("10 ms"))
    return {"in-order": windows.process(listed, returns=LISTED).uid("in-order")}


def test_a_process_function_sees_all_elements_of_a_window_in_order(ran: Ran) -> None:
    assert ran.of("in-order", "k", "values", "calls", "pane_timing", "pane_index") == [
        ("a", [3, 1, 6, 4], 1, "ON_TIME", 0),
        ("a", [5], 2, "ON_TIME", 0),
        ("b", [2], 1, "ON_TIME", 0),
    ]
    assert [epoch.operators["in-order"].windows_closed for epoch in ran.epochs] == [0, 1, 1]


def touched() -> dict[str, tm.Stream]:
    bound = tm.bounded_out_of_orderness("5 ms", timestamp="t")
    # The first session of "a" ends where the watermark is, at 9; the element at 10 touches it, and both are due at 19.
    rows = [("a", 0, 1), ("b", 15, 2)], [("a", 10, 3), ("b", 25, 4)]
    stream = elements(*rows, schema=SCHEMA, watermarks=bound, name="touched")
    windows = stream.key_by("k").window(tm.session("10 ms")).allowed_lateness("100 ms")
    return {"touched": windows.process(listed, returns=LISTED).uid("touched")}


def test_an_element_that_touches_a_fired_session_finds_its_elements(ran: Ran) -> None:
    assert ran.of("touched", "k", "values", "pane_timing", "pane_index") == [
        ("a", [1, 3], "ON_TIME", 1),
        ("a", [1], "ON_TIME", 0),
        ("b", [2, 4], "ON_TIME", 0),
    ]


def test_windows_of_processing_time_and_steps_of_the_clock_fire_without_input(spark: SparkSession, tmp_path: Path) -> None:
    stream = elements([("a", 5, 1), ("b", 6, 2), ("a", 7, 3)], schema=SCHEMA)
    by_clock = stream.key_by("k").window(tm.tumbling("1 minute", time="processing")).process(listed, returns=LISTED).uid("clock")
    step = tm.continuous_processing_time_trigger("10 seconds")
    steps = stream.key_by("k").window(tm.session("5 ms")).trigger(tm.event_time_trigger(early=step)).aggregate(n=tm.count()).uid("steps")
    names = {name: f"{tmp_path}/{name}" for name in ("clock", "steps")}
    outputs = {"clock": tm.memory(by_clock, names["clock"]), "steps": tm.memory(steps, names["steps"])}
    job = tm.Job("job", outputs=outputs, store=str(tmp_path / "store"))
    to_step, to_minute = 10_000 - NOW % 10_000, 60_000 - NOW % 60_000
    seen = waiting(job, spark, waits=[to_step, 10_000, to_minute - to_step - 10_000])
    assert [epoch.processing_time - NOW for epoch in seen] == [0, to_step, to_step + 10_000, to_minute]
    assert [epoch.operators["steps"].panes_early for epoch in seen] == [0, 2, 2, 2]
    assert [epoch.operators["clock"].panes_on_time for epoch in seen] == [0, 0, 0, 2]
    table = tm.memory_table(names["clock"])
    assert table is not None
    assert sorted(table.column("values").to_pylist()) == [[1, 3], [2]]


def test_a_silent_source_lets_event_time_timers_fire(spark: SparkSession, tmp_path: Path) -> None:
    strategy = tm.bounded_out_of_orderness("0 ms", timestamp="t", idle_after="1 minute", advance_when_idle=True)
    stream = elements([("a", NOW - 5, 1)], schema=SCHEMA, watermarks=strategy)
    panes = stream.key_by("k").window(tm.session("2 minutes")).process(listed, returns=LISTED).uid("w")
    job = tm.Job("job", outputs={"panes": tm.memory(panes, f"{tmp_path}/panes")}, store=str(tmp_path / "store"))
    seen = waiting(job, spark, waits=[60_000, 120_000])
    assert [epoch.operators["w"].panes_on_time for epoch in seen] == [0, 0, 1]


def following() -> dict[str, tm.Stream]:
    stream = elements([("a", 1, 1), ("a", 2, 2), ("b", 3, 3)], [("a", 12, 4), ("b", 25, 5)], schema=SCHEMA, name="followed")
    counted = stream.key_by("k").window(tm.count_window(2)).aggregate(total=tm.sum("v")).uid("pairs")
    tens = stream.key_by("k").window(tm.tumbling("10 ms")).process(listed, returns=LISTED).uid("tens")
    twenties = tens.window_all(tm.tumbling("20 ms")).process(
        lambda rows, _context: [{"seen": [f"{row['k']}{row['values']}" for row in rows]}], returns="seen ARRAY<STRING>"
    )
    sums = counted.window_all(tm.tumbling("10 ms")).aggregate(totals=tm.collect_list("total"))
    return {"pairs": counted, "twenties": twenties.uid("twenties"), "sums": sums.uid("sums")}


def test_windows_follow_windows_that_keep_their_elements(ran: Ran) -> None:
    assert ran.of("pairs", "k", "total", "window_start", "pane_index") == [("a", 3, None, 0), ("b", 8, None, 0)]
    (first, second) = ran.of("twenties", "seen")
    assert (sorted(first[:2]), first[2:], second) == (["a[1, 2]", "b[3]"], ["a[4]"], ["b[5]"])
    # The time of a group is that of its last element.
    assert ran.of("sums", "totals") == [[3], [8]]


def late_rows() -> dict[str, tm.Stream]:
    late = tm.OutputTag("late")
    stream = elements([("a", 1, 1), ("a", 25, 2)], [("a", 2, 3), ("b", 3, 4), ("a", 26, 5)], schema=SCHEMA, name="some_late")
    panes = stream.key_by("k").window(tm.tumbling("10 ms")).late_to(late).process(listed, returns=LISTED).uid("some-late")
    refused = panes.side_output(late)
    again = refused.window_all(tm.global_window()).trigger(tm.each_epoch_trigger()).process(listed, returns=LISTED).uid("again")
    odd = refused.filter("v % 2 = 1")
    return {"some-late": panes, "again": again, "late": refused, "odd": odd}


def test_late_rows_of_such_windows_are_rows_like_others(ran: Ran) -> None:
    assert ran.of("late", "k", "t", "v") == [("a", 2, 3), ("b", 3, 4)]
    assert ran.of("odd", "v") == [3]
    assert ran.of("again", "values", "pane_timing") == [([3, 4], "EARLY")]
    assert [epoch.operators["some-late"].rows_late for epoch in ran.epochs] == [0, 2, 0]
    assert [epoch.operators["some-late"].late_windows for epoch in ran.epochs] == [(), (0,), ()]


def reduced() -> dict[str, tm.Stream]:
    stream = elements([("a", 1, 5), ("a", 2, 7)], [("a", 3, 1), ("b", 4, 2), ("a", 40, 9)], schema=SCHEMA, name="reduced")

    def latest(earlier: dict[str, Any], later: dict[str, Any]) -> dict[str, Any]:
        return {"v": earlier["v"] + later["v"], "t": later["t"]}

    windowed = stream.key_by("k").window(tm.session("10 ms"))
    native = windowed.reduce(v="a.v + b.v", t="greatest(a.t, b.t)").uid("native")
    python = windowed.reduce(latest, columns=["v", "t"]).uid("python")
    each = tm.event_time_trigger(early=tm.each_epoch_trigger(), late=tm.never_trigger())
    kept = windowed.trigger(each).reduce(v="a.v + b.v", t="greatest(a.t, b.t)").uid("kept")
    return {"native": native, "python": python, "kept": kept}


def test_reduce_is_the_same_whichever_way_windows_are_run(ran: Ran) -> None:
    assert ran.of("native", "k", "v", "t", "pane_timing") == [("a", 13, 3, "ON_TIME"), ("a", 9, 40, "ON_TIME"), ("b", 2, 4, "ON_TIME")]
    assert ran.of("python", "k", "v", "t") == ran.of("native", "k", "v", "t")
    assert ran.of("kept", "k", "v", "t", "pane_timing", "pane_index") == [
        ("a", 12, 2, "EARLY", 0),
        ("a", 13, 3, "ON_TIME", 1),
        ("a", 9, 40, "EARLY", 0),
        ("a", 9, 40, "ON_TIME", 1),
        ("b", 2, 4, "ON_TIME", 0),
    ]


class Refusing(QuietTrigger):
    """A trigger that fails at one element."""

    def on_element(self, element: object, timestamp: int, window: Window, context: TriggerContext) -> TriggerResult:  # noqa: ARG002
        if isinstance(element, Mapping) and element["v"] == 13:
            raise LookupError("unlucky\nnumber")
        return TriggerResult.CONTINUE


def unlucky(rows: Sequence[Mapping[str, Any]], context: tm.WindowContext) -> list[dict[str, object]]:  # noqa: ARG001
    return [{"values": [8 // (row["v"] - 13) for row in rows]}]


def misfit(rows: Sequence[Mapping[str, Any]], context: tm.WindowContext) -> list[dict[str, object]]:  # noqa: ARG001
    return [{"values": [1, "two"] if rows[0]["v"] == 13 else []}]


def unknown(rows: Sequence[Mapping[str, Any]], context: tm.WindowContext) -> list[dict[str, object]]:  # noqa: ARG001
    return [{"value": 1}]


def unkept(rows: Sequence[Mapping[str, Any]], context: tm.WindowContext) -> list[dict[str, object]]:  # noqa: ARG001
    context.key_state["lab"] = {1, 2}
    return []


@pytest.mark.parametrize(
    ("name", "function", "trigger", "said"),
    [
        ("raises", unlucky, None, r"window function unlucky failed for the window \[0, 10\): ZeroDivisionError: .*\{'k': 'b'\}.*'w'"),
        (
            "misfit",
            misfit,
            None,
            r"'two' \(str\) as 'values', which does not fit INT, for the key .* \[0, 10\).*types in returns",
        ),
        ("unknown", unknown, None, r"column 'value', which it does not declare, for the key .* and the window \[0, 10\).*'w'"),
        ("unkept", unkept, None, r"the state of a window function holds \{1, 2\}.*for the key .*'w'.*plain values"),
        ("trigger", listed, Refusing(), r"trigger Refusing failed for the key \{'k': 'b'\}: LookupError: unlucky number.*'w'"),
    ],
)
def test_what_fails_is_named(lab: Lab, name: str, function: Any, trigger: Any, said: str) -> None:
    windows = elements([("a", 1, 1), ("b", 2, 13), ("a", 30, 1)], schema=SCHEMA).key_by("k").window(tm.tumbling("10 ms"))
    windows = windows if trigger is None else windows.trigger(trigger)
    panes = windows.process(function, returns="values ARRAY<INT>").uid("w")
    with pytest.raises(UserCodeError, match=said):
        lab.run({"panes": panes}, job=name)


NESTED = {"struct": "struct(a, b)", "deep": "array(array(a), array(b))"}


def keys_with_nulls() -> dict[str, tm.Stream]:
    rows = [(1, None, 1, 10), (None, 1, 2, 20)], [(1, None, 3, 30)]
    stream = elements(*rows, schema="a INT, b INT, t BIGINT, v INT", name="nulls")
    told = tm.window_function(lambda found, context: [{"m": found[0]["n"], "of": str(context.key)}], "m BIGINT, of STRING")
    windows = stream.key_by("a", "b").window(tm.tumbling("10 ms"))
    outputs = {"process": windows.process(listed, returns=LISTED).uid("process"), "both": windows.aggregate(told, n=tm.count()).uid("both")}
    for name, key in NESTED.items():
        outputs[name] = stream.key_by(key=key).window(tm.tumbling("10 ms")).process(listed, returns=LISTED).uid(name)
    return outputs


def test_keys_whose_nulls_stand_elsewhere_are_two(ran: Ran) -> None:
    assert ran.of("process", "a", "b", "values", "calls") == [(1, None, [10, 30], 1), (None, 1, [20], 1)]
    assert ran.of("both", "a", "b", "m", "of") == [(1, None, 2, "{'a': 1, 'b': None}"), (None, 1, 1, "{'a': None, 'b': 1}")]
    for name in NESTED:
        assert sorted(ran.of(name, "values", "calls")) == [([10, 30], 1), ([20], 1)]


def called_as_state() -> dict[str, tm.Stream]:
    stream = elements([("a", "x", 1, 1), ("a", "y", 2, 2)], schema="k STRING, key_k STRING, t BIGINT, v INT", name="called")
    windows = stream.key_by("k").window(tm.tumbling("10 ms"))
    delta = tm.delta_trigger(9, lambda last, element: element["v"] - last["v"])
    kept = windows.trigger(tm.event_time_trigger(early=delta)).aggregate(top=tm.max("key_k")).uid("called-top")
    return {"called": windows.process(listed, returns=LISTED).uid("called"), "called-top": kept}


def test_a_column_may_be_called_as_the_state_calls_a_key(ran: Ran) -> None:
    assert ran.of("called", "k", "values") == [("a", [1, 2])]
    assert ran.of("called-top", "k", "top") == [("a", "y")]


def kept_with_a_map() -> dict[str, tm.Stream]:
    rows: list[list[tuple[object, ...]]] = [[("a", 1, 1, {"toll": 3})], [("a", 2, 5, {})]]
    stream = elements(*rows, schema="k STRING, t BIGINT, v INT, fees MAP<STRING, INT>", name="fees")
    delta = tm.delta_trigger(3, lambda last, element: element["v"] - last["v"])
    windows = stream.key_by("k").window(tm.tumbling("10 ms")).trigger(tm.event_time_trigger(early=delta))
    return {"fees": windows.aggregate(n=tm.count()).uid("fees")}


def test_a_trigger_may_keep_a_row_with_a_map(ran: Ran) -> None:
    assert ran.of("fees", "k", "n", "pane_timing") == [("a", 2, "EARLY"), ("a", 2, "ON_TIME")]

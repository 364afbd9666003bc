"""Sessions that fire by a trigger, from aggregates, do in every epoch what the element-by-element reference does."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import tidemark as tm
from tests.engine.lab import Lab, elements
from tests.engine.session_cases import require_same, run_engine, run_expected, triggered_case
from tests.engine.test_sessions import SCHEMA, merge_files_early, take_rows_one_by_one, write_touched_only
from tests.milliseconds import ms
from tests.seeds import PROFILE, new_seeds, only_long, times
from tidemark.graph.operators.window.node import WindowNode
from tidemark.semantics.triggers.builtin_triggers import (
    ContinuousEventTimeTrigger,
    ContinuousProcessingTimeTrigger,
    CountTrigger,
    EachEpochTrigger,
    EventTimeTrigger,
    NeverTrigger,
    ProcessingTimeTrigger,
    PurgingTrigger,
)
from tidemark.semantics.triggers.triggers import Trigger
from tidemark.spark.operators.session.session_triggers import TriggeredSessionRuntime
from tidemark.spark.operators.window.runtimes import window_runtime_of
from tidemark.state.log.records import OperatorState, StateFile

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

WAYS = {
    "all written": (),
    "touched and merged": (write_touched_only, merge_files_early, take_rows_one_by_one),
}
SEEN = {"all written": slice(None, None, 2), "touched and merged": slice(1, None, 2)} if PROFILE != "long" else {}
"""Which operators of a case are seen in each way."""


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
def test_triggered_sessions_agree_with_the_reference(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    for change in WAYS[way]:
        change(monkeypatch)
    others = new_seeds(f"triggered sessions {way}", times(1))
    for seed in others if WAYS[way] else [35]:
        try:
            case = triggered_case(seed)
            case = replace(case, operators=case.operators[SEEN.get(way, slice(None))])
            require_same(run_engine(case, spark, tmp_path / str(seed)), run_expected(case))
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise


@only_long
@pytest.mark.slow
def test_triggered_sessions_go_on_elsewhere(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_touched_only(monkeypatch)
    case = triggered_case(36, most=3)
    found = run_engine(case, spark, tmp_path, epochs=3, end_of_input=False)
    found += run_engine(case, spark, tmp_path, first=len(found), parallelism=3)
    require_same(found, run_expected(case))


def windows(trigger: Trigger, *, lateness: int = 0) -> tm.WindowedStream:
    return elements(schema=SCHEMA).key_by("k").window(tm.session("10 ms")).allowed_lateness(ms(lateness)).trigger(trigger)


def node_of(trigger: Trigger) -> WindowNode:
    node = windows(trigger).aggregate(n=tm.count()).uid("sessions").node
    assert isinstance(node, WindowNode)
    return node


@pytest.mark.parametrize(
    ("trigger", "native"),
    [
        (CountTrigger(2), True),
        (EachEpochTrigger(), True),
        (ContinuousEventTimeTrigger(5), True),
        (ContinuousProcessingTimeTrigger(5), True),
        (ProcessingTimeTrigger(), True),
        (NeverTrigger(), True),
        (EventTimeTrigger(CountTrigger(2), EachEpochTrigger()), True),
        (EventTimeTrigger(None, CountTrigger(2)), True),
        (EventTimeTrigger(late=NeverTrigger()), False),
        (EventTimeTrigger(early=PurgingTrigger(CountTrigger(2))), False),
        (PurgingTrigger(CountTrigger(2)), False),
    ],
    ids=lambda value: value.describe() if hasattr(value, "describe") else "",
)
def test_which_triggers_need_no_elements(trigger: Trigger, native: bool) -> None:  # noqa: FBT001
    assert isinstance(window_runtime_of(node_of(trigger)), TriggeredSessionRuntime) == native


def test_elements_are_kept_for_functions() -> None:
    node = windows(CountTrigger(2)).process(lambda rows, _: [{"n": len(rows)}], returns="n BIGINT").uid("sessions").node
    assert isinstance(node, WindowNode)
    assert not isinstance(window_runtime_of(node), TriggeredSessionRuntime)


def state(counters: dict[str, int], *ends: tuple[int, int]) -> OperatorState:
    files = tuple(StateFile(f"{number}.parquet", 1, 1, low, high, 0) for number, (low, high) in enumerate(ends))
    return OperatorState({}, files, watermark=100, counters=counters)


def test_when_the_next_session_is_due() -> None:
    def due(trigger: Trigger, counters: dict[str, int], *ends: tuple[int, int]) -> tuple[int | None, int | None]:
        runtime, kept = window_runtime_of(node_of(trigger)), state({"processing_time": 1000, **counters}, *ends)
        return runtime.next_timer(kept), runtime.next_processing_time(kept)

    assert due(EventTimeTrigger(EachEpochTrigger()), {}, (120, 150)) == (119, None)
    assert due(CountTrigger(3), {}, (120, 150)) == (None, None)
    assert due(ContinuousEventTimeTrigger(7), {"next_step": 112}, (120, 150)) == (112, None)
    assert due(ContinuousEventTimeTrigger(7), {"next_step": 2**63 - 1}, (120, 150)) == (119, None)
    assert due(ContinuousEventTimeTrigger(7), {"next_step": 112}) == (None, None)
    assert due(ContinuousProcessingTimeTrigger(300), {}, (120, 150)) == (None, 1200)
    assert due(ContinuousProcessingTimeTrigger(300), {}) == (None, None)
    assert due(EventTimeTrigger(ContinuousProcessingTimeTrigger(300)), {}, (90, 101)) == (None, None)
    assert due(ProcessingTimeTrigger(), {}, (990, 1020)) == (None, 1001)
    assert due(ProcessingTimeTrigger(), {"next_end": 1015}, (990, 1020)) == (None, 1015)


def test_an_early_pane_is_replaced_when_the_session_grows(spark: SparkSession, tmp_path: Path) -> None:
    epochs: list[list[tuple[object, ...]]] = [[("a", 20, 0), ("a", 21, 0)], [("a", 12, 0)], [("a", 8, 0)], [("z", 40, 0)]]
    trigger = EventTimeTrigger(early=CountTrigger(2))
    strategy = tm.bounded_out_of_orderness("100 ms", timestamp="t")
    stream = elements(*epochs, schema=SCHEMA, watermarks=strategy).key_by("k").window(tm.session("10 ms")).trigger(trigger)
    ran = Lab(spark, tmp_path).run({"panes": stream.aggregate(n=tm.count()).uid("sessions")})
    panes = [
        (
            row["pane_timing"],
            row["pane_index"],
            row["n"],
            [[int(at.timestamp() * 1000) for at in each.values()] for each in row["replaces"]],
        )
        for row in ran.rows["panes"]
        if row["k"] == "a"
    ]
    assert panes == [("EARLY", 0, 2, []), ("EARLY", 1, 4, [[20, 31]]), ("ON_TIME", 2, 4, [])]
    assert [epoch.operators["sessions"].panes_early for epoch in ran.epochs] == [1, 0, 1, 0, 0]

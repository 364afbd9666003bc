"""Triggers by themselves: their settings, what they refuse, and what they keep apart. What they do is in the transcripts."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest

from tidemark.errors import DefinitionError, DurationError, UserCodeError
from tidemark.semantics.triggers.builtin_triggers import (
    ContinuousEventTimeTrigger,
    ContinuousProcessingTimeTrigger,
    CountTrigger,
    DeltaTrigger,
    EachEpochTrigger,
    EventTimeTrigger,
    NeverTrigger,
    ProcessingTimeTrigger,
    PurgingTrigger,
    default_trigger,
)
from tidemark.semantics.triggers.trigger_calls import MAX_FIRINGS, DueTimers, StoredContext
from tidemark.semantics.triggers.trigger_scope import MergeScope, TriggerScope
from tidemark.semantics.triggers.triggers import QuietTrigger, Trigger, TriggerContext, TriggerResult
from tidemark.semantics.triggers.window_state import WindowState
from tidemark.semantics.watermarks.operator_clock import OperatorClock
from tidemark.semantics.watermarks.watermarks import MAX_WATERMARK
from tidemark.semantics.windows.assigners import CountWindows, GlobalWindows, Session, Tumbling
from tidemark.semantics.windows.windows import Window

WINDOW = Window(0, 10)
CLOCK = OperatorClock("event", epoch=0, before=-1, watermark=100, processing_time=50)


def apart(last: object, row: object) -> float:
    assert isinstance(last, dict)
    assert isinstance(row, dict)
    return float(abs(row["x"] - last["x"]))


def context(state: WindowState | None = None, watermark: int = -1) -> StoredContext:
    return StoredContext(state or WindowState(WINDOW), CLOCK, watermark)


@pytest.mark.parametrize(
    ("trigger", "text", "merges"),
    [
        (EventTimeTrigger(), "event_time_trigger()", True),
        (EventTimeTrigger(early=CountTrigger(3)), "event_time_trigger(early=count_trigger(3))", True),
        (
            EventTimeTrigger(NeverTrigger(), DeltaTrigger(1, "x")),
            "event_time_trigger(early=never_trigger(), late=delta_trigger(1, 'x'))",
            False,
        ),
        (ProcessingTimeTrigger(), "processing_time_trigger()", True),
        (ContinuousEventTimeTrigger(5), "continuous_event_time_trigger('5ms')", True),
        (ContinuousProcessingTimeTrigger(5), "continuous_processing_time_trigger('5ms')", True),
        (CountTrigger(5), "count_trigger(5)", True),
        (DeltaTrigger(0.5, apart), "delta_trigger(0.5, apart)", False),
        (EachEpochTrigger(), "each_epoch_trigger()", True),
        (PurgingTrigger(CountTrigger(2)), "purging_trigger(count_trigger(2))", True),
        (PurgingTrigger(DeltaTrigger(1, apart)), "purging_trigger(delta_trigger(1, apart))", False),
        (QuietTrigger(), "QuietTrigger", True),
    ],
)
def test_triggers_describe_themselves_and_say_whether_they_merge(trigger: Trigger, text: str, merges: bool) -> None:  # noqa: FBT001
    assert (trigger.describe(), trigger.can_merge) == (text, merges)


@pytest.mark.parametrize("make", [ContinuousEventTimeTrigger, ContinuousProcessingTimeTrigger])
@pytest.mark.parametrize("interval", [0, -1, 1.5, True])
def test_bad_intervals(make: Callable[[int], object], interval: int) -> None:
    with pytest.raises(DurationError, match=r"interval=.* must be a positive number of milliseconds.*Fix:"):
        make(interval)


@pytest.mark.parametrize("count", [0, -1, 2.0, True])
def test_bad_counts(count: int) -> None:
    with pytest.raises(DefinitionError, match=r"count=.* is not a positive number of elements.*Fix:"):
        CountTrigger(count)


def test_defaults() -> None:
    assert default_trigger(Session(5)) == EventTimeTrigger()
    assert default_trigger(Tumbling(5, domain="processing")) == ProcessingTimeTrigger()
    assert default_trigger(GlobalWindows()) == default_trigger(CountWindows(5)) == NeverTrigger()


def test_delta_refuses_sql_what_is_no_row_and_a_function_that_fails() -> None:
    seen = context()
    sql = DeltaTrigger(1, "abs(b.x - a.x)")
    assert sql.on_element({"x": 1}, 0, WINDOW, seen) == TriggerResult.CONTINUE
    with pytest.raises(DefinitionError, match=r"delta 'abs\(b.x - a.x\)' is SQL.*Fix:"):
        sql.on_element({"x": 2}, 0, WINDOW, seen)
    with pytest.raises(DefinitionError, match=r"a delta trigger takes rows, not 'x'.*Fix:"):
        DeltaTrigger(1, apart).on_element("x", 0, WINDOW, seen)
    with pytest.raises(UserCodeError, match=r"delta apart failed: KeyError: 'x'.*Fix:"):
        DeltaTrigger(1, apart).on_element({"y": 2}, 0, WINDOW, seen)


def test_delta_fires_beyond_the_threshold_only() -> None:
    seen, trigger = context(), DeltaTrigger(2, apart)
    answers = [trigger.on_element({"x": x}, 0, WINDOW, seen) for x in (5, 7, 8, 6, 5)]
    fire, go_on = TriggerResult.FIRE, TriggerResult.CONTINUE
    assert answers == [go_on, go_on, fire, go_on, fire]
    assert seen.get("last") == {"x": 5}


def test_purging_purges_where_the_other_fires() -> None:
    @dataclass(frozen=True)
    class Always(QuietTrigger):
        result: TriggerResult

        def on_element(self, *_: object) -> TriggerResult:
            return self.result

        on_event_time = on_processing_time = on_epoch_end = on_element  # type: ignore[assignment]

    for result, expected in (
        (TriggerResult.CONTINUE, TriggerResult.CONTINUE),
        (TriggerResult.FIRE, TriggerResult.FIRE_AND_PURGE),
        (TriggerResult.PURGE, TriggerResult.PURGE),
        (TriggerResult.FIRE_AND_PURGE, TriggerResult.FIRE_AND_PURGE),
    ):
        trigger = PurgingTrigger(Always(result))
        assert trigger.on_element({}, 0, WINDOW, context()) == expected
        assert trigger.on_event_time(0, WINDOW, context()) == expected
        assert trigger.on_processing_time(0, WINDOW, context()) == expected
        assert trigger.on_epoch_end(WINDOW, context()) == expected


def test_scopes_keep_values_and_timers_apart() -> None:
    state = WindowState(WINDOW, event={9})
    one, other = TriggerScope(context(state), "one", 9), TriggerScope(context(state), "other")
    one.put("count", 1)
    other.put("count", 2)
    assert (one.get("count"), other.get("count"), one.get("else")) == (1, 2, None)
    one.register_event_time_timer(5)
    one.register_event_time_timer(9)
    one.register_processing_time_timer(7)
    other.register_processing_time_timer(8)
    other.delete_event_time_timer(5)
    assert (state.event, state.processing) == ({5, 9}, {7, 8})
    assert (one.take_timer("event", 5), one.take_timer("event", 5), other.take_timer("processing", 7)) == (True, False, False)
    one.clear()
    assert (state.event, state.processing, state.trigger) == ({5, 9}, {8}, {"other": {"values": {"count": 2}, "processing": [8]}})
    other.put("count", None)
    other.clear()
    assert (state.processing, state.trigger) == (set(), {})
    assert (one.domain, one.watermark, one.processing_time) == ("event", -1, 50)


def test_a_scope_sees_its_own_values_of_absorbed_sessions() -> None:
    parts = [WindowState(Window(0, 5), trigger={"one": {"values": {"count": 3}}, "other": {"values": {"count": 9}}}), WindowState(WINDOW)]
    merging = StoredContext(WindowState(WINDOW), CLOCK, -1, parts)
    assert MergeScope(merging, "one", merging=merging).merged("count") == (3,)
    assert MergeScope(merging, "one").merged("count") == ()


def test_timers_of_a_late_trigger_at_the_windows_end_are_its_own() -> None:
    @dataclass(frozen=True)
    class AtTheEnd(QuietTrigger):
        def on_element(self, element: object, timestamp: int, window: Window, context: TriggerContext) -> TriggerResult:  # noqa: ARG002
            context.register_event_time_timer(window.max_timestamp)
            return TriggerResult.CONTINUE

        def on_event_time(self, time: int, window: Window, context: TriggerContext) -> TriggerResult:  # noqa: ARG002
            return TriggerResult.PURGE

    state, trigger = WindowState(WINDOW), EventTimeTrigger(late=AtTheEnd())
    assert trigger.on_element({}, 3, WINDOW, context(state, watermark=50)) == TriggerResult.CONTINUE
    assert DueTimers(trigger, state, CLOCK).fire() == TriggerResult.PURGE
    assert state.trigger == {}


def test_a_timer_that_is_set_anew_whenever_it_fires_is_an_error() -> None:
    @dataclass(frozen=True)
    class Forever(QuietTrigger):
        def on_event_time(self, time: int, window: Window, context: TriggerContext) -> TriggerResult:  # noqa: ARG002
            context.register_event_time_timer(time)
            return TriggerResult.FIRE

    with pytest.raises(UserCodeError, match=r"Forever sets its event-time timer at 3 again each time it fires.*Fix: set the next"):
        DueTimers(Forever(), WindowState(WINDOW, event={3}), CLOCK).fire()
    assert MAX_FIRINGS == 1_000


def test_a_timer_that_sets_the_next_one_is_an_error_at_the_end_of_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidemark.semantics.triggers.trigger_calls.MAX_FIRINGS_AT_END", 50)

    @dataclass(frozen=True)
    class EachMinute(QuietTrigger):
        def on_event_time(self, time: int, window: Window, context: TriggerContext) -> TriggerResult:  # noqa: ARG002
            context.register_event_time_timer(time + 60_000)
            return TriggerResult.FIRE

    state = WindowState(WINDOW, event={3})
    DueTimers(EachMinute(), state, replace(CLOCK, watermark=60_000_000)).fire()
    assert state.event == {60_000_003}
    with pytest.raises(UserCodeError, match=r"EachMinute sets timers at the end of input.*the next is at 63060003.*context.watermark <"):
        DueTimers(EachMinute(), state, replace(CLOCK, watermark=MAX_WATERMARK)).fire()


def test_timers_fire_event_time_first_in_order_of_time() -> None:
    calls: list[tuple[str, int]] = []

    @dataclass(frozen=True)
    class Noting(QuietTrigger):
        def on_event_time(self, time: int, window: Window, context: TriggerContext) -> TriggerResult:  # noqa: ARG002
            calls.append(("event", time))
            if time == 3:
                context.register_event_time_timer(4)
                context.register_event_time_timer(101)
            return TriggerResult.CONTINUE

        def on_processing_time(self, time: int, window: Window, context: TriggerContext) -> TriggerResult:  # noqa: ARG002
            calls.append(("processing", time))
            if time == 7:
                context.register_event_time_timer(1)
                context.delete_processing_time_timer(8)
            return TriggerResult.CONTINUE

    state = WindowState(WINDOW, event={9, 3, 100}, processing={8, 7, 50, 51})
    DueTimers(Noting(), state, CLOCK).fire()
    assert re.sub(r"\W+", " ", str(calls)).strip() == "event 3 event 4 event 9 event 100 processing 7 event 1 processing 50"
    assert (state.event, state.processing) == ({101}, {51})

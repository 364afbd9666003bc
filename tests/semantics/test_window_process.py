"""What an engine may count on: what is read when, what is held in memory, what is refused, what a function sees and keeps."""

from __future__ import annotations

import gc
import json
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from weakref import WeakSet

import pytest

from tidemark.errors import CorruptStoreError, DefinitionError, DurationError, FormatError, UserCodeError
from tidemark.semantics.process.evictors import CountEvictor
from tidemark.semantics.process.key_epoch import Arrival
from tidemark.semantics.process.window_function_calls import FunctionState, Row, WindowContext, WindowFunction, call_function
from tidemark.semantics.process.window_process import WindowProcess, run_key
from tidemark.semantics.triggers.builtin_triggers import CountTrigger, EachEpochTrigger, EventTimeTrigger, PurgingTrigger
from tidemark.semantics.triggers.fired_panes import Deadlines, Firing
from tidemark.semantics.triggers.window_state import HeldElement, order_of
from tidemark.semantics.watermarks.operator_clock import OperatorClock, operator_clock
from tidemark.semantics.watermarks.watermarks import MAX_WATERMARK, MIN_WATERMARK
from tidemark.semantics.windows.assigners import CountWindows, DynamicSession, GlobalWindows, Session, Sliding, Tumbling
from tidemark.semantics.windows.windows import GLOBAL_WINDOW, Window


def clock(number: int, before: int, watermark: int, now: int = 0) -> OperatorClock:
    return OperatorClock("event", epoch=number, before=before, watermark=watermark, processing_time=now)


def arrivals(*times: int) -> list[Arrival]:
    return [Arrival(time, {"at": time}) for time in times]


def count(elements: Sequence[Row], context: WindowContext) -> Iterator[Row]:
    context.key_state["called"] = True
    yield {"count": len(elements), "timing": context.timing}


class TestReading:
    def test_a_key_that_does_not_fire_needs_no_elements_and_its_state_says_when_it_is_due(self) -> None:
        epoch = WindowProcess(Tumbling(10), allowed_lateness_ms=5).begin({}, None, clock(0, -1, 5))
        assert list(epoch.take(arrivals(3, 7))) == [HeldElement(3, 0, {"at": 3}), HeldElement(7, 1, {"at": 7})]
        assert epoch.close() == ()
        text = epoch.state()
        assert text is not None
        assert json.loads(text)["windows"] == [{"window": [0, 10], "held": 2, "event": [9]}]
        assert epoch.deadlines() == Deadlines(9, None)
        assert (epoch.holds(3, 0), epoch.holds(13, 0)) == (True, False)

    def test_a_fired_window_is_due_again_when_it_is_over(self) -> None:
        result = run_key(
            WindowProcess(Tumbling(10), allowed_lateness_ms=5), {}, state=None, stored=[], arrivals=arrivals(3), clock=clock(0, -1, 9)
        )
        assert [pane.timing for pane in result.panes] == ["ON_TIME"]
        assert result.deadlines == Deadlines(14, None)
        over = run_key(
            WindowProcess(Tumbling(10), allowed_lateness_ms=5),
            {},
            state=result.state,
            stored=result.elements,
            arrivals=[],
            clock=clock(1, 9, 14),
        )
        assert (over.panes, over.state, over.elements, over.deadlines) == ((), None, (), Deadlines(None, None))

    def test_windows_of_processing_time_are_due_by_the_clock_and_at_the_end_of_input(self) -> None:
        process = WindowProcess(Tumbling(10, domain="processing"))
        now = operator_clock("processing", epoch=0, before=0, watermark=500, processing_time=12, previous_processing_time=None)
        result = run_key(process, {}, state=None, stored=[], arrivals=arrivals(3), clock=now)
        assert result.elements == (HeldElement(12, 0, {"at": 3}),)
        assert result.deadlines == Deadlines(MAX_WATERMARK, 20)

    def test_new_elements_are_taken_one_by_one(self) -> None:
        read = []

        def source() -> Iterator[Arrival]:
            for arrival in arrivals(1, 2, 3):
                read.append(arrival.timestamp)
                yield arrival

        taken = WindowProcess(Tumbling(10)).begin({}, None, clock(0, -1, 5)).take(source())
        assert next(taken) is not None
        assert read == [1]

    def test_in_memory_are_the_elements_of_one_window(self) -> None:
        class Marked(dict[str, object]):
            __hash__ = object.__hash__  # type: ignore[assignment]

        alive: WeakSet[Marked] = WeakSet()

        def elements() -> Iterator[HeldElement]:
            for time in range(300):
                row = Marked(at=time)
                alive.add(row)
                yield HeldElement(time, order_of(0, time), row)
                del row

        process = WindowProcess(Sliding(20, 10))
        epoch = process.begin({}, None, clock(0, -1, MAX_WATERMARK))
        assert sum(held is not None for held in epoch.take(Arrival(time, {}) for time in range(300))) == 300
        assert len(epoch.close()) == 31
        gc.freeze()  # what other tests left need not be looked at thirty times
        most = 0
        for pane in epoch.fire(elements()):
            assert len([row for row in pane.rows]) in {10, 20}  # noqa: C416
            gc.collect()
            most = max(most, len(alive))
        assert 20 <= most <= 22
        assert epoch.state() is None

    def test_elements_that_no_window_holds_do_no_harm(self) -> None:
        process = WindowProcess(Tumbling(10), trigger=PurgingTrigger(EachEpochTrigger()), function=count)
        first = run_key(process, {}, state=None, stored=[], arrivals=arrivals(3, 4), clock=clock(0, -1, 0))
        stale = [HeldElement(3, order_of(0, 0), {}), HeldElement(4, order_of(0, 1), {}), HeldElement(55, order_of(0, 2), {})]
        second = run_key(process, {}, state=first.state, stored=stale, arrivals=arrivals(5), clock=clock(1, 0, 0))
        assert [pane.rows for pane in (*first.panes, *second.panes)] == [
            ({"count": 2, "timing": "EARLY"},),
            ({"count": 1, "timing": "EARLY"},),
        ]

    @pytest.mark.parametrize("change", ["missing", "twice"])
    @pytest.mark.parametrize("assigner", [Tumbling(10), CountWindows(3)])
    def test_missing_and_doubled_elements_are_noticed(self, assigner: Tumbling | CountWindows, change: str) -> None:
        process = WindowProcess(assigner)
        first = run_key(process, {}, state=None, stored=[], arrivals=arrivals(3, 4), clock=clock(0, -1, 0))
        stored = first.elements[1:] if change == "missing" else (first.elements[0], *first.elements)
        with pytest.raises(CorruptStoreError, match=r"Fix: restore from a savepoint"):
            run_key(process, {}, state=first.state, stored=stored, arrivals=arrivals(5), clock=clock(1, 0, 9))

    @pytest.mark.parametrize("assigner", [Tumbling(10), CountWindows(1)])
    def test_panes_have_to_be_taken(self, assigner: Tumbling | CountWindows) -> None:
        epoch = WindowProcess(assigner).begin({}, None, clock(0, -1, 9))
        held = [found for found in epoch.take(arrivals(3)) if found]
        assert len(epoch.close()) == 1
        with pytest.raises(RuntimeError, match="panes were not taken"):
            epoch.state()
        assert len(list(epoch.fire(held))) == 1
        epoch.state()

    def test_firings_are_known_before_elements_are_read(self) -> None:
        process = WindowProcess(Session(5), trigger=EventTimeTrigger(early=PurgingTrigger(CountTrigger(1))))
        epoch = process.begin({}, None, clock(0, -1, 30))
        assert len(list(epoch.take(arrivals(3, 20, 27)))) == 3
        assert epoch.close() == (
            Firing(Window(3, 8), "ON_TIME", 0, purge=True),
            Firing(Window(20, 25), "ON_TIME", 0, purge=True),
            Firing(Window(27, 32), "EARLY", 0, purge=True),
        )

    def test_rows_that_nobody_takes_are_made_all_the_same(self) -> None:
        process = WindowProcess(Tumbling(10), function=count)
        epoch = process.begin({}, None, clock(0, -1, 9))
        held = [found for found in epoch.take(arrivals(3)) if found]
        epoch.close()
        for _ in epoch.fire(held):
            pass
        assert json.loads(epoch.state() or "") == {"format": 1, "function": {"key": {"called": True}}}


class TestSettings:
    def test_count_windows_have_no_trigger_evictor_or_lateness(self) -> None:
        for wrong in ({"trigger": CountTrigger(1)}, {"evictor": CountEvictor(1)}, {"allowed_lateness_ms": 1}):
            with pytest.raises(DefinitionError, match=r"count windows fire by their count.*Fix: use global_window"):
                WindowProcess(CountWindows(3), **wrong)

    def test_element_order(self) -> None:
        assert WindowProcess(CountWindows(3)).element_order == "arrival"
        assert WindowProcess(GlobalWindows()).element_order == WindowProcess(Session(3)).element_order == "time"

    def test_a_bad_gap_names_the_expression(self) -> None:
        epoch = WindowProcess(DynamicSession("gap")).begin({}, None, clock(0, -1, 0))
        with pytest.raises(DurationError, match=r"the gap 'gap' of an element is -1"):
            list(epoch.take([Arrival(3, {}, -1)]))

    def test_states_of_later_releases(self) -> None:
        with pytest.raises(FormatError, match="has format 9"):
            WindowProcess(Tumbling(10)).begin({}, '{"format":9}', clock(0, -1, 0))


class TestFunctions:
    def test_rows_are_copies_where_windows_share_them(self) -> None:
        def greedy(elements: Sequence[Row], context: WindowContext) -> Iterator[Row]:
            for element in elements:
                assert isinstance(element, dict)
                yield {"start": None if context.window is None else context.window.start, "was": element.pop("at")}

        result = run_key(
            WindowProcess(Sliding(10, 5), function=greedy), {}, state=None, stored=[], arrivals=arrivals(7), clock=clock(0, -1, 99)
        )
        assert [pane.rows for pane in result.panes] == [({"start": 0, "was": 7},), ({"start": 5, "was": 7},)]

    def test_state_may_hold_what_rows_hold(self) -> None:
        def keep(elements: Sequence[Row], context: WindowContext) -> list[Row]:
            before = context.window_state.get("last")
            context.window_state["last"] = {"at": datetime(2020, 1, 1, tzinfo=UTC), "fare": [Decimal("1.10")]}
            return [{"before": before, "rows": len(elements)}]

        process = WindowProcess(Tumbling(10), trigger=EachEpochTrigger(), function=keep)
        first = run_key(process, {}, state=None, stored=[], arrivals=arrivals(3), clock=clock(0, -1, 0))
        second = run_key(process, {}, state=first.state, stored=first.elements, arrivals=arrivals(4), clock=clock(1, 0, 0))
        assert second.panes[0].rows == ({"before": {"at": datetime(2020, 1, 1, tzinfo=UTC), "fare": [Decimal("1.10")]}, "rows": 2},)

    def test_state_that_json_has_not_is_refused(self) -> None:
        def keep(elements: Sequence[Row], context: WindowContext) -> list[Row]:
            context.key_state["all"] = set(map(str, elements))
            return []

        with pytest.raises(UserCodeError, match=r"the state of a window function holds \{.*Fix: keep plain values"):
            run_key(WindowProcess(Tumbling(10), function=keep), {}, state=None, stored=[], arrivals=arrivals(3), clock=clock(0, -1, 9))

    def test_sessions_have_no_state_per_window(self) -> None:
        def keep(elements: Sequence[Row], context: WindowContext) -> list[Row]:
            context.window_state["count"] = len(elements)
            return []

        with pytest.raises(UserCodeError, match=r"sessions have no state per window.*Fix: keep it in context.key_state"):
            run_key(WindowProcess(Session(10), function=keep), {}, state=None, stored=[], arrivals=arrivals(3), clock=clock(0, -1, 99))

    @pytest.mark.parametrize(
        ("function", "message"),
        [
            (lambda _elements, _context: None, r"returned None.*Fix: yield each row"),
            (lambda _elements, _context: {"a": 1}, r"returned \{'a': 1\}.*Fix: yield each row"),
            (lambda _elements, _context: [7], r"returned 7 as a row.*Fix: yield each row"),
            (lambda elements, _context: [{"x": elements[9]}], r"failed for the window \[0, 10\): IndexError.*Fix:"),
        ],
    )
    def test_functions_that_fail_or_give_no_rows(self, function: WindowFunction, message: str) -> None:
        with pytest.raises(UserCodeError, match=message):
            run_key(WindowProcess(Tumbling(10), function=function), {}, state=None, stored=[], arrivals=arrivals(3), clock=clock(0, -1, 9))

    def test_a_function_over_results_has_a_state_of_its_own(self) -> None:
        def number(elements: Sequence[Row], context: WindowContext) -> Iterator[Row]:
            context.window_state["panes"] = context.index + 1
            context.key_state["results"] = int(str(context.key_state.get("results", 0))) + 1
            yield {**elements[0], "number": context.key_state["results"]}

        stored: dict[str, object] = {}
        for index, watermark in enumerate((9, 12, 15)):
            functions = FunctionState(stored, merging=False)
            seen = functions.context({"zone": "N"}, Window(0, 10), clock(index, 0, watermark), timing="LATE", index=index)
            assert list(call_function(number, [{"total": 5}], seen)) == [{"total": 5, "number": index + 1}]
            functions.forget_expired(6, watermark)
            stored = json.loads(json.dumps(functions.to_json()))
        assert stored == {"key": {"results": 3}}

    def test_bounds_of_the_global_window_are_none(self) -> None:
        functions = FunctionState({}, merging=False)
        assert functions.context({}, GLOBAL_WINDOW, clock(0, 0, 0), timing="EARLY", index=0).window is None

    @pytest.mark.parametrize("stored", [{"key": []}, {"windows": {}}, {"windows": [7]}])
    def test_damaged_function_states(self, stored: dict[str, object]) -> None:
        with pytest.raises(CorruptStoreError, match=r"the state of a window function has .*Fix: restore"):
            FunctionState(stored, merging=False)


class TestClock:
    def test_event_time(self) -> None:
        made = operator_clock("event", epoch=2, before=5, watermark=9, processing_time=70, previous_processing_time=60)
        assert made == OperatorClock("event", 2, 5, 9, 70)
        assert (made.element_time(3), made.timers_due_until) == (3, 70)

    def test_processing_time_goes_by_the_clock_until_the_input_ends(self) -> None:
        first = operator_clock("processing", epoch=0, before=5, watermark=9, processing_time=70, previous_processing_time=None)
        assert (first.before, first.watermark, first.element_time(3), first.timers_due_until) == (MIN_WATERMARK, 69, 70, 70)
        last = operator_clock("processing", epoch=1, before=9, watermark=MAX_WATERMARK, processing_time=80, previous_processing_time=70)
        assert (last.before, last.watermark, last.timers_due_until) == (69, MAX_WATERMARK, MAX_WATERMARK)
        after = operator_clock(
            "processing", epoch=2, before=MAX_WATERMARK, watermark=MAX_WATERMARK, processing_time=90, previous_processing_time=80
        )
        assert after.before == MAX_WATERMARK

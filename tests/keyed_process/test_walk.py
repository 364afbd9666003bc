"""The walk through a key's epochs does what the contract says, whatever the program."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given

import tidemark as tm
from tests.keyed_process.programs import Interpreter, Program, programs
from tests.keyed_process.reference import Fact, Reference
from tidemark.errors import UserCodeError
from tidemark.graph.operators.keyed_process.function import BoundFunction
from tidemark.semantics.keyed_process import walk as walks
from tidemark.semantics.keyed_process.context import ProcessContext, Row
from tidemark.semantics.keyed_process.key_record import KeyRecord, entries_of
from tidemark.semantics.keyed_process.states import State
from tidemark.semantics.keyed_process.times import EpochTimes
from tidemark.semantics.keyed_process.walk import ElementWalk, Failed, Output, OutputBatch, Process, Walked

TAGS = frozenset({"left", "right"})
KEY = {"k": "x"}


def run_walk(program: Program) -> tuple[list[Fact], KeyRecord, Walked]:
    record, walked, facts = KeyRecord(), Walked(), list[Fact]()
    for cut in program.epochs:
        times = EpochTimes(cut.before, cut.watermark, program.bound, cut.processing_time)
        walk = ElementWalk(Interpreter(program.on_timer), program.declarations, TAGS, times, forgives=program.forgives)
        elements = [({"ops": ops}, time, 0) for time, ops in cut.elements]
        for each in walk.run(KEY, record, elements, walked):
            assert not isinstance(each, OutputBatch)
            facts.append(("failed", each.time) if isinstance(each, Failed) else (each.tag or "main", each.time, each.row))
    return facts, record, walked


@given(programs())
def test_programs(program: Program) -> None:
    reference = Reference(program)
    reference.run()
    facts, record, walked = run_walk(program)
    assert facts == reference.facts
    timers = {(domain, time, name or None) for domain, kept in record.timers.items() for time, name in kept}
    assert timers == set(reference.kept.timers)
    for name, entries in reference.kept.states.items():
        stored = record.states.get(name)
        found = [] if stored is None else sorted(entries_of(stored))
        assert found == sorted((entry[1], entry[2]) for entry in entries), name
    assert walked.expired == reference.expired
    assert walked.elements == sum(len(cut.elements) for cut in program.epochs)
    assert record.is_empty == (not any(reference.kept.states.values()) and not reference.kept.timers)


class Calls:
    """A function of a test: what ``process`` and ``on_timer`` do is given."""

    def __init__(self, process: Any, on_timer: Any = None) -> None:
        self._process, self._on_timer = process, on_timer
        self.states: Mapping[str, State] = {}

    def bind(self, states: Mapping[str, State], _ctx: ProcessContext) -> None:
        self.states = states

    @property
    def inputs(self) -> Sequence[Process]:
        return (self.process,)

    def process(self, row: Row, ctx: ProcessContext) -> Any:
        return self._process(row, ctx)

    def on_timer(self, timestamp: int, ctx: ProcessContext) -> Any:
        return self._on_timer(timestamp, ctx)


def emitted(function: Calls, elements: Sequence[int] = (1,), *, watermark: int = 100, forgives: bool = False) -> list[Any]:
    walk = ElementWalk(function, {}, TAGS, EpochTimes(-1_000, watermark, 0, 50), forgives=forgives)
    return list(walk.run(KEY, KeyRecord(), [({}, time, 0) for time in elements], Walked()))


def test_a_catch_up_epoch_fires_a_timer_between_two_elements() -> None:
    seen: list[object] = []

    def process(_row: Row | None, ctx: ProcessContext) -> None:
        seen.append(("element", ctx.timestamp, ctx.current_watermark()))
        ctx.timer_service().register_event_time_timer(ctx.timestamp + 20)

    def on_timer(at: int, ctx: ProcessContext) -> None:
        seen.append(("timer", at, ctx.current_watermark()))

    emitted(Calls(process, on_timer), [10, 45], watermark=44)
    assert seen == [("element", 10, 9), ("timer", 30, 44), ("element", 45, 44)]


@pytest.mark.parametrize("distance", [0, -3])
def test_a_timer_that_sets_itself_for_ever_ends_with_an_error(distance: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(walks, "MAX_FIRINGS", 50)

    def process(_row: Row | None, ctx: ProcessContext) -> None:
        ctx.timer_service().register_event_time_timer(5)

    def again(at: int, ctx: ProcessContext) -> None:
        ctx.timer_service().register_event_time_timer(at + distance)

    with pytest.raises(UserCodeError, match=r"timers of the key \{'k': 'x'\} fired more than 50 times"):
        emitted(Calls(process, again))


def test_a_timer_that_moves_on_may_fire_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(walks, "MAX_FIRINGS", 50)

    def process(_row: Row | None, ctx: ProcessContext) -> None:
        ctx.timer_service().register_event_time_timer(5)

    def later(at: int, ctx: ProcessContext) -> Iterator[Row]:
        ctx.timer_service().register_event_time_timer(at + 1)
        yield {"at": at}

    assert len(emitted(Calls(process, later), watermark=1_000)) == 996


@pytest.mark.parametrize("forgives", [False, True])
def test_timers_that_set_others_at_the_end_of_input_end_with_an_error(*, forgives: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(walks, "MAX_FIRINGS_AT_END", 50)

    def process(_row: Row | None, ctx: ProcessContext) -> None:
        for at in range(5, 65):
            ctx.timer_service().register_event_time_timer(at)

    def later(at: int, ctx: ProcessContext) -> None:
        ctx.timer_service().register_event_time_timer(at + 60_000)

    with pytest.raises(UserCodeError, match=r"timers of the key \{'k': 'x'\} set others at the end of input") as caught:
        emitted(Calls(process, later), watermark=tm.MAX_WATERMARK, forgives=forgives)
    # Those that were set before do not count: 60, and 50 more.
    assert f"the next is at {5 + 50 + 60_000}" in caught.value.what
    assert "ctx.current_watermark() < tm.MAX_WATERMARK" in caught.value.fix


def test_timers_that_are_set_while_there_is_input_end_by_themselves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(walks, "MAX_FIRINGS_AT_END", 50)

    def process(_row: Row | None, ctx: ProcessContext) -> None:
        for at in range(5, 65):
            ctx.timer_service().register_event_time_timer(at)

    def later(at: int, ctx: ProcessContext) -> Iterator[Row]:
        yield {"at": at}
        if ctx.current_watermark() < tm.MAX_WATERMARK:
            ctx.timer_service().register_event_time_timer(at + 60_000)

    assert len(emitted(Calls(process, later), watermark=tm.MAX_WATERMARK)) == 60


def test_so_may_timers_that_late_elements_set_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(walks, "MAX_FIRINGS", 50)

    def process(_row: Row | None, ctx: ProcessContext) -> None:
        ctx.timer_service().register_event_time_timer(-2_000)
        ctx.timer_service().register_processing_time_timer(ctx.current_processing_time())

    def flush(at: int, ctx: ProcessContext) -> Iterator[Row]:
        yield {"at": at, "domain": ctx.time_domain}

    found = emitted(Calls(process, flush), [-3_000] * 60)
    assert [each.row["at"] for each in found] == [50, -2_000] * 60


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        ("rows", "process returned 'rows', not rows"),
        ({"a": 1}, "process returned {'a': 1}, not rows"),
        (5, "process returned 5, not rows"),
        ([1], "process emitted 1 as a row"),
    ],
)
def test_what_is_not_rows_is_refused(returned: object, message: str) -> None:
    with pytest.raises(UserCodeError) as raised:
        emitted(Calls(lambda _row, _ctx: returned))
    assert raised.value.what == message


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda ctx: ctx.output("up", {}), "there is no side output 'up'"),
        (lambda ctx: ctx.timer_service().register_event_time_timer(1.5), "a timer's time is 1.5, not milliseconds since 1970"),
        (lambda ctx: ctx.timer_service().register_event_time_timer(True), "a timer's time is True, not milliseconds since 1970"),
        (lambda ctx: ctx.timer_service().register_event_time_timer(5, ""), "a timer's name is '', not a text"),
        (lambda ctx: ctx.timer_service().delete_event_time_timer(), "a timer is deleted by its time or by its name"),
        (lambda ctx: ctx.timer_service().delete_processing_time_timer(5, name="a"), "a timer is deleted by its time or by its name"),
    ],
)
def test_wrong_calls_are_refused(call: Any, message: str) -> None:
    with pytest.raises(UserCodeError) as raised:
        emitted(Calls(lambda _row, ctx: call(ctx)))
    assert raised.value.what == message
    (failed,) = emitted(Calls(lambda _row, ctx: call(ctx)), forgives=True)
    assert failed.error.startswith(message)


def test_an_error_that_is_forgiven_names_the_line() -> None:
    def process(_row: Row | None, _ctx: ProcessContext) -> None:
        raise ZeroDivisionError("by zero")

    (failed,) = emitted(Calls(process), forgives=True)
    assert failed.error.startswith("ZeroDivisionError: by zero (at ")
    assert __file__ in failed.error
    with pytest.raises(ZeroDivisionError):
        emitted(Calls(process))


class Seven:
    """A function that is an object."""

    def __call__(self, row: Row, ctx: ProcessContext) -> list[Row]:
        del row, ctx
        return [{"n": 7}]


def seven(n: int, row: Row, ctx: ProcessContext) -> list[Row]:
    del row, ctx
    return [{"n": n}]


@pytest.mark.parametrize("forgives", [False, True])
@pytest.mark.parametrize("function", [Seven(), functools.partial(seven, 7)], ids=["object", "partial"])
def test_a_function_need_not_have_a_name(function: Any, forgives: bool) -> None:  # noqa: FBT001 - of pytest
    walk = ElementWalk(BoundFunction(function), {}, TAGS, EpochTimes(-1_000, 100, 0, 50), forgives=forgives)
    (found,) = walk.run(KEY, KeyRecord(), [({}, 1, 0)], Walked())
    assert found == Output(None, {"n": 7}, 1)

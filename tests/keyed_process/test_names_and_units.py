"""Timers without an end or in another unit, and names that a function may ask for or give its methods."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

import tidemark as tm
from tidemark.errors import UserCodeError
from tidemark.testing import OperatorHarness

Row = Mapping[str, Any]
ROWS = "v BIGINT"
READ = tm.source("rides", tm.from_elements([], schema="k STRING, at BIGINT, v BIGINT"), watermarks=tm.ascending(timestamp="at"))


def processed(function: object) -> tm.Stream:
    return READ.key_by("k").process(function, returns=ROWS).uid("calls")


class Calls:
    """Calls what it is given with itself and the context."""

    last = tm.value_state("BIGINT")

    def __init__(self, call: Callable[[Any, Any], Any]) -> None:
        self.call = call

    def process(self, element: Row, ctx: tm.ProcessContext) -> Any:
        del element
        return self.call(self, ctx)


class EachMinute(Calls):
    def on_timer(self, timestamp: int, ctx: tm.ProcessContext) -> None:
        ctx.timer_service().register_event_time_timer(timestamp + 60_000)


def test_a_timer_that_sets_itself_again_at_the_end_of_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidemark.semantics.keyed_process.walk.MAX_FIRINGS_AT_END", 1_000)
    harness = OperatorHarness(processed(EachMinute(lambda _, ctx: ctx.timer_service().register_event_time_timer(5))))
    harness.process({"k": "a", "at": 1, "v": 5}, at=1)
    harness.advance_watermark(10_000_000)
    with pytest.raises(UserCodeError, match=r"1,000 of these fired, and the next is at 70080005"):
        harness.end_input()


class ByAnotherName(Calls):
    def process(self, element: Row, ctx: tm.ProcessContext) -> Any:
        return self.onTimer(element, ctx)

    def onTimer(self, element: Row, ctx: tm.ProcessContext) -> Any:  # noqa: N802  # as in Flink
        """Return nothing."""


def test_names_that_are_not_there_can_be_asked_for() -> None:
    asked: list[bool] = []

    def ask(me: Any, ctx: tm.ProcessContext) -> None:
        service = ctx.timer_service()
        asked.extend(hasattr(*each) for each in ((ctx, "get_current_key"), (service, "currentWatermark"), (me.last, "get"), (ctx, "state")))

    harness = OperatorHarness(processed(Calls(ask)))
    harness.process({"k": "a", "at": 1, "v": 5}, at=1)
    harness.advance_watermark(100)
    assert asked == [False, False, False, True]


def test_a_method_that_the_function_calls_itself_may_have_any_name() -> None:
    stream = processed(ByAnotherName(lambda *_: None))
    tm.Job("rides", outputs={"calls": tm.memory(stream, "calls")})


def test_a_timer_in_seconds_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    def soon(_self: object, ctx: tm.ProcessContext) -> None:
        ctx.timer_service().register_event_time_timer(ctx.timestamp // 1000 + 60)

    harness = OperatorHarness(processed(Calls(soon)))
    for at in (1_736_153_400_000, 1_736_153_401_000):
        harness.process({"k": "a", "at": at, "v": 5}, at=at)
    with caplog.at_level("WARNING", "tidemark"), pytest.raises(UserCodeError, match="has no on_timer"):
        harness.advance_watermark(1_736_153_402_000)
    (message,) = caplog.messages
    assert "at 1736153460, which is 1970-01-21T02:15:53.460Z, by a call of 2025-01-06T08:50:00.000Z" in message
    assert "looks like seconds" in message

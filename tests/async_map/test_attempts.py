"""The attempts of an element: none after its time, whatever the function makes of the cancellation, and each with a row of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tests.async_map.test_calls import MS, Row, StandingClock, answers, calls_of
from tidemark.semantics.async_map.calls import Answer, AsyncSettings, TimedOut

SETTINGS = AsyncSettings(timeout_ms=20, retries=3, backoff_ms=1)


def timed(call: Callable[[Row], Awaitable[object]], clock: StandingClock) -> tuple[Answer[int], float]:
    """Return the answer for one element, and how many milliseconds it took."""
    before = clock.at
    with calls_of(call, SETTINGS, clock) as calls:
        (found,) = calls.run([({"n": 0}, 0)])
        return found, (clock.at - before) / MS


def test_a_cancellation_that_becomes_another_error_is_not_repeated() -> None:
    async def call(row: Row) -> object:
        try:
            await asyncio.sleep(5)
        except asyncio.CancelledError:
            raise LookupError("the client was closed") from None
        return row

    found, took = timed(call, StandingClock())
    assert isinstance(found.error, TimedOut)
    assert (found.attempts, round(took)) == (1, 20)
    assert found.describe(SETTINGS) == "TimedOut: no result within 20ms"


def test_the_error_of_an_attempt_before_the_time_ran_out_is_shown() -> None:
    attempts = 0

    async def call(_: Row) -> object:
        nonlocal attempts
        attempts += 1
        if attempts == 1:
            raise ConnectionError("refused")
        try:
            await asyncio.sleep(5)
        finally:
            raise LookupError("the client was closed")

    found, took = timed(call, StandingClock())
    assert (found.attempts, round(took)) == (2, 20)
    assert str(found.cause) == "refused"
    assert "after 2 attempts, and then had no result within 20ms" in found.describe(SETTINGS)


def test_a_result_after_the_cancellation_is_late() -> None:
    async def call(row: Row) -> object:
        try:
            await asyncio.sleep(5)
        except asyncio.CancelledError:
            await asyncio.sleep(3 * MS)
        return row

    found, took = timed(call, StandingClock())
    assert isinstance(found.error, TimedOut)
    assert (found.value, found.attempts, round(took)) == (None, 1, 23)


@pytest.mark.parametrize("fails", [False, True], ids=["returns", "raises"])
def test_what_a_call_that_blocks_the_loop_comes_to_after_its_time_is_late(*, fails: bool) -> None:
    clock = StandingClock()

    async def call(row: Row) -> object:
        clock.sleep(21 * MS)
        if fails:
            raise ConnectionError("refused")
        return row

    found, took = timed(call, clock)
    assert isinstance(found.error, TimedOut)
    assert (found.attempts, round(took)) == (1, 21)
    assert str(found.error.last) == ("refused" if fails else "None")


def test_a_result_just_in_time_is_none_that_is_late() -> None:
    async def call(row: Row) -> object:
        await asyncio.sleep(19 * MS)
        return row

    found, _ = timed(call, StandingClock())
    assert (found.value, found.error) == ({"n": 0}, None)


def test_a_call_that_makes_an_error_of_the_cancellation_at_the_end_is_not_repeated() -> None:
    begun = 0

    async def call(row: Row) -> object:
        nonlocal begun
        begun += 1
        if row["n"]:
            try:
                await asyncio.sleep(5)
            except asyncio.CancelledError:
                raise LookupError("the client was closed") from None
        return row

    with calls_of(call, AsyncSettings(backoff_ms=0)) as calls:
        for _ in calls.run(({"n": number}, number) for number in range(3)):
            break
    assert begun == 3


def test_each_attempt_has_the_row_as_it_was() -> None:
    seen: list[Any] = []

    async def call(row: Any) -> object:
        await asyncio.sleep(0)
        seen.append((row["n"], list(row["tags"]), row["at"]["hours"][0]))
        row["n"] *= 2
        row["tags"].append("seen")
        row["at"]["hours"][0] = 99
        if len(seen) < 3:
            raise ConnectionError("refused")
        return row

    given = {"n": 1, "tags": ["a"], "at": {"hours": [7]}}
    with calls_of(call, AsyncSettings(backoff_ms=0)) as calls:
        (found,) = calls.run([(given, 0)])
    assert seen == [(1, ["a"], 7)] * 3
    assert found.value == {"n": 2, "tags": ["a", "seen"], "at": {"hours": [99]}}
    assert given == {"n": 1, "tags": ["a"], "at": {"hours": [7]}}


def test_a_function_may_still_catch_its_own_timeouts() -> None:
    async def call(row: Row) -> object:
        try:
            async with asyncio.timeout(2 * MS):
                await asyncio.sleep(5)
        except TimeoutError:
            return {"n": -1}
        return row

    assert [each.value for each in answers(call, 2, SETTINGS)] == [{"n": -1}] * 2

"""The calls of an asynchronous function on the event loop of a task: order, capacity, time, retries, failures; in milliseconds."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Awaitable, Callable, Iterator, Mapping
from random import Random
from typing import Any

import pytest

from tidemark.semantics.async_map.calls import AHEAD, Answer, AsyncCalls, AsyncSettings, TaskLoop, TimedOut

Row = Mapping[str, Any]
MS = 0.001


class StandingClock:
    """A clock that moves only where somebody waits."""

    def __init__(self) -> None:
        self.at = 100.0

    def now_ms(self) -> int:
        return round(self.at * 1000)

    def monotonic(self) -> float:
        return self.at

    def sleep(self, seconds: float) -> None:
        self.at += seconds


class NoWait(selectors.SelectSelector):
    """Has a clock move instead of waiting."""

    def __init__(self, clock: StandingClock) -> None:
        super().__init__()
        self.clock = clock

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        assert timeout is not None, "nothing would ever happen"
        self.clock.sleep(max(0.0, timeout))
        return super().select(0)


def calls_of(call: Callable[[Row], Awaitable[object]], settings: AsyncSettings, clock: StandingClock | None = None) -> AsyncCalls:
    """Return calls whose waits take no time."""
    chosen = clock or StandingClock()
    return AsyncCalls(call, settings, TaskLoop(chosen, NoWait(chosen)))


def answers(
    call: Callable[[Row], Awaitable[object]], count: int, settings: AsyncSettings, *, taken: Callable[[int], None] | None = None
) -> list[Answer[int]]:
    """Return the answers for elements 0 to count."""

    def elements() -> Iterator[tuple[Row, int]]:
        for number in range(count):
            if taken is not None:
                taken(number)
            yield {"n": number}, number

    with calls_of(call, settings) as calls:
        return list(calls.run(elements()))


class Service:
    """Answers after a while, and knows how many calls were in flight."""

    def __init__(self, wait: Callable[[int], float] = lambda _: MS) -> None:
        self.wait = wait
        self.flying = self.most = self.calls = 0
        self.order: list[int] = []

    async def __call__(self, row: Row) -> object:
        self.calls += 1
        self.flying += 1
        self.most = max(self.most, self.flying)
        try:
            await asyncio.sleep(self.wait(row["n"]))
        finally:
            self.flying -= 1
        self.order.append(row["n"])
        return {"n": row["n"] * 2}


def uneven(number: int) -> float:
    """Return a wait that is longest for the first of each seven."""
    return (7 - number % 7) * MS / 2


def test_results_come_in_the_order_of_elements() -> None:
    service = Service(uneven)
    found = answers(service, 60, AsyncSettings(capacity=10))
    assert [each.element for each in found] == list(range(60))
    assert [each.value for each in found] == [{"n": 2 * number} for number in range(60)]
    assert service.order != sorted(service.order)


def test_unordered_results_come_as_they_are_ready() -> None:
    service = Service(uneven)
    found = answers(service, 60, AsyncSettings(capacity=10, ordered=False))
    assert [each.element for each in found] == service.order
    assert sorted(service.order) == list(range(60))
    assert service.order != list(range(60))


@pytest.mark.parametrize("ordered", [True, False])
@pytest.mark.parametrize("capacity", [1, 3, 50])
def test_no_more_calls_are_in_flight_than_the_capacity(capacity: int, ordered: bool) -> None:  # noqa: FBT001
    service = Service(uneven)
    answers(service, 120, AsyncSettings(capacity=capacity, ordered=ordered))
    assert service.most == capacity
    assert service.calls == 120


@pytest.mark.parametrize("ordered", [True, False])
def test_elements_are_taken_only_as_there_is_room(ordered: bool) -> None:  # noqa: FBT001
    newest = 0

    def taken(number: int) -> None:
        nonlocal newest
        newest = number

    service = Service(uneven)
    settings = AsyncSettings(capacity=4, ordered=ordered)

    def elements() -> Iterator[tuple[Row, int]]:
        for number in range(80):
            taken(number)
            yield {"n": number}, number

    with calls_of(service, settings) as calls:
        for answered, _ in enumerate(calls.run(elements()), start=1):
            assert newest - answered <= 4 + 8, "more was taken than is in flight, or waits for an earlier one"


def test_a_slow_first_element_holds_back_a_bounded_number_of_results(monkeypatch: pytest.MonkeyPatch) -> None:
    assert AHEAD == 10_000
    monkeypatch.setattr("tidemark.semantics.async_map.calls.AHEAD", 20)
    newest = 0

    def taken(number: int) -> None:
        nonlocal newest
        newest = number

    seen: list[int] = []

    async def call(row: Row) -> object:
        if row["n"] == 0:
            await asyncio.sleep(20 * MS)
            seen.append(newest)
        return {}

    found = answers(call, 100, AsyncSettings(capacity=5), taken=taken)
    assert [each.element for each in found] == list(range(100))
    assert seen[0] < 5 + 20


def test_an_element_whose_time_runs_out_fails_and_the_others_go_on() -> None:
    service = Service(lambda number: 10 if number == 3 else MS)
    found = answers(service, 6, AsyncSettings(timeout_ms=20, capacity=6))
    assert [each.error is None for each in found] == [True, True, True, False, True, True]
    assert found[3].describe(AsyncSettings(timeout_ms=20)) == "TimedOut: no result within 20ms"
    assert service.flying == 0, "the call was not cancelled"


def test_the_time_of_an_element_is_that_of_all_its_attempts() -> None:
    service = Failing(times=99)
    settings = AsyncSettings(timeout_ms=30, retries=50, backoff_ms=8)
    (found,) = answers(service, 1, settings)
    assert isinstance(found.error, TimedOut)
    assert found.attempts == service.calls == 3  # at 0, 8 and 24 ms; the next would be at 56 ms
    assert "ConnectionError: call 3" in found.describe(settings)
    assert "after 3 attempts, and then had no result within 30ms" in found.describe(settings)


class Failing:
    """Fails so many times for each element."""

    def __init__(self, times: int) -> None:
        self.times = times
        self.calls = 0
        self.at: list[float] = []
        self._of: dict[int, int] = {}

    async def __call__(self, row: Row) -> object:
        self.calls += 1
        self.at.append(asyncio.get_running_loop().time())
        so_far = self._of[row["n"]] = self._of.get(row["n"], 0) + 1
        await asyncio.sleep(0)
        if so_far <= self.times:
            raise ConnectionError(f"call {so_far}")
        return {"n": so_far}


def test_a_call_that_fails_is_repeated_after_pauses_that_double() -> None:
    service = Failing(times=3)
    (found,) = answers(service, 1, AsyncSettings(retries=3, backoff_ms=4))
    assert (found.error, found.value, found.attempts) == (None, {"n": 4}, 4)
    pauses = [round((after - before) / MS) for before, after in zip(service.at, service.at[1:], strict=False)]
    assert pauses == [4, 8, 16]


def test_after_the_last_attempt_the_error_is_that_of_the_last() -> None:
    settings = AsyncSettings(retries=2, backoff_ms=0)
    found = answers(Failing(times=3), 4, settings)
    assert [each.attempts for each in found] == [3] * 4
    assert found[0].describe(settings).startswith("ConnectionError: call 3 (at ")
    assert found[0].describe(settings).endswith(" after 3 attempts")


def test_without_retries_there_is_one_attempt() -> None:
    service = Failing(times=1)
    (found,) = answers(service, 1, AsyncSettings(retries=0))
    assert (service.calls, found.attempts, type(found.error)) == (1, 1, ConnectionError)
    assert " attempts" not in found.describe(AsyncSettings())


def test_a_function_that_cancels_itself_fails_as_one_that_raises() -> None:
    async def call(row: Row) -> object:
        if row["n"] == 1:
            raise asyncio.CancelledError
        task = asyncio.current_task()
        assert task is not None
        if row["n"] == 2:
            task.cancel()
            await asyncio.sleep(1)
        return row

    found = answers(call, 4, AsyncSettings())
    assert [each.error is None for each in found] == [True, False, False, True]
    assert "cancelled from within" in found[1].describe(AsyncSettings())


def test_what_is_in_flight_is_cancelled_when_the_caller_gives_up() -> None:
    service = Service(lambda number: MS if number == 0 else 10)
    with calls_of(service, AsyncSettings(capacity=5)) as calls:
        for answer in calls.run(({"n": number}, number) for number in range(9)):
            assert answer.element == 0
            assert service.flying == 4
            break
    assert (service.flying, service.calls) == (0, 5)


def test_time_stands_while_the_loop_does_not_run() -> None:
    async def call(row: Row) -> object:
        await asyncio.sleep(15 * MS)
        return row

    settings, clock = AsyncSettings(timeout_ms=20, capacity=2, ordered=False), StandingClock()

    def elements() -> Iterator[tuple[Row, int]]:
        for number in range(6):
            clock.sleep(60)  # Spark takes its time for rows
            yield {"n": number}, number

    with calls_of(call, settings, clock) as calls:
        assert all(each.error is None for each in calls.run(elements()))


def test_open_and_close_may_be_asynchronous_or_not() -> None:
    async def opened() -> str:
        await asyncio.sleep(0)
        return "pool"

    with calls_of(Service(), AsyncSettings()) as calls:
        assert calls.complete(opened()) == "pool"
        assert calls.complete("plain") == "plain"


def test_no_elements_are_no_calls() -> None:
    assert answers(Service(), 0, AsyncSettings()) == []


@pytest.mark.parametrize("seed", range(40))
def test_each_element_gets_one_answer_whatever_happens(seed: int) -> None:
    random = Random(seed)
    count = random.randint(0, 60)
    plans = [[random.choice(["ok", "fail", "slow"]) for _ in range(6)] for _ in range(count)]
    attempts = [0] * count
    settings = AsyncSettings(
        ordered=random.random() < 0.5,
        timeout_ms=random.choice([3, 2_000]),
        capacity=random.randint(1, 9),
        retries=random.randint(0, 3),
        backoff_ms=0,
    )

    async def call(row: Row) -> object:
        plan, number = plans[row["n"]], attempts[row["n"]]
        attempts[row["n"]] += 1
        await asyncio.sleep(random.random() * MS)
        if plan[number] == "slow" and settings.timeout_ms == 3:
            await asyncio.sleep(1)
        if plan[number] == "fail":
            raise ValueError(number)
        return number

    found = answers(call, count, settings)
    assert sorted(each.element for each in found) == list(range(count))
    assert not settings.ordered or [each.element for each in found] == list(range(count))
    for each in found:
        assert 1 <= each.attempts == attempts[each.element] <= settings.retries + 1
        if each.error is None:
            assert each.value == each.attempts - 1
            assert plans[each.element][: each.attempts - 1] == ["fail"] * (each.attempts - 1)

"""Calls an asynchronous function for elements, many at once, on one event loop."""

from __future__ import annotations

import asyncio
import inspect
import selectors
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final, Generic, NamedTuple, Self, TypeVar

from tidemark.clock import SYSTEM_CLOCK, Clock
from tidemark.durations import format_duration
from tidemark.semantics.user_rows import Row, copied, describe_failure

E = TypeVar("E")

AHEAD: Final = 10_000
"""In order: so many results at most wait for the one of an earlier element, besides the elements that are in flight."""


_PATIENCE: Final = 5
"""So many seconds a cancelled call may take to end."""


@dataclass(frozen=True)
class AsyncSettings:
    """How the calls are made.

    Args:
        ordered: whether results come in the order of the elements; else as they are ready.
        timeout_ms: for an element, all its attempts and pauses together; a result that comes later is none.
        capacity: the number of elements in flight at once.
        retries: how often a call that fails is repeated.
        backoff_ms: the pause before the first repetition; each further one is twice as long.
    """

    ordered: bool = True
    timeout_ms: int = 30_000
    capacity: int = 100
    retries: int = 3
    backoff_ms: int = 1_000


class Answer(NamedTuple, Generic[E]):
    """What came of an element: the function's result, or the error of its last attempt, and the number of attempts."""

    element: E
    value: object
    error: BaseException | None
    attempts: int

    @property
    def cause(self) -> BaseException:
        """The error to show: where the time ran out, that of the last complete attempt, if there is one."""
        error = self.error.last or self.error if isinstance(self.error, TimedOut) else self.error
        return error or TimedOut(None, 0)

    def describe(self, settings: AsyncSettings) -> str:
        """Return why it failed."""
        return f"{describe_failure(self.cause)}{self.describe_attempts(settings)}"

    def describe_attempts(self, settings: AsyncSettings) -> str:
        """Return what was tried."""
        tries = f" after {self.attempts} attempts" if self.attempts > 1 else ""
        late = f", and then had no result within {format_duration(settings.timeout_ms)}" if self._failed_before else ""
        return f"{tries}{late}"

    @property
    def _failed_before(self) -> bool:
        return isinstance(self.error, TimedOut) and self.error.last is not None


class TimedOut(Exception):  # noqa: N818  # it is the name of what happened
    """An element's time ran out; ``last`` is the error of its last complete attempt."""

    def __init__(self, last: BaseException | None, timeout_ms: int) -> None:
        super().__init__(f"no result within {format_duration(timeout_ms)}")
        self.last = last


class CancelledItself(Exception):  # noqa: N818  # it is the name of what happened
    """The function cancelled its own task."""

    def __str__(self) -> str:
        return "the call was cancelled from within"


@dataclass
class _Flight(Generic[E]):
    element: E
    answer: Answer[E] | None = None


class TaskLoop(asyncio.SelectorEventLoop):
    """An event loop whose time stands while it does not run: time that Spark takes for rows is none of the calls'.

    Args:
        clock: that it reads.
        selector: that it waits with, the system's by default.
    """

    def __init__(self, clock: Clock = SYSTEM_CLOCK, selector: selectors.BaseSelector | None = None) -> None:
        self._clock_read = clock
        self._stood = 0.0
        self._since: float | None = None
        super().__init__(selector)

    def time(self) -> float:
        """Return the loop's time, in seconds."""
        return (self._clock_read.monotonic() if self._since is None else self._since) - self._stood

    def run(self, awaited: Awaitable[Any]) -> Any:  # noqa: ANN401  # of the awaited type
        """Run until something has a result, and return it."""
        if self._since is not None:
            self._stood += self._clock_read.monotonic() - self._since
            self._since = None
        try:
            return self.run_until_complete(awaited)
        finally:
            self._since = self._clock_read.monotonic()


class AsyncCalls:
    """The calls of a task, on an event loop of their own.

    The loop runs while results are waited for, and stands while the caller takes them or the next elements are read.

    Args:
        call: makes one attempt for an element's row.
        settings: how.
        loop: that they are made on; closed at the end.
    """

    def __init__(self, call: Callable[[Row], Awaitable[object]], settings: AsyncSettings, loop: TaskLoop | None = None) -> None:
        self._call = call
        self._settings = settings
        self._loop = TaskLoop() if loop is None else loop
        self._tasks: set[asyncio.Task[None]] = set()
        self._broken: BaseException | None = None
        self._closing = False
        self._flights: deque[_Flight[Any]] = deque()
        self._ready: deque[Answer[Any]] = deque()
        self._woken: asyncio.Future[None] | None = None

    def complete(self, returned: object) -> object:
        """Return a value, or what it resolves to: ``open`` and ``close`` may be asynchronous."""
        if not inspect.isawaitable(returned):
            return returned
        return self._loop.run(_result(returned))

    def run(self, elements: Iterable[tuple[Row, E]]) -> Iterator[Answer[E]]:
        """Yield an answer for each element; takes the next ones as there is room for them."""
        following = iter(elements)
        ended = False
        while True:
            while not ended and self._has_room:
                found = next(following, None)
                if found is None:
                    ended = True
                else:
                    self._start(*found)
            while self._ready:
                yield self._ready.popleft()
            if ended and not self._tasks:
                return
            if not self._has_room or ended:
                self._wait()

    @property
    def _has_room(self) -> bool:
        capacity = self._settings.capacity
        return len(self._tasks) < capacity and len(self._flights) < capacity + AHEAD and not self._ready

    def _start(self, row: Row, element: E) -> None:
        flight = _Flight(element)
        if self._settings.ordered:
            self._flights.append(flight)
        task = self._loop.create_task(self._fly(row, flight))
        self._tasks.add(task)
        task.add_done_callback(self._landed)

    def _wait(self) -> None:
        """Run the loop until a task has ended."""
        self._woken = self._loop.create_future()
        self._loop.run(self._woken)
        self._woken = None
        if self._broken is not None:
            raise self._broken

    def _landed(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            self._broken = task.exception()
        if self._woken is not None and not self._woken.done():
            self._woken.set_result(None)

    async def _fly(self, row: Row, flight: _Flight[E]) -> None:
        flight.answer = await self._attempt_all(row, flight.element)
        if not self._settings.ordered:
            self._ready.append(flight.answer)
        while self._flights and self._flights[0].answer is not None:
            self._ready.append(self._flights.popleft().answer)  # type: ignore[arg-type]

    async def _attempt_all(self, row: Row, element: E) -> Answer[E]:
        settings, scope = self._settings, asyncio.timeout(self._settings.timeout_ms / 1000)
        last: BaseException | None = None
        attempts = 0
        try:
            async with scope:
                while True:
                    attempts += 1
                    value, error = await self._attempt(row)
                    if error is not None and not scope.expired():
                        last = error
                    if self._is_late(scope):
                        break
                    if error is None or attempts > settings.retries or self._closing:
                        return Answer(element, value, error, attempts)
                    await asyncio.sleep(settings.backoff_ms * 2 ** (attempts - 1) / 1000)
        except TimeoutError:
            pass
        except asyncio.CancelledError:
            if self._closing:
                raise
            if not scope.expired():
                return Answer(element, None, CancelledItself(), attempts)
        return Answer(element, None, TimedOut(last, settings.timeout_ms), attempts)

    async def _attempt(self, row: Row) -> tuple[object, BaseException | None]:
        """Return the result of a call, or its error; the call may do with the row what it wants."""
        try:
            return await self._call(copied(row)), None
        except Exception as error:  # noqa: BLE001  # whatever the user's function raises
            return None, error

    def _is_late(self, scope: asyncio.Timeout) -> bool:
        """Return whether the time of an element is over: its scope cancels only once, and not where the call blocked the loop."""
        deadline = scope.when()
        return scope.expired() or (deadline is not None and self._loop.time() >= deadline)

    def close(self) -> None:
        """Cancel what is in flight, and close the loop."""
        loop = self._loop
        if loop.is_closed():
            return
        self._closing = True
        try:
            self.cancel()
            loop.run(loop.shutdown_asyncgens())
            loop.run(loop.shutdown_default_executor())
        finally:
            loop.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def cancel(self) -> None:
        """Cancel what is in flight; functions get a while to end."""
        self._closing = True
        tasks = tuple(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            self._loop.run(asyncio.wait(tasks, timeout=_PATIENCE))


async def _result(returned: Awaitable[object]) -> object:
    return await returned

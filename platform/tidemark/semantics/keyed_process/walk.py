"""Walks through one key's epoch: elements and timers in the contract's order, each a call of the user's function."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from types import GeneratorType
from typing import Any, Final, NamedTuple, Protocol

from tidemark.errors import TidemarkError, UserCodeError
from tidemark.semantics.keyed_process.context import ProcessContext, Row
from tidemark.semantics.keyed_process.declarations import StateDeclaration
from tidemark.semantics.keyed_process.key_record import KeyRecord, Timer
from tidemark.semantics.keyed_process.states import STATES, State, Undo, drop_expired
from tidemark.semantics.keyed_process.timers import KeyTimers
from tidemark.semantics.keyed_process.times import EpochTimes, Now
from tidemark.semantics.user_lines import raised_at
from tidemark.semantics.windows.windows import TimeDomain

MAX_FIRINGS: Final = 100_000
"""So many firings of a key in an epoch may be of timers that are due no later than one that fired before."""


Process = Callable[[Row, ProcessContext], "Iterable[Row] | None"]


class ProcessFunction(Protocol):
    """The user's function, with its states; an instance lives as long as a task."""

    def bind(self, states: Mapping[str, State], ctx: ProcessContext) -> None:
        """Make the states of a key those that the function sees."""
        ...

    @property
    def inputs(self) -> Sequence[Process]:
        """The methods that process an element, one for each input."""
        ...

    def on_timer(self, timestamp: int, ctx: ProcessContext) -> Iterable[Row] | None:
        """Handle a timer that fires."""
        ...


class Output(NamedTuple):
    """A row that was emitted: its side output, None for the main one, and its event time."""

    tag: str | None
    row: Row
    time: int


class Failed(NamedTuple):
    """A call that failed and was undone: its element, None for that of a timer, its time, what went wrong, and the element's input."""

    row: Row | None
    time: int
    error: str
    number: int = 0


@dataclass
class Walked:
    """What a key's epoch came to, in numbers: elements processed, calls that failed, timers that fired, entries that expired."""

    elements: int = 0
    failed: int = 0
    fired: int = 0
    expired: int = 0


@dataclass
class KeyWalk:
    """Walks through the keys of a task, one after the other.

    Args:
        function: of the user.
        declarations: of its states, by name.
        tags: names of its side outputs.
        times: of the operator in the epoch.
        forgives: whether a call that fails is undone and reported, instead of ending the epoch.
        broadcast: maps that the function reads, by name.

    ``timer`` is the time of the timer that fires, None in calls of ``process``.
    """

    function: ProcessFunction
    declarations: Mapping[str, StateDeclaration]
    tags: frozenset[str]
    times: EpochTimes
    forgives: bool = False
    broadcast: Mapping[str, Mapping[Any, Any]] = field(default_factory=dict)
    _now: Now = field(init=False)
    _context: ProcessContext = field(init=False)

    def __post_init__(self) -> None:
        self.timer: int | None = None
        self._now = Now(self.times.before, self.times.processing_time)
        self._context = ProcessContext(self._now, self.tags, self.broadcast)

    @property
    def context(self) -> ProcessContext:
        """What the function is given."""
        return self._context

    def run(
        self, key: Mapping[str, object], record: KeyRecord, elements: Iterable[tuple[Row, int, int]], walked: Walked
    ) -> Iterator[Output | Failed]:
        """Yield what one key's epoch emits; when it is used up, the record is that after the epoch.

        Args:
            key: its columns by name.
            record: of the key, which is changed.
            elements: rows with their times and the numbers of their inputs, in the order of times, then of inputs, then of positions.
            walked: is added to.

        Raises:
            UserCodeError: the function failed, or returned something else than rows, or its timers do not end.
        """
        undo: Undo | None = [] if self.forgives else None
        now, context, times, inputs = self._now, self._context, self.times, self.function.inputs
        now.watermark = times.before
        timers = KeyTimers(record, undo)
        context.begin_key(key, timers)
        self.function.bind({name: STATES[each.kind](each, record, now, undo) for name, each in self.declarations.items()}, context)
        firings = _Firings(key)
        event, processing, at = timers.event_queue, timers.processing_queue, times.processing_time
        for row, time, number in elements:
            now.watermark = watermark = times.watermark_at(time)
            if (event and event[0][0] <= watermark) or (processing and processing[0][0] <= at):
                yield from self._fire(timers, firings, undo, walked)
            walked.elements += 1
            now.timestamp = time
            if undo is None:
                returned = inputs[number](row, context)
                if returned is not None or context.has_outputs:
                    yield from self._outputs(returned, inputs[number].__name__, time)
            else:
                for each in self._forgiving(partial(inputs[number], row), row, time, undo, walked):
                    yield each._replace(number=number) if isinstance(each, Failed) else each
        now.watermark = times.watermark
        yield from self._fire(timers, firings, undo, walked)
        context.begin_key(None, None)
        walked.expired += drop_expired(record, self.declarations, now)

    def _fire(self, timers: KeyTimers, firings: _Firings, undo: Undo | None, walked: Walked) -> Iterator[Output | Failed]:
        while (due := timers.due(self._now)) is not None:
            domain, timer = due
            firings.count(domain, timer)
            walked.fired += 1
            self.timer, self._context.timer_name = timer
            self._now.timestamp = timer.time
            if undo is None:
                yield from self._outputs(self.function.on_timer(timer.time, self._context), "on_timer", timer.time)
            else:
                # A timer that fired stays so, whatever its call does.
                undo.clear()
                yield from self._forgiving(partial(self.function.on_timer, timer.time), None, timer.time, undo, walked)
            self.timer = self._context.timer_name = None

    def _forgiving(
        self, call: partial[Iterable[Row] | None], row: Row | None, time: int, undo: Undo, walked: Walked
    ) -> Iterator[Output | Failed]:
        """Yield what a call emits, or, if it fails, that; ``row`` is its element, None for a timer."""
        undo.clear()
        try:
            emitted = list(self._outputs(call(self._context), call.func.__name__, time))
        except Exception as error:  # noqa: BLE001  # whatever the user's function raises
            while undo:
                undo.pop()()
            self._context.take_outputs()
            walked.failed += 1
            yield Failed(row, time, _described(error))
        else:
            yield from emitted

    def _outputs(self, returned: object, name: str, time: int) -> Iterator[Output]:
        """Yield the rows of a call, main and tagged ones in the order in which they were emitted."""
        context = self._context
        for row in _rows(returned, name):
            if context.has_outputs:
                for tag, other in context.take_outputs():
                    yield Output(tag, other, time)
            yield Output(None, row, time)
        if context.has_outputs:
            for tag, other in context.take_outputs():
                yield Output(tag, other, time)


class _Firings:
    """Counts the firings of a key that do not move on."""

    def __init__(self, key: Mapping[str, object]) -> None:
        self._key = key
        self._latest: dict[TimeDomain, int] = {}
        self._standing = 0

    def count(self, domain: TimeDomain, timer: Timer) -> None:
        latest = self._latest.get(domain)
        if latest is None or timer.time > latest:
            self._latest[domain] = timer.time
            return
        self._standing += 1
        if self._standing > MAX_FIRINGS:
            raise UserCodeError(
                f"timers of the key {dict(self._key)} fired more than {MAX_FIRINGS:,} times in one epoch at {timer.time} or before",
                fix="have on_timer set a later time than the one that it is called with",
            )


def _rows(returned: object, name: str) -> Iterator[Row]:
    if returned is None:
        return
    if type(returned) is not GeneratorType and (not isinstance(returned, Iterable) or isinstance(returned, Mapping | str | bytes)):
        raise UserCodeError(f"{name} returned {returned!r}, not rows", fix="yield each row as a dict, or return a list of dicts, or None")
    for row in returned:
        if type(row) is not dict and not isinstance(row, Mapping):
            raise UserCodeError(f"{name} emitted {row!r} as a row", fix="yield each row as a dict of column names and values")
        yield row


def _described(error: BaseException) -> str:
    what = error.what if isinstance(error, TidemarkError) else f"{type(error).__name__}: {error}"
    place = raised_at(error)
    return what if place is None else f"{what} (at {place})"

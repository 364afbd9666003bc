"""Walks through one key's epoch: elements and timers in the contract's order, each a call of the user's function."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from math import inf
from types import GeneratorType
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, Protocol, TypeVar

from tidemark.errors import UserCodeError
from tidemark.semantics.keyed_process.broadcast_maps import NO_MAPS
from tidemark.semantics.keyed_process.context import ProcessContext, Row
from tidemark.semantics.keyed_process.declarations import StateDeclaration
from tidemark.semantics.keyed_process.key_record import KeyRecord
from tidemark.semantics.keyed_process.states import STATES, State, Undo, begin_lifetimes, drop_expired
from tidemark.semantics.keyed_process.timers import KeyTimers
from tidemark.semantics.keyed_process.times import EpochTimes, Now
from tidemark.semantics.user_rows import MAX_ROWS, copied, describe_failure, end_call, name_of, own_row, parts_of, require_row
from tidemark.semantics.watermarks.watermark_strategy import MAX_WATERMARK
from tidemark.semantics.windows.windows import TimeDomain

if TYPE_CHECKING:
    import pyarrow as pa

MAX_FIRINGS: Final = 100_000
"""So many firings of a key between two elements may be of timers that are due no later than one that fired before."""

MAX_FIRINGS_AT_END: Final = 1_000_000
"""So many timers of a key that are set at the end of input may fire: each is due at once, so that one that sets itself again has no end."""

Process = Callable[[Any, ProcessContext], "Iterable[Any] | None"]


class ProcessFunction(Protocol):
    """The user's function, with its states; an instance lives as long as a task."""

    def bind(self, states: Mapping[str, State], ctx: ProcessContext) -> None:
        """Make the states those that the function sees, which are of one key after the other."""
        ...

    @property
    def inputs(self) -> Sequence[Process]:
        """The methods that process an element, one for each input."""
        ...

    @property
    def on_timer(self) -> Callable[[int, ProcessContext], Iterable[Row] | None]:
        """The method that handles a timer that fires."""
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


class OutputBatch(NamedTuple):
    """Rows that were emitted at once: their side output, None for the main one, and the event time of each, or of all."""

    tag: str | None
    rows: pa.RecordBatch
    times: pa.Int64Array | int


Emitted = Output | OutputBatch | Failed


@dataclass
class Walked:
    """What a key's epoch came to, in numbers: elements processed, calls that failed, timers that fired, entries that expired."""

    elements: int = 0
    failed: int = 0
    fired: int = 0
    expired: int = 0


E = TypeVar("E")


@dataclass
class KeyWalk(ABC, Generic[E]):
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
    broadcast: Mapping[str, Mapping[Any, Any]] = field(default_factory=lambda: NO_MAPS)
    _now: Now = field(init=False)
    _context: ProcessContext = field(init=False)
    _pending: Sequence[tuple[str, Any]] = field(init=False)
    _undo: Undo | None = field(init=False)
    _timers: KeyTimers = field(init=False)
    _states: Mapping[str, State] = field(init=False)
    _handles: tuple[State, ...] = field(init=False)
    _by_watermark: bool = field(init=False)
    _has_lifetimes: bool = field(init=False)

    def __post_init__(self) -> None:
        self.timer: int | None = None
        self._now = Now(self.times.before, self.times.processing_time)
        self._context = ProcessContext(self._now, self.tags, self.broadcast)
        self._pending = self._context.pending_outputs
        self._undo = [] if self.forgives else None
        self._timers = KeyTimers(self._undo)
        self._states = {name: STATES[each.kind](each, self._now, self._undo) for name, each in self.declarations.items()}
        self._handles = tuple(self._states.values())
        self._has_lifetimes = any(each.ttl is not None for each in self.declarations.values())
        self._by_watermark = any(each.ttl is not None and each.ttl.domain == "event" for each in self.declarations.values())
        self.function.bind(self._states, self._context)

    @property
    def context(self) -> ProcessContext:
        """What the function is given."""
        return self._context

    def run(self, key: Mapping[str, object], record: KeyRecord, elements: Iterable[E], walked: Walked) -> Iterator[Emitted]:
        """Yield what one key's epoch emits; when it is used up, the record is that after the epoch.

        Args:
            key: its columns by name.
            record: of the key, which is changed.
            elements: the key's, in the order of times, then of inputs, then of positions.
            walked: is added to.

        Raises:
            UserCodeError: the function failed, or returned something else than rows, or its timers do not end.
        """
        now, context, timers = self._now, self._context, self._timers
        now.watermark = self.times.before
        if self._by_watermark:
            begin_lifetimes(record, self.declarations, self.times)
        timers.begin_key(record)
        context.begin_key(key, timers)
        for state in self._handles:
            state.begin_key(record)
        yield from self._process(elements, walked)
        now.watermark = self.times.watermark
        if timers.are_due(now):
            yield from self._fire(walked)
        context.begin_key(None, None)
        for state in self._handles:
            state.begin_key(None)
        if self._has_lifetimes:
            walked.expired += drop_expired(record, self.declarations, now)

    @abstractmethod
    def _process(self, elements: Iterable[E], walked: Walked) -> Iterator[Emitted]:
        """Process a key's elements, and the timers that are due before each."""

    def _fire(self, walked: Walked) -> Iterator[Emitted]:
        undo, now, context, timers, on_timer = self._undo, self._now, self._context, self._timers, self.function.on_timer
        pending, standing, limit = self._pending, 0, self._limit(walked)
        latest: dict[TimeDomain, int] = {}
        while (due := timers.due(now)) is not None:
            domain, (time, name) = due
            # Each late element may set a timer that is due at once: only firings that do not move on, between two elements, are counted.
            if domain not in latest or time > latest[domain]:
                latest[domain] = time
            else:
                standing = self._standing(standing, time)
            walked.fired += 1
            if walked.fired > limit:
                raise self._endless(time)
            self.timer, context.timer_name, context.time_domain, now.timestamp = time, name or None, domain, time
            if undo is None:
                returned = on_timer(time, context)
                if returned is not None or pending:
                    yield from self._outputs(returned, "on_timer", time)
            else:
                # A timer that fired stays so, whatever its call does.
                undo.clear()
                yield from self._forgiving(partial(on_timer, time), None, time, walked)
            self.timer = context.timer_name = context.time_domain = None

    def _limit(self, walked: Walked) -> float:
        """Return how many timers of the task may have fired when those that are due now have; but at the end of input any number."""
        if self._now.watermark < MAX_WATERMARK:
            return inf
        return walked.fired + self._timers.count() + MAX_FIRINGS_AT_END

    def _endless(self, time: int) -> UserCodeError:
        """Return the error of timers that go on after the end of input."""
        self.timer, key = time, dict(self._context.current_key)
        return UserCodeError(
            f"timers of the key {key} set others at the end of input, where each is due at once: "
            f"{MAX_FIRINGS_AT_END:,} of these fired, and the next is at {time}",
            fix="set a timer in on_timer only while there is input: if ctx.current_watermark() < tm.MAX_WATERMARK",
        )

    def _standing(self, before: int, time: int) -> int:
        """Count a firing that does not move on; refuse one too many."""
        if before < MAX_FIRINGS:
            return before + 1
        self.timer, key = time, dict(self._context.current_key)
        raise UserCodeError(
            f"timers of the key {key} fired more than {MAX_FIRINGS:,} times between two elements, at {time} or before",
            fix="have on_timer set a later time than the one that it is called with",
        )

    def _forgiving(self, call: partial[Any], row: Row | None, time: int, walked: Walked) -> Iterator[Emitted]:
        """Yield what a call emits, or, if it fails, that; ``row`` is its element, None for a timer."""
        failure, emitted = self._attempt(call, time, "on_timer" if row is None else name_of(call.func))
        if failure is None:
            yield from emitted
        else:
            walked.failed += 1
            yield Failed(row, time, failure)

    def _attempt(self, call: partial[Any], time: int, name: str) -> tuple[str | None, list[Emitted]]:
        """Return why a call failed, None if it did not, and what it emitted; what a failed one changed is undone."""
        undo: Undo = [] if self._undo is None else self._undo
        undo.clear()
        returned = None
        try:
            returned = call(self._context)
            return None, list(self._outputs(returned, name, time))
        except Exception as error:  # noqa: BLE001  # whatever the user's function raises
            end_call(returned)
            while undo:
                undo.pop()()
            self._context.take_outputs()
            return describe_failure(error), []

    def _outputs(self, returned: object, name: str, time: int) -> Iterator[Emitted]:
        """Yield the rows of a call, main and tagged ones in the order in which they were emitted."""
        context, pending = self._context, self._pending
        rows = returned if type(returned) is GeneratorType else parts_of(returned, name)
        for number, row in enumerate(rows):
            if type(row) is not dict or number >= MAX_ROWS:
                require_row(row, number, name)
            if pending:
                for tag, other in context.take_outputs():
                    yield Output(tag, other, time)
            # This is ``Output(None, own_row(row), time)``, in half the time.
            yield tuple.__new__(Output, (None, own_row(row), time))
        if pending:
            for tag, other in context.take_outputs():
                yield Output(tag, other, time)


class ElementWalk(KeyWalk[tuple[Row, int, int]]):
    """Calls the function for each element: its row, its time, and the number of its input."""

    def _process(self, elements: Iterable[tuple[Row, int, int]], walked: Walked) -> Iterator[Emitted]:
        now, context, times, inputs, undo = self._now, self._context, self.times, self.function.inputs, self._undo
        event, processing, at = self._timers.event_queue, self._timers.processing_queue, times.processing_time
        pending = self._pending
        before, after, behind = times.before, times.watermark, times.bound + 1
        for row, time, number in elements:
            # This is ``times.watermark_at(time)``, without a call for each element: built-in functions are calls, too.
            watermark = time - behind
            watermark = watermark if watermark < after else after  # noqa: FURB136
            watermark = watermark if watermark > before else before  # noqa: FURB136
            now.watermark = watermark
            if (event and event[0][0] <= watermark) or (processing and processing[0][0] <= at):
                yield from self._fire(walked)
            walked.elements += 1
            now.timestamp = time
            if undo is None:
                returned = inputs[number](row, context)
                if returned is not None or pending:
                    yield from self._outputs(returned, name_of(inputs[number]), time)
            else:
                # What the function does to the element is undone, too.
                for each in self._forgiving(partial(inputs[number], copied(row)), row, time, walked):
                    yield each._replace(number=number) if isinstance(each, Failed) else each

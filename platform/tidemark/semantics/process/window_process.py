"""Windows of one key, epoch by epoch, over stored state: run by an engine if it has no native implementation.

That is so for process functions, evictors, custom triggers and those that read elements. Plain data in and out; the engine does the
reading and writing. It keeps two things per key:

- the *state*, a text with everything but the elements (``window_state``); one row per key, replaced in each epoch that
  touches the key, removed when the new state is None;
- the *elements*, one row each, with the time and the order that ``take`` gave them; append-only. Which of them a window still holds is
  in the state: rows for which ``KeyEpoch.holds`` is false may be dropped at any time, or kept.

In an epoch a key needs a call if it has new elements, or if ``KeyEpoch.deadlines`` of its last call is reached, or at the end of input::

    process = WindowProcess(assigner, trigger=..., evictor=..., function=..., allowed_lateness_ms=...)
    clock = operator_clock(assigner.domain, epoch=n, ...)
    epoch = process.begin({"zone": "N"}, state_text_or_none, clock)
    for arrival, held in zip(arrivals, epoch.take(arrivals)):        # new elements, in the contract's order: event time, then position
        held is None: the element is late; else: store held.timestamp, held.order and the row
    firings = epoch.close()                                          # which windows fire; the bounds whose elements are needed
    if firings:
        for pane in epoch.fire(elements):                            # stored and new ones, in process.element_order
            for row in pane.rows: ...                                # all of them before the next pane
    new_text, deadlines = epoch.state(), epoch.deadlines()           # last

In memory are one key's state and the elements of one of its windows: ``take`` holds no element, and ``fire`` releases those
before the next window. ``run_key`` does all this for a key whose elements are in memory anyway.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from heapq import merge
from typing import Literal, NamedTuple, Protocol

from tidemark.errors import DefinitionError
from tidemark.semantics.process.count_process import CountKeyEpoch
from tidemark.semantics.process.evictors import Evictor
from tidemark.semantics.process.key_epoch import Arrival, TimeKeyEpoch
from tidemark.semantics.process.window_function_calls import WindowFunction
from tidemark.semantics.triggers.builtin_triggers import default_trigger
from tidemark.semantics.triggers.fired_panes import Deadlines, FiredPane, Firing
from tidemark.semantics.triggers.triggers import Trigger
from tidemark.semantics.triggers.window_state import HeldElement, read_state
from tidemark.semantics.watermarks.operator_clock import OperatorClock
from tidemark.semantics.watermarks.watermark_strategy import MIN_WATERMARK
from tidemark.semantics.windows.assigners import CountWindows
from tidemark.semantics.windows.windows import WindowAssigner

ElementOrder = Literal["time", "arrival"]


class KeyEpoch(Protocol):
    """One key in one epoch; see this module for the order of calls."""

    def take(self, arrivals: Iterable[Arrival]) -> Iterator[HeldElement | None]:
        """Yield the element to store for each new element, or None if it is late: no window accepts it."""
        ...

    def close(self) -> tuple[Firing, ...]:
        """End the epoch after all elements; return the windows that fire, in the order of their panes."""
        ...

    def fire(self, elements: Iterable[HeldElement]) -> Iterator[FiredPane]:
        """Yield the panes of the windows that fire.

        Args:
            elements: the key's, those stored and those taken in this epoch, in the process's ``element_order``. They may
                include others than firing windows hold: expired ones, purged ones, those of other windows.

        Raises:
            CorruptStoreError: elements of a window are missing, or given twice.
            UserCodeError: the window function or a delta failed.
        """
        ...

    def state(self) -> str | None:
        """Return the key's state after the epoch, None if there is nothing to keep.

        Raises:
            UserCodeError: a kept value is not JSON.
        """
        ...

    def holds(self, timestamp: int, order: int) -> bool:
        """Return whether an element is needed after the epoch; call it after ``state``."""
        ...

    def deadlines(self) -> Deadlines:
        """Return when the key needs a call even without elements; call it after ``state``."""
        ...


@dataclass(frozen=True)
class WindowProcess:
    """The settings of an operator's windows; begins each key's epoch.

    Without a trigger the assigner's default decides. ``function`` makes rows of a pane's elements; without one, a pane's rows are its
    elements themselves (``HeldElement``), for an engine that aggregates them. ``expired_until`` is the last time of the last window whose
    state expired before the epoch, if that was under less lateness than is allowed now: an expired window does not come back.

    Raises:
        DefinitionError: count windows with a trigger, an evictor or lateness; a trigger that cannot merge, for sessions.
    """

    assigner: WindowAssigner
    trigger: Trigger | None = None
    evictor: Evictor | None = None
    function: WindowFunction | None = None
    allowed_lateness_ms: int = 0
    expired_until: int = MIN_WATERMARK

    def __post_init__(self) -> None:
        if isinstance(self.assigner, CountWindows) and (self.trigger, self.evictor, self.allowed_lateness_ms) != (None, None, 0):
            raise DefinitionError(
                "count windows fire by their count: they have no trigger, no evictor and no lateness",
                fix="use global_window() with a count trigger and a count evictor",
            )
        if self.assigner.merging and not self.effective_trigger.can_merge:
            raise DefinitionError(
                f"{self.effective_trigger.describe()} cannot be used with {self.assigner.describe()}: what it keeps cannot be merged",
                fix="use another trigger, or windows that do not merge",
            )

    @property
    def effective_trigger(self) -> Trigger:
        """The trigger, or the assigner's default."""
        return default_trigger(self.assigner) if self.trigger is None else self.trigger

    @property
    def element_order(self) -> ElementOrder:
        """The sort order of elements passed to ``KeyEpoch.fire``: time, then order; or order alone (arrival, for count windows)."""
        return "arrival" if isinstance(self.assigner, CountWindows) else "time"

    def begin(self, key: Mapping[str, object], state: str | None, clock: OperatorClock) -> KeyEpoch:
        """Return a key's epoch.

        Args:
            key: the key's columns by name, for the window function.
            state: the last result of ``KeyEpoch.state``, None for a new key or one without state.
            clock: of the operator in this epoch.

        Raises:
            FormatError: a later release wrote the state.
            CorruptStoreError: the state cannot be read.
        """
        kept = read_state(state, clock.epoch)
        if isinstance(self.assigner, CountWindows):
            return CountKeyEpoch(self.assigner, self.function, key=key, state=kept, clock=clock)
        return TimeKeyEpoch(
            self.assigner,
            self.effective_trigger,
            evictor=self.evictor,
            function=self.function,
            allowed_lateness_ms=self.allowed_lateness_ms,
            key=key,
            state=kept,
            clock=clock,
            expired_until=self.expired_until,
        )

    def sorted_elements(self, stored: Iterable[HeldElement], taken: Iterable[HeldElement]) -> Iterator[HeldElement]:
        """Return stored elements and those of the epoch in one order, if each are in ``element_order``, as those of ``take`` are."""
        if self.element_order == "arrival":
            return merge(stored, taken, key=lambda element: element.order)
        return merge(stored, taken, key=lambda element: element[:2])


class KeyResult(NamedTuple):
    """The result of a key's epoch: places of late elements, panes with their rows, the state, the elements that stay, deadlines."""

    late: tuple[int, ...]
    panes: tuple[FiredPane, ...]
    state: str | None
    elements: tuple[HeldElement, ...]
    deadlines: Deadlines


def run_key(
    process: WindowProcess,
    key: Mapping[str, object],
    *,
    state: str | None,
    stored: Iterable[HeldElement],
    arrivals: Iterable[Arrival],
    clock: OperatorClock,
) -> KeyResult:
    """Run one key's epoch with all its elements in memory.

    Args:
        process: the operator.
        key: the key's columns by name.
        state: the key's, from the result of its last call.
        stored: the elements of that result; others, which no window holds, are ignored.
        arrivals: new elements, in the contract's order.
        clock: of the operator in this epoch.

    >>> from tidemark.semantics.windows.assigners import Tumbling
    >>> fares = lambda elements, context: [{"fares": sum(row["fare"] for row in elements)}]
    >>> process = WindowProcess(Tumbling(10), function=fares)
    >>> clock = OperatorClock("event", epoch=0, before=-1, watermark=9, processing_time=0)
    >>> result = run_key(process, {}, state=None, stored=[], arrivals=[Arrival(3, {"fare": 5}), Arrival(8, {"fare": 2})], clock=clock)
    >>> [(pane.window.start, pane.timing, pane.index, pane.rows) for pane in result.panes], result.state
    ([(0, 'ON_TIME', 0, ({'fares': 7},))], None)
    """
    epoch = process.begin(key, state, clock)
    verdicts = list(epoch.take(arrivals))
    elements = list(process.sorted_elements(stored, (held for held in verdicts if held is not None)))
    firings = epoch.close()
    panes = [pane.complete() for pane in epoch.fire(elements)] if firings else []
    text = epoch.state()
    return KeyResult(
        late=tuple(place for place, held in enumerate(verdicts) if held is None),
        panes=tuple(panes),
        state=text,
        elements=tuple(element for element in elements if epoch.holds(element.timestamp, element.order)),
        deadlines=epoch.deadlines(),
    )

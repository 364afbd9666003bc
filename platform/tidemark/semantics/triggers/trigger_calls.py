"""Calls of a trigger for a stored window: its contexts, and its due timers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from math import inf
from typing import Final

from tidemark.errors import UserCodeError
from tidemark.semantics.triggers.triggers import Trigger, TriggerResult, TriggerValue
from tidemark.semantics.triggers.window_state import WindowState
from tidemark.semantics.watermarks.operator_clock import OperatorClock
from tidemark.semantics.watermarks.watermark_strategy import MAX_WATERMARK
from tidemark.semantics.windows.windows import TimeDomain, Window

MAX_FIRINGS_AT_END: Final = 100_000
"""So many timers of a window that its trigger sets at the end of input may fire, where each is due at once."""

MAX_FIRINGS: Final = 1_000
"""How often one timer may fire in an epoch: with a trigger that sets it again each time the epoch would never end."""


class StoredContext:
    """A trigger's context over the state of one window; ``watermark`` is W(n-1) or W(n), as the operator says."""

    def __init__(self, state: WindowState, clock: OperatorClock, watermark: int, absorbed: Sequence[WindowState] = ()) -> None:
        self._state = state
        self._clock = clock
        self._watermark = watermark
        self._absorbed = absorbed

    @property
    def domain(self) -> TimeDomain:
        """The time that windows are of."""
        return self._clock.domain

    @property
    def watermark(self) -> int:
        """The operator's watermark."""
        return self._watermark

    @property
    def processing_time(self) -> int:
        """The epoch's."""
        return self._clock.processing_time

    def get(self, name: str) -> TriggerValue | None:
        """Return a value."""
        return self._state.trigger.get(name)

    def put(self, name: str, value: TriggerValue | None) -> None:
        """Keep a value, or remove one."""
        if value is None:
            self._state.trigger.pop(name, None)
        else:
            self._state.trigger[name] = value

    def register_event_time_timer(self, time: int) -> None:
        """Set a timer."""
        self._state.event.add(time)

    def register_processing_time_timer(self, time: int) -> None:
        """Set a timer."""
        self._state.processing.add(time)

    def delete_event_time_timer(self, time: int) -> None:
        """Take a timer back."""
        self._state.event.discard(time)

    def delete_processing_time_timer(self, time: int) -> None:
        """Take a timer back."""
        self._state.processing.discard(time)

    def merged(self, name: str) -> tuple[TriggerValue, ...]:
        """Return a value of each absorbed session that has one."""
        return tuple(state.trigger[name] for state in self._absorbed if name in state.trigger)


class DueTimers:
    """Fires the timers of one window at the end of an epoch: event time first, each time in order, including those set while firing."""

    def __init__(self, trigger: Trigger, state: WindowState, clock: OperatorClock) -> None:
        self._trigger = trigger
        self._state = state
        self._clock = clock
        self._context = StoredContext(state, clock, clock.watermark)
        self._fired: Counter[tuple[TimeDomain, int]] = Counter()
        self._left = len(state.event) + len(state.processing) + MAX_FIRINGS_AT_END if clock.watermark >= MAX_WATERMARK else inf

    def fire(self) -> TriggerResult:
        """Fire until none is due; return the combined result.

        Raises:
            UserCodeError: the trigger sets a timer again and again that has fired in this epoch, or others at the end of input.
        """
        result = TriggerResult.CONTINUE
        while True:
            if self._state.event and (time := min(self._state.event)) <= self._clock.watermark:
                self._take("event", time)
                result |= self._trigger.on_event_time(time, self._window, self._context)
            elif self._state.processing and (time := min(self._state.processing)) <= self._clock.timers_due_until:
                self._take("processing", time)
                result |= self._trigger.on_processing_time(time, self._window, self._context)
            else:
                return result

    @property
    def _window(self) -> Window:
        return self._state.window

    def _take(self, domain: TimeDomain, time: int) -> None:
        timers = self._state.event if domain == "event" else self._state.processing
        timers.discard(time)
        self._left -= 1
        if self._left < 0:
            raise UserCodeError(
                f"{self._trigger.describe()} sets timers at the end of input, where each is due at once: {MAX_FIRINGS_AT_END:,} of "
                f"these fired, and the next is at {time}",
                fix="set a timer only while there is input: if context.watermark < tm.MAX_WATERMARK",
            )
        self._fired[domain, time] += 1
        if self._fired[domain, time] > MAX_FIRINGS:
            raise UserCodeError(
                f"{self._trigger.describe()} sets its {domain}-time timer at {time} again each time it fires, which would not end",
                fix="set the next timer at a later time",
            )

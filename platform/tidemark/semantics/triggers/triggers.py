"""Triggers decide when a window fires. They are immutable settings and rules, with their state of a window in its context.

A trigger is called as in Flink: for each element, for each of its timers that is due, when sessions merge. Its result
takes effect at the end of the epoch: a window fires at most once in an epoch, however often FIRE was returned, and is purged after that.
"""

from __future__ import annotations

from enum import Flag
from typing import Protocol, TypeAlias

from tidemark.semantics.windows.windows import TimeDomain, Window

TriggerValue: TypeAlias = "int | float | str | list[object] | dict[str, object]"
"""A value of a trigger's state: numbers and texts, a row, and lists and dicts of them, as ``state_values`` can encode them."""


class TriggerResult(Flag):
    """The result of a trigger: the window fires, its elements are dropped, both, or neither."""

    CONTINUE = 0
    FIRE = 1
    PURGE = 2
    FIRE_AND_PURGE = 3


class TriggerContext(Protocol):
    """One key's and window's view, given with each call. All times are milliseconds.

    ``get`` and ``put`` are the trigger's state of this window: values by name; None removes one. It is dropped with the
    window, not when the window is purged. Timers are per window, domain and time; a timer fires once, in the first epoch whose watermark
    (or processing time) is at or past its time, also where that is already so when it is registered.
    """

    @property
    def domain(self) -> TimeDomain:
        """The time that windows are of."""
        ...

    @property
    def watermark(self) -> int:
        """The operator's watermark: W(n-1) while elements are processed, W(n) after that. For windows of processing time, PT - 1."""
        ...

    @property
    def processing_time(self) -> int:
        """PT(n), constant in an epoch."""
        ...

    def get(self, name: str) -> TriggerValue | None:
        """Return a value of the trigger's state; to change a list or a row, put another one."""
        ...

    def put(self, name: str, value: TriggerValue | None) -> None:
        """Keep a value."""
        ...

    def register_event_time_timer(self, time: int) -> None:
        """Register a timer for ``on_event_time``."""
        ...

    def register_processing_time_timer(self, time: int) -> None:
        """Register a timer for ``on_processing_time``."""
        ...

    def delete_event_time_timer(self, time: int) -> None:
        """Take a timer back; nothing happens where there is none."""
        ...

    def delete_processing_time_timer(self, time: int) -> None:
        """Take a timer back; nothing happens where there is none."""
        ...


class MergeContext(TriggerContext, Protocol):
    """The context of a session that absorbs others. Its own state and timers are empty at first."""

    def merged(self, name: str) -> tuple[TriggerValue, ...]:
        """Return the trigger's value of a name of each absorbed session, in order of their start."""
        ...


class Trigger(Protocol):
    """Decides when a window fires. Immutable; one object serves all keys and windows.

    ``can_merge`` says whether it works with sessions. Calls come in this order in an epoch: elements (``on_element``, and ``on_merge``
    before it if the element joins sessions), due timers in order of their time (event time first), then ``on_epoch_end`` for each
    window that accepted an element; then timers again that have become due. ``QuietTrigger`` implements all of it without results.
    """

    @property
    def can_merge(self) -> bool:
        """Whether ``on_merge`` is supported."""
        ...

    def on_element(self, element: object, timestamp: int, window: Window, context: TriggerContext) -> TriggerResult:
        """Return the result for an element that was added to the window. ``element`` is its row, as a dict."""
        ...

    def on_event_time(self, time: int, window: Window, context: TriggerContext) -> TriggerResult:
        """Return the result for a due event-time timer."""
        ...

    def on_processing_time(self, time: int, window: Window, context: TriggerContext) -> TriggerResult:
        """Return the result for a due processing-time timer."""
        ...

    def on_epoch_end(self, window: Window, context: TriggerContext) -> TriggerResult:
        """Return the result at the end of an epoch in which the window accepted elements."""
        ...

    def on_merge(self, window: Window, context: MergeContext) -> None:
        """Carry the state and the timers of absorbed sessions over to the session they became."""
        ...

    def describe(self) -> str:
        """Return the trigger as a user would write it."""
        ...


class QuietTrigger:
    """A trigger that never fires and has no state: the base of others, which override its methods."""

    @property
    def can_merge(self) -> bool:
        """True: it has no state to merge."""
        return True

    def on_element(self, element: object, timestamp: int, window: Window, context: TriggerContext) -> TriggerResult:  # noqa: ARG002
        """Go on."""
        return TriggerResult.CONTINUE

    def on_event_time(self, time: int, window: Window, context: TriggerContext) -> TriggerResult:  # noqa: ARG002
        """Go on."""
        return TriggerResult.CONTINUE

    def on_processing_time(self, time: int, window: Window, context: TriggerContext) -> TriggerResult:  # noqa: ARG002
        """Go on."""
        return TriggerResult.CONTINUE

    def on_epoch_end(self, window: Window, context: TriggerContext) -> TriggerResult:  # noqa: ARG002
        """Go on."""
        return TriggerResult.CONTINUE

    def on_merge(self, window: Window, context: MergeContext) -> None:
        """Carry nothing over."""

    def describe(self) -> str:
        """Return the name of the class."""
        return type(self).__name__


def kept_number(context: TriggerContext, name: str) -> int | None:
    """Return a whole number that a trigger keeps, or none."""
    value = context.get(name)
    return value if isinstance(value, int) else None


def merged_numbers(context: MergeContext, name: str) -> list[int]:
    """Return the whole numbers that a trigger kept of absorbed sessions."""
    return [value for value in context.merged(name) if isinstance(value, int)]

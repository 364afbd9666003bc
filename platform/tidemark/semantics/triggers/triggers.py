"""What decides when a window fires. Triggers are settings and rules; what they remember of a window they keep in its context.

A trigger is asked as Flink asks it: for each element, for each of its timers that is due, when sessions merge. What it answers
takes effect at the end of the epoch: a window fires once in an epoch, however often it was asked to, and is purged after that.
"""

from __future__ import annotations

from enum import Flag
from typing import Protocol, TypeAlias

from tidemark.semantics.windows.windows import TimeDomain, Window

TriggerValue: TypeAlias = "int | float | str | list[object] | dict[str, object]"
"""What a trigger may keep: numbers and texts, a row, and lists and dicts of them, as far as ``state_values`` can write them."""


class TriggerResult(Flag):
    """What becomes of a window: it fires, its elements are dropped, both, or neither."""

    CONTINUE = 0
    FIRE = 1
    PURGE = 2
    FIRE_AND_PURGE = 3


class TriggerContext(Protocol):
    """One key's and window's view, given with each call. All times are milliseconds.

    ``get`` and ``put`` are the trigger's own state of this window: values by name; None removes one. It is gone with the
    window, not when the window is purged. Timers are per window, domain and time; a timer fires once, in the first epoch whose watermark
    (or processing time) is at or past its time, also where that is already so when it is registered.
    """

    @property
    def domain(self) -> TimeDomain:
        """The time that windows are of."""
        ...

    @property
    def watermark(self) -> int:
        """The operator's watermark: W(n-1) while elements are taken, W(n) after that. For windows of processing time, PT - 1."""
        ...

    @property
    def processing_time(self) -> int:
        """PT(n), one value in all of an epoch."""
        ...

    def get(self, name: str) -> TriggerValue | None:
        """Return a value that the trigger keeps of this window; to change a list or a row, put another one."""
        ...

    def put(self, name: str, value: TriggerValue | None) -> None:
        """Keep a value."""
        ...

    def register_event_time_timer(self, time: int) -> None:
        """Ask for ``on_event_time``."""
        ...

    def register_processing_time_timer(self, time: int) -> None:
        """Ask for ``on_processing_time``."""
        ...

    def delete_event_time_timer(self, time: int) -> None:
        """Take a timer back; nothing happens where there is none."""
        ...

    def delete_processing_time_timer(self, time: int) -> None:
        """Take a timer back; nothing happens where there is none."""
        ...


class MergeContext(TriggerContext, Protocol):
    """The context of a session that others became part of. Its own state and timers are empty at first."""

    def merged(self, name: str) -> tuple[TriggerValue, ...]:
        """Return what the trigger kept under a name of each session that was absorbed, in order of their start."""
        ...


class Trigger(Protocol):
    """Decides when a window fires. Immutable; one object serves all keys and windows.

    ``can_merge`` says whether it works with sessions. Calls come in this order in an epoch: elements (``on_element``, and ``on_merge``
    before it where the element joins sessions), due timers in order of their time (event time first), then ``on_epoch_end`` for each
    window that took an element; then timers again that are due since. ``QuietTrigger`` has all of it but the answers.
    """

    @property
    def can_merge(self) -> bool:
        """Whether ``on_merge`` is supported."""
        ...

    def on_element(self, element: object, timestamp: int, window: Window, context: TriggerContext) -> TriggerResult:
        """Answer for an element that the window has taken. ``element`` is its row, as a dict."""
        ...

    def on_event_time(self, time: int, window: Window, context: TriggerContext) -> TriggerResult:
        """Answer for an event-time timer that is due."""
        ...

    def on_processing_time(self, time: int, window: Window, context: TriggerContext) -> TriggerResult:
        """Answer for a processing-time timer that is due."""
        ...

    def on_epoch_end(self, window: Window, context: TriggerContext) -> TriggerResult:
        """Answer at the end of an epoch in which the window took elements."""
        ...

    def on_merge(self, window: Window, context: MergeContext) -> None:
        """Carry the state and the timers of absorbed sessions over to the session they became."""
        ...

    def describe(self) -> str:
        """Return the trigger as a user would write it."""
        ...


class QuietTrigger:
    """A trigger that never answers and keeps nothing: what others are made from, each with the answers it has."""

    @property
    def can_merge(self) -> bool:
        """Nothing is kept, so there is nothing to carry over."""
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

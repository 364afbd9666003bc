"""Element triggers: count, delta, each epoch; and those that never fire, or purge."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tidemark.errors import DefinitionError, UserCodeError
from tidemark.semantics.triggers.triggers import (
    MergeContext,
    QuietTrigger,
    Trigger,
    TriggerContext,
    TriggerResult,
    kept_number,
    merged_numbers,
)
from tidemark.semantics.user_lines import raised_at
from tidemark.semantics.windows.windows import Window

DeltaFunction = Callable[[Mapping[str, object], Mapping[str, object]], float]
"""How far an element is from an earlier one: ``delta(earlier, element)``, both rows as dicts."""


@dataclass(frozen=True)
class CountTrigger(QuietTrigger):
    """Fires at each ``count``-th element of a window, counted from the last firing; sessions that merge add their counts.

    Each element is counted, however many an epoch brings, so that after ``k`` elements ``k mod count`` are counted, although the epoch
    gives one pane. Nothing fires at the window's end.

    Raises:
        DefinitionError: the count is not a positive whole number.
    """

    count: int

    def __post_init__(self) -> None:
        if type(self.count) is not int or self.count <= 0:
            raise DefinitionError(f"count={self.count!r} is not a positive number of elements", fix="give a whole number, such as 100")

    def on_element(self, element: object, timestamp: int, window: Window, context: TriggerContext) -> TriggerResult:  # noqa: ARG002
        """Fire at the count, and restart counting."""
        counted = (kept_number(context, "count") or 0) + 1
        context.put("count", counted if counted < self.count else None)
        return TriggerResult.CONTINUE if counted < self.count else TriggerResult.FIRE

    def on_merge(self, window: Window, context: MergeContext) -> None:  # noqa: ARG002
        """Add the counts; the next element fires if that is enough."""
        context.put("count", sum(merged_numbers(context, "count")) or None)

    def describe(self) -> str:
        """Return the trigger as a user would write it."""
        return f"count_trigger({self.count})"


@dataclass(frozen=True)
class DeltaTrigger(QuietTrigger):
    """Fires at an element that differs by more than the threshold from the last one that fired, at first from the window's first.

    ``delta`` is a function of the two rows, or an SQL text that only an engine can evaluate. Nothing fires at the window's
    end, and sessions cannot have it, since two kept elements cannot be merged into one.
    """

    threshold: float
    delta: DeltaFunction | str

    @property
    def can_merge(self) -> bool:
        """Two kept elements do not make one."""
        return False

    def on_element(self, element: object, timestamp: int, window: Window, context: TriggerContext) -> TriggerResult:  # noqa: ARG002
        """Fire if the element is far enough from the one kept, and keep it instead.

        Raises:
            DefinitionError: the delta is an SQL text, or the element no row.
            UserCodeError: the delta failed.
        """
        last = context.get("last")
        if not isinstance(element, Mapping):
            raise DefinitionError(f"a delta trigger takes rows, not {element!r}", fix="give elements as dicts")
        if isinstance(last, dict) and not self._differs(last, element):
            return TriggerResult.CONTINUE
        context.put("last", dict(element))
        return TriggerResult.FIRE if isinstance(last, dict) else TriggerResult.CONTINUE

    def describe(self) -> str:
        """Return the trigger as a user would write it."""
        return f"delta_trigger({self.threshold}, {delta_name(self.delta)})"

    def _differs(self, last: Mapping[str, object], element: Mapping[str, object]) -> bool:
        return measured_delta(self.delta, last, element) > self.threshold


@dataclass(frozen=True)
class EachEpochTrigger(QuietTrigger):
    """Fires at the end of each epoch that brought the window an element."""

    def on_epoch_end(self, window: Window, context: TriggerContext) -> TriggerResult:  # noqa: ARG002
        """Fire."""
        return TriggerResult.FIRE

    def describe(self) -> str:
        """Return the trigger as a user would write it."""
        return "each_epoch_trigger()"


@dataclass(frozen=True)
class NeverTrigger(QuietTrigger):
    """Never fires, not even at the end of input: the default of global windows."""

    def describe(self) -> str:
        """Return the trigger as a user would write it."""
        return "never_trigger()"


@dataclass(frozen=True)
class PurgingTrigger:
    """Fires as another trigger does and drops the window's elements with each pane, so that a pane holds only newer elements.

    The other trigger's state and timers stay.
    """

    inner: Trigger

    @property
    def can_merge(self) -> bool:
        """As the other."""
        return self.inner.can_merge

    def on_element(self, element: object, timestamp: int, window: Window, context: TriggerContext) -> TriggerResult:
        """Answer as the other, and purge."""
        return _purging(self.inner.on_element(element, timestamp, window, context))

    def on_event_time(self, time: int, window: Window, context: TriggerContext) -> TriggerResult:
        """Answer as the other, and purge."""
        return _purging(self.inner.on_event_time(time, window, context))

    def on_processing_time(self, time: int, window: Window, context: TriggerContext) -> TriggerResult:
        """Answer as the other, and purge."""
        return _purging(self.inner.on_processing_time(time, window, context))

    def on_epoch_end(self, window: Window, context: TriggerContext) -> TriggerResult:
        """Answer as the other, and purge."""
        return _purging(self.inner.on_epoch_end(window, context))

    def on_merge(self, window: Window, context: MergeContext) -> None:
        """Merge as the other."""
        self.inner.on_merge(window, context)

    def describe(self) -> str:
        """Return the trigger as a user would write it."""
        return f"purging_trigger({self.inner.describe()})"


def measured_delta(delta: DeltaFunction | str, earlier: Mapping[str, object], element: Mapping[str, object]) -> float:
    """Return how far an element is from an earlier one.

    Raises:
        DefinitionError: the delta is an SQL text.
        UserCodeError: the function failed.
    """
    if isinstance(delta, str):
        raise DefinitionError(f"delta {delta!r} is SQL, which only the engine evaluates", fix="give a function of two rows")
    try:
        return delta(earlier, element)
    except Exception as error:
        raise UserCodeError(
            f"delta {delta_name(delta)} failed: {type(error).__name__}: {error}",
            fix="make it take every pair of rows",
            place=raised_at(error),
        ) from error


def delta_name(delta: DeltaFunction | str) -> str:
    """Return a delta as it is shown: the SQL, or the function's name."""
    return repr(delta) if isinstance(delta, str) else str(getattr(delta, "__qualname__", type(delta).__qualname__))


def _purging(result: TriggerResult) -> TriggerResult:
    return TriggerResult.FIRE_AND_PURGE if TriggerResult.FIRE in result else result

"""When windows fire, as conditions over a key's window: for triggers that need not see each element.

They are equivalent to ``tidemark.semantics.triggers.builtin_triggers``, which decide element by element, for windows of event time.
"""

from __future__ import annotations

from dataclasses import dataclass

from tidemark.semantics.triggers.builtin_triggers import (
    ContinuousEventTimeTrigger,
    ContinuousProcessingTimeTrigger,
    CountTrigger,
    EventTimeTrigger,
    NeverTrigger,
    ProcessingTimeTrigger,
)
from tidemark.semantics.triggers.triggers import Trigger
from tidemark.semantics.watermarks.watermarks import MAX_WATERMARK, MIN_WATERMARK
from tidemark.spark.operators.aligned.two_stacks import END
from tidemark.spark.prepared.runtime_literals import runtime_literals

BEFORE = "__tm_before"
NOW = "__tm_now"
LATE_BEFORE = "__tm_late_before"
LATE_NOW = "__tm_late_now"
FIRST_TIME = "__tm_first_time"
"""Columns of a key's window: elements before and in this epoch, those of them that came when it was due, and its first element's time."""


@dataclass(frozen=True)
class Times:
    """Watermarks and processing times of the epoch before and of this one, milliseconds."""

    watermark_before: int
    watermark: int
    clock_before: int
    clock: int

    def steps(self, interval: int) -> bool:
        """Whether the watermark has passed a multiple of an interval."""
        return self.watermark // interval > self.watermark_before // interval

    def ticks(self, interval: int) -> bool:
        """Whether processing time has reached a multiple of an interval."""
        return self.clock // interval > self.clock_before // interval


def fires(trigger: Trigger, times: Times) -> str:
    """Return the SQL condition of windows that fire in an epoch.

    Args:
        trigger: one that ``has_rule``.
        times: of the epoch.
    """
    due_before, due = (f"{END} <= {bound}" for bound in _due(times))
    touched = f"{NOW} > 0"
    match trigger:
        case EventTimeTrigger(early, late):
            again = touched if late is None else _counted(late, LATE_BEFORE, LATE_NOW)
            sooner = "false" if early is None else _early(early, times)
            return f"CASE WHEN {due_before} THEN {again} WHEN {due} THEN true ELSE {sooner} END"
        case ContinuousEventTimeTrigger():
            return f"CASE WHEN {due_before} THEN {touched} WHEN {due} THEN true ELSE {_early(trigger, times)} END"
        case ProcessingTimeTrigger():
            before, now = runtime_literals(times.clock_before, times.clock, varying=END)
            return f"{END} <= {now} AND ({touched} OR {END} > {before})"
        case NeverTrigger():
            return "false"
    return _early(trigger, times)


def _early(trigger: Trigger, times: Times) -> str:
    match trigger:
        case ContinuousEventTimeTrigger(interval):
            first = f"{FIRST_TIME} - pmod({FIRST_TIME}, {interval}L) + {interval}L"
            reached, step = runtime_literals(times.watermark, times.watermark - times.watermark % interval, varying=END)
            passed = f"{step} >= {first}" if times.steps(interval) else "false"
            return f"{first} <= {reached} AND ({BEFORE} = 0 OR {passed})"
        case ContinuousProcessingTimeTrigger(interval):
            return f"{BEFORE} > 0" if times.ticks(interval) else "false"
    return _counted(trigger, BEFORE, NOW)


def _counted(trigger: Trigger, before: str, now: str) -> str:
    if isinstance(trigger, CountTrigger):
        return f"({before} + {now}) div {trigger.count}L > {before} div {trigger.count}L"
    return f"{now} > 0"


def waits(trigger: Trigger, times: Times) -> tuple[int, int] | None:
    """Return the bounds, (low, high], of the ends of windows that may fire in an epoch without new elements; None for no window."""
    parts = [part for part in (trigger, *_inner(trigger)) if part is not None]
    if any(_is_at_step(part, times) for part in parts):
        return MIN_WATERMARK, MAX_WATERMARK
    if isinstance(trigger, EventTimeTrigger | ContinuousEventTimeTrigger):
        low, high = (min(watermark, MAX_WATERMARK - 1) + 1 for watermark in (times.watermark_before, times.watermark))
        return (low, high) if high > low else None
    if isinstance(trigger, ProcessingTimeTrigger):
        return (times.clock_before, times.clock) if times.clock > times.clock_before else None
    return None


def _is_at_step(trigger: Trigger, times: Times) -> bool:
    if isinstance(trigger, ContinuousEventTimeTrigger):
        return times.steps(trigger.interval_ms)
    return isinstance(trigger, ContinuousProcessingTimeTrigger) and times.ticks(trigger.interval_ms)


def next_step(trigger: Trigger, watermark: int) -> int | None:
    """Return the next multiple of the interval of event time at which open windows fire, None where there is no such interval."""
    found = [part.interval_ms for part in (trigger, *_inner(trigger)) if isinstance(part, ContinuousEventTimeTrigger)]
    return min((watermark - watermark % interval + interval for interval in found), default=None)


def next_tick(trigger: Trigger, clock: int) -> int | None:
    """Return the next multiple of the interval of processing time at which open windows fire, None where there is no such interval."""
    found = [part.interval_ms for part in (trigger, *_inner(trigger)) if isinstance(part, ContinuousProcessingTimeTrigger)]
    return min((clock - clock % interval + interval for interval in found), default=None)


def _inner(trigger: Trigger) -> tuple[Trigger | None, ...]:
    return (trigger.early, trigger.late) if isinstance(trigger, EventTimeTrigger) else ()


def _due(times: Times) -> list[str]:
    bounds = (min(watermark, MAX_WATERMARK - 1) + 1 for watermark in (times.watermark_before, times.watermark))
    return runtime_literals(*bounds, varying=END)

"""Processing-time triggers, and continuous triggers, which fire at each step of a time."""

from __future__ import annotations

from dataclasses import dataclass

from tidemark.durations import format_duration
from tidemark.errors import DurationError
from tidemark.semantics.triggers.triggers import MergeContext, QuietTrigger, TriggerContext, TriggerResult, kept_number, merged_numbers
from tidemark.semantics.watermarks.lateness import due_time, is_due
from tidemark.semantics.watermarks.watermark_strategy import MAX_WATERMARK
from tidemark.semantics.windows.windows import Window


@dataclass(frozen=True)
class ProcessingTimeTrigger(QuietTrigger):
    """Fires once when processing time reaches the window's end: the default of windows of processing time.

    Its timer is at ``end``, not at ``end - 1``, since a timer is due when processing time is at its time, and until ``end`` elements may
    come. (Flink sets it at ``end - 1`` and fires timers of processing time a millisecond after their time: the same instant.)
    """

    def on_element(self, element: object, timestamp: int, window: Window, context: TriggerContext) -> TriggerResult:  # noqa: ARG002
        """Set the timer."""
        context.register_processing_time_timer(_clock_end(window))
        return TriggerResult.CONTINUE

    def on_processing_time(self, time: int, window: Window, context: TriggerContext) -> TriggerResult:  # noqa: ARG002
        """Fire."""
        return TriggerResult.FIRE

    def on_merge(self, window: Window, context: MergeContext) -> None:
        """Set the timer of the session it became."""
        context.register_processing_time_timer(_clock_end(window))

    def describe(self) -> str:
        """Return the trigger as a user would write it."""
        return "processing_time_trigger()"


@dataclass(frozen=True)
class ContinuousEventTimeTrigger(QuietTrigger):
    """Fires when the watermark passes a multiple of the interval, from the one after the first element on, and at the window's end.

    After the end each epoch with elements fires, for sessions if they are due still once all of its elements are taken. Steps that a
    watermark skips are one firing, where Flink would loop over them, since a window has one pane per epoch.

    Raises:
        DurationError: the interval is not positive.
    """

    interval_ms: int

    def __post_init__(self) -> None:
        _require_interval(self.interval_ms)

    def on_element(self, element: object, timestamp: int, window: Window, context: TriggerContext) -> TriggerResult:  # noqa: ARG002
        """Set the timers, unless the window is due; that of the next step only with the first element."""
        if is_due(window, context.watermark):
            return TriggerResult.CONTINUE
        context.register_event_time_timer(due_time(window))
        if context.get("next") is None:
            self._set_next(timestamp, window, context)
        return TriggerResult.CONTINUE

    def on_event_time(self, time: int, window: Window, context: TriggerContext) -> TriggerResult:
        """Fire at the end, and at each step, which sets the next one."""
        if time == due_time(window):
            return TriggerResult.FIRE
        if time != kept_number(context, "next"):
            return TriggerResult.CONTINUE
        self._set_next(max(time, context.watermark), window, context)
        return TriggerResult.FIRE

    def on_epoch_end(self, window: Window, context: TriggerContext) -> TriggerResult:
        """Fire if the window is due: if it was before the epoch, late elements came; if not, its timer has fired anyway."""
        return TriggerResult.FIRE if is_due(window, context.watermark) else TriggerResult.CONTINUE

    def on_merge(self, window: Window, context: MergeContext) -> None:  # noqa: ARG002
        """Go on with the earliest next step."""
        steps = merged_numbers(context, "next")
        if steps:
            context.put("next", min(steps))
            context.register_event_time_timer(min(steps))

    def describe(self) -> str:
        """Return the trigger as a user would write it."""
        return f"continuous_event_time_trigger({format_duration(self.interval_ms)!r})"

    def _set_next(self, after: int, window: Window, context: TriggerContext) -> None:
        time = min(_next_step(after, self.interval_ms), due_time(window))
        context.put("next", time)
        context.register_event_time_timer(time)


@dataclass(frozen=True)
class ContinuousProcessingTimeTrigger(QuietTrigger):
    """Fires at each multiple of the interval of processing time, from the one after the first element on, whether or not elements came.

    For windows of processing time the last step is their end. Windows of event time have no end in processing time: there it fires
    until their state expires, and nothing fires at their end.

    Raises:
        DurationError: the interval is not positive.
    """

    interval_ms: int

    def __post_init__(self) -> None:
        _require_interval(self.interval_ms)

    def on_element(self, element: object, timestamp: int, window: Window, context: TriggerContext) -> TriggerResult:  # noqa: ARG002
        """Set the timer of the next step with the first element."""
        if context.get("next") is None:
            self._set_next(context.processing_time, window, context)
        return TriggerResult.CONTINUE

    def on_processing_time(self, time: int, window: Window, context: TriggerContext) -> TriggerResult:
        """Fire at each step, which sets the next one."""
        if time != kept_number(context, "next"):
            return TriggerResult.CONTINUE
        context.put("next", None)
        # At the end of input the watermark of processing time is the greatest, while the clock stays.
        now = context.watermark + 1 if context.domain == "processing" else context.processing_time
        if context.domain == "event" or time < _clock_end(window):
            self._set_next(max(time, now), window, context)
        return TriggerResult.FIRE

    def on_merge(self, window: Window, context: MergeContext) -> None:  # noqa: ARG002
        """Go on with the earliest next step."""
        steps = merged_numbers(context, "next")
        if steps:
            context.put("next", min(steps))
            context.register_processing_time_timer(min(steps))

    def describe(self) -> str:
        """Return the trigger as a user would write it."""
        return f"continuous_processing_time_trigger({format_duration(self.interval_ms)!r})"

    def _set_next(self, after: int, window: Window, context: TriggerContext) -> None:
        time = _next_step(after, self.interval_ms)
        if context.domain == "processing":
            time = min(time, _clock_end(window))
        context.put("next", time)
        context.register_processing_time_timer(time)


def _next_step(after: int, interval: int) -> int:
    """Return the first multiple of the interval that is greater than a time; floored, so before 1970 too."""
    return after - after % interval + interval


def _clock_end(window: Window) -> int:
    return min(window.end, MAX_WATERMARK)


def _require_interval(interval: int) -> None:
    if type(interval) is not int or interval <= 0:
        raise DurationError(f"interval={interval!r} must be a positive number of milliseconds", fix="give such as '1 minute'")

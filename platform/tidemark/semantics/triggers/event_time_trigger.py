"""The event-time trigger: a pane when the watermark reaches the window's end, and optional early and late panes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tidemark.semantics.triggers.trigger_scope import MergeScope, TriggerScope
from tidemark.semantics.triggers.triggers import MergeContext, Trigger, TriggerContext, TriggerResult, kept_number, merged_numbers
from tidemark.semantics.watermarks.lateness import due_time, is_due
from tidemark.semantics.windows.windows import Window

_WAITING: Final = "late answer"
"""The result of ``late`` for elements of the current epoch; kept until its end."""


@dataclass(frozen=True)
class EventTimeTrigger:
    """Fires when the window is due, whatever the inner triggers return; the default of windows of event time.

    Before that, ``early`` decides, if there is one; its state and timers are dropped when the window becomes due. After that,
    within the allowed lateness, ``late`` decides; without one, each epoch with elements fires. A session that is not yet due has no late
    phase, even if it absorbed sessions that had: the state of ``late`` is dropped, and it begins again after the session's own end.
    So late elements fire only if the session is still due after all elements of their epoch.
    """

    early: Trigger | None = None
    late: Trigger | None = None

    @property
    def can_merge(self) -> bool:
        """Whether the others can."""
        return all(inner.can_merge for inner in (self.early, self.late) if inner is not None)

    def on_element(self, element: object, timestamp: int, window: Window, context: TriggerContext) -> TriggerResult:
        """Set the timer of the window's end and call ``early``; for a window that is due, call ``late``, whose result is deferred."""
        if is_due(window, context.watermark):
            if self.late is not None:
                _wait(context, self.late.on_element(element, timestamp, window, _late(context)))
            return TriggerResult.CONTINUE
        context.register_event_time_timer(due_time(window))
        if self.early is None:
            return TriggerResult.CONTINUE
        return self.early.on_element(element, timestamp, window, _early(window, context))

    def on_event_time(self, time: int, window: Window, context: TriggerContext) -> TriggerResult:
        """Fire at the window's end; else call the inner trigger that set the timer."""
        result = TriggerResult.CONTINUE
        late = _late(context)
        if late.take_timer("event", time):
            # The late phase begins when the timer of the end has fired, so this is not that one, even if it has its time.
            return result if self.late is None else self.late.on_event_time(time, window, late)
        early = _early(window, context)
        if early.take_timer("event", time) and self.early is not None:
            result |= self.early.on_event_time(time, window, early)
        if time == due_time(window):
            early.clear()
            result |= TriggerResult.FIRE
        return result

    def on_processing_time(self, time: int, window: Window, context: TriggerContext) -> TriggerResult:
        """Call the inner trigger that set the timer."""
        result = TriggerResult.CONTINUE
        early, late = _early(window, context), _late(context)
        if early.take_timer("processing", time) and self.early is not None:
            result |= self.early.on_processing_time(time, window, early)
        if late.take_timer("processing", time) and self.late is not None:
            result |= self.late.on_processing_time(time, window, late)
        return result

    def on_epoch_end(self, window: Window, context: TriggerContext) -> TriggerResult:
        """Call the inner trigger that decides at the epoch's final watermark; for late elements, return the deferred result."""
        if is_due(window, context.watermark):
            waited = TriggerResult(kept_number(context, _WAITING) or 0)
            context.put(_WAITING, None)
            return waited | (TriggerResult.FIRE if self.late is None else self.late.on_epoch_end(window, _late(context)))
        return TriggerResult.CONTINUE if self.early is None else self.early.on_epoch_end(window, _early(window, context))

    def on_merge(self, window: Window, context: MergeContext) -> None:
        """Set the timer of the session's end and merge the state of ``early``, or, for a session that is due, that of ``late``."""
        if is_due(window, context.watermark):
            if self.late is not None:
                self.late.on_merge(window, MergeScope(context, "late", merging=context))
                for waited in merged_numbers(context, _WAITING):
                    _wait(context, TriggerResult(waited))
            return
        context.register_event_time_timer(due_time(window))
        if self.early is not None:
            self.early.on_merge(window, MergeScope(context, "early", due_time(window), merging=context))

    def describe(self) -> str:
        """Return the trigger as a user would write it."""
        inner = (("early", self.early), ("late", self.late))
        return f"event_time_trigger({', '.join(f'{name}={trigger.describe()}' for name, trigger in inner if trigger is not None)})"


def _early(window: Window, context: TriggerContext) -> TriggerScope:
    return TriggerScope(context, "early", due_time(window))


def _late(context: TriggerContext) -> TriggerScope:
    return TriggerScope(context, "late")


def _wait(context: TriggerContext, answer: TriggerResult) -> None:
    context.put(_WAITING, ((kept_number(context, _WAITING) or 0) | answer.value) or None)

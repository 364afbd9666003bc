"""Requirements of an operator's trigger and evictor."""

from __future__ import annotations

from tidemark.graph.operators.window.node import WindowNode
from tidemark.semantics.triggers.builtin_triggers import (
    ContinuousEventTimeTrigger,
    ContinuousProcessingTimeTrigger,
    CountTrigger,
    DeltaTrigger,
    EachEpochTrigger,
    EventTimeTrigger,
    NeverTrigger,
    ProcessingTimeTrigger,
    PurgingTrigger,
    default_trigger,
)
from tidemark.semantics.triggers.triggers import Trigger
from tidemark.semantics.windows.assigners import CountWindows, Cumulative, Sliding, Tumbling
from tidemark.semantics.windows.local_windows import DAY_MS, LocalWindows
from tidemark.semantics.windows.windows import WindowAssigner

_SIMPLE = (
    ContinuousEventTimeTrigger,
    ContinuousProcessingTimeTrigger,
    CountTrigger,
    EachEpochTrigger,
    NeverTrigger,
    ProcessingTimeTrigger,
)


def only_adds(rule: object) -> bool:
    """Return whether a trigger never purges; a user's own may."""
    if isinstance(rule, EventTimeTrigger):
        return all(inner is None or only_adds(inner) for inner in (rule.early, rule.late))
    return isinstance(rule, (*_SIMPLE, DeltaTrigger))


def trigger_in_effect(node: WindowNode) -> Trigger | None:
    """Return the trigger of an operator, None for count windows.

    In the late phase of the windows' end trigger every epoch with accepted late elements fires once, at its end: except a session that
    was late when an element came, and is no longer late after merging with one that has yet to fire.
    """
    if isinstance(node.assigner, CountWindows):
        return None
    return _once_per_epoch(default_trigger(node.assigner) if node.trigger is None else node.trigger)


def _once_per_epoch(trigger: Trigger) -> Trigger:
    if isinstance(trigger, PurgingTrigger):
        return PurgingTrigger(_once_per_epoch(trigger.inner))
    if isinstance(trigger, EventTimeTrigger) and trigger.late is None:
        return EventTimeTrigger(trigger.early, EachEpochTrigger())
    return trigger


def fires_when_due(node: WindowNode) -> bool:
    """Return whether a window fires only at its end, and for late elements after that."""
    trigger = trigger_in_effect(node)
    inner = trigger.inner if isinstance(trigger, PurgingTrigger) else trigger
    if isinstance(inner, ProcessingTimeTrigger):
        return node.assigner.domain == "processing"
    return isinstance(inner, EventTimeTrigger) and inner.early is None and inner.late == EachEpochTrigger()


def longest_window(assigner: WindowAssigner) -> int | None:
    """Return the length of an assigner's longest window, None where windows have no greatest length."""
    match assigner:
        case Tumbling() | Sliding():
            return assigner.size_ms
        case Cumulative():
            return assigner.max_size_ms
        case LocalWindows():
            # Clocks are never set back by more than about a day.
            inner = longest_window(assigner.windows)
            return None if inner is None else inner + 2 * DAY_MS
    return None


def expires_by_time(node: WindowNode) -> bool:
    """Return whether only time removes an element from a window."""
    trigger = trigger_in_effect(node)
    return longest_window(node.assigner) is not None and node.evictor is None and trigger is not None and only_adds(trigger)

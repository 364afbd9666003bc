"""Which windows run on Spark's native operators, with partial results as state, and which ones keep elements for Python."""

from __future__ import annotations

from tidemark.graph.operators.window.node import WindowNode
from tidemark.semantics.triggers.builtin_triggers import (
    ContinuousEventTimeTrigger,
    ContinuousProcessingTimeTrigger,
    CountTrigger,
    EachEpochTrigger,
    EventTimeTrigger,
    NeverTrigger,
    ProcessingTimeTrigger,
    PurgingTrigger,
    default_trigger,
)
from tidemark.semantics.triggers.triggers import Trigger
from tidemark.semantics.windows.assigners import CountWindows, Cumulative, DynamicSession, GlobalWindows, Session, Sliding, Tumbling
from tidemark.semantics.windows.local_windows import LocalWindows

_SOONER = (CountTrigger, EachEpochTrigger, ContinuousEventTimeTrigger, ContinuousProcessingTimeTrigger)
_ALONE = (*_SOONER, ProcessingTimeTrigger, NeverTrigger)


def is_incremental(node: WindowNode) -> bool:
    """Return whether native aggregates compute a window's results as elements come, so that no elements are kept."""
    return is_triggered(node) or is_local(node) or is_triggered_session(node) or fires_at_its_end(node) or is_incremental_count(node)


def fires_at_its_end(node: WindowNode) -> bool:
    """Return whether aligned windows or sessions fire at their end and for late elements, and are aggregated or reduced."""
    plain = node.trigger is None or node.trigger == default_trigger(node.assigner)
    known = isinstance(node.assigner, Tumbling | Sliding | Cumulative | Session | DynamicSession)
    return plain and known and node.evictor is None and bool(node.aggregates)


def is_incremental_count(node: WindowNode) -> bool:
    """Return whether a window's groups are counted, and are aggregated as elements come."""
    return isinstance(node.assigner, CountWindows) and bool(node.aggregates)


def is_triggered(node: WindowNode) -> bool:
    """Return whether a window's panes are aggregates that a trigger with a rule fires."""
    aligned = isinstance(node.assigner, Tumbling | Sliding | Cumulative | GlobalWindows) and node.assigner.domain == "event"
    ruled = node.trigger is not None and node.trigger != EventTimeTrigger() and has_rule(rule_of(node.trigger))
    return aligned and ruled and node.evictor is None and bool(node.aggregates)


def is_local(node: WindowNode) -> bool:
    """Return whether a window's panes are aggregates of local days, which fire at their end or by a trigger with a rule."""
    ruled = node.trigger is None or has_rule(rule_of(node.trigger))
    return isinstance(node.assigner, LocalWindows) and ruled and node.evictor is None and bool(node.aggregates)


def is_triggered_session(node: WindowNode) -> bool:
    """Return whether sessions' panes are aggregates that a trigger with a rule fires."""
    sessions = isinstance(node.assigner, Session | DynamicSession) and node.assigner.domain == "event"
    trigger = node.trigger
    if isinstance(trigger, EventTimeTrigger):
        late = trigger.late is None or isinstance(trigger.late, CountTrigger | EachEpochTrigger)
        ruled = late and trigger != EventTimeTrigger() and (trigger.early is None or isinstance(trigger.early, _SOONER))
    else:
        ruled = isinstance(trigger, _ALONE)
    return sessions and ruled and node.evictor is None and bool(node.aggregates)


def rule_of(trigger: Trigger) -> Trigger:
    """Return the trigger that decides when windows fire: the inner one of a purging trigger."""
    return trigger.inner if isinstance(trigger, PurgingTrigger) else trigger


def has_rule(trigger: Trigger) -> bool:
    """Return whether a rule can express a trigger on aligned windows, without evaluating each element."""
    if isinstance(trigger, EventTimeTrigger):
        early = trigger.early is None or isinstance(trigger.early, _SOONER)
        return early and (trigger.late is None or isinstance(trigger.late, CountTrigger | EachEpochTrigger))
    return isinstance(trigger, _ALONE)

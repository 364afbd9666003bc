"""Descriptions of window operators: their windows, triggers, evictors and results."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tidemark.durations import format_duration
from tidemark.graph.expressions.expression_text import describe_columns, describe_expression, function_name
from tidemark.graph.model.aggregates import Aggregate
from tidemark.graph.operators.window.node import WindowFunction, WindowNode
from tidemark.semantics.process.evictors import CountEvictor, DeltaEvictor, Evictor, TimeEvictor
from tidemark.semantics.triggers.builtin_triggers import (
    ContinuousEventTimeTrigger,
    ContinuousProcessingTimeTrigger,
    CountTrigger,
    DeltaTrigger,
    EventTimeTrigger,
    PurgingTrigger,
)
from tidemark.semantics.triggers.triggers import Trigger
from tidemark.semantics.windows.assigners import CountWindows, Cumulative, DynamicSession, GlobalWindows, Session, Sliding, Tumbling
from tidemark.semantics.windows.local_windows import LocalWindows
from tidemark.semantics.windows.windows import WindowAssigner


def describe_window(node: WindowNode) -> str:
    """Return a window operator's keys, windows, trigger, evictor, lateness and results."""
    key = f"by {describe_columns(node.keys)}" if node.keys else "over all rows"
    return f"{key}, {describe_firing(node)}: {describe_results(node)}"


_OWN: Final[Mapping[str, str]] = {
    "window_start": "Start of the window, inclusive.",
    "window_end": "End of the window, exclusive.",
    "pane_timing": "EARLY, ON_TIME or LATE: when the result was made.",
    "pane_index": "Number of the result of this key and window, from 0; the greatest is the newest.",
    "replaces": "Starts of the sessions whose results this one replaces.",
}


def describe_rows(node: WindowNode) -> str:
    """Return what a result row is, as Markdown."""
    by = ", ".join(f"`{name}`" for name, _ in node.keys)
    each = f"One row for each {by}, window and pane" if by else "One row for each window and pane"
    return f"{each} ({describe_firing(node)})"


def describe_column(node: WindowNode, name: str) -> str | None:
    """Return a description of a result column, as Markdown; None for a column of a function."""
    keys, aggregates = dict(node.keys), dict(node.aggregates)
    if name in keys:
        text = describe_expression(keys[name])
        return "Key of the window." if text == name else f"Key of the window: `{text}`."
    if name in aggregates and node.function is None and not node.reduced:
        return f"`{describe_aggregate(aggregates[name])}` over the window."
    return _OWN.get(name)


def describe_firing(node: WindowNode) -> str:
    """Return a window operator's windows, trigger, evictor and lateness.

    >>> describe_firing(WindowNode(keys=(), assigner=GlobalWindows(), aggregates=(), trigger=CountTrigger(100)))
    'global, trigger count 100'
    """
    parts = [describe_assigner(node.assigner)]
    if node.trigger is not None:
        parts.append(f"trigger {describe_trigger(node.trigger)}")
    if node.evictor is not None:
        parts.append(f"evictor {describe_evictor(node.evictor)}")
    if node.allowed_lateness_ms:
        parts.append(f"allowed lateness {format_duration(node.allowed_lateness_ms)}")
    return ", ".join(parts)


def describe_results(node: WindowNode) -> str:
    """Return what a window operator makes of each window."""
    if node.reduced:
        return "reduce " + ", ".join(name if merge is None else f"{name} = {' '.join(merge.split())}" for name, merge in node.reduced)
    parts = [", ".join(f"{name} = {describe_aggregate(aggregate)}" for name, aggregate in node.aggregates)] if node.aggregates else []
    if node.function is not None:
        parts.append(_function(node.function, then=bool(parts)))
    return ", ".join(parts)


def describe_assigner(assigner: WindowAssigner) -> str:
    """Return an assigner as a user would say it.

    >>> describe_assigner(Tumbling(3_600_000))
    'tumbling 1h'
    """
    match assigner:
        case Tumbling():
            text = f"tumbling {format_duration(assigner.size_ms)}{_offset(assigner.offset_ms)}"
        case Sliding():
            size, slide = format_duration(assigner.size_ms), format_duration(assigner.slide_ms)
            text = f"sliding {size} every {slide}{_offset(assigner.offset_ms)}"
        case Cumulative():
            size, step = format_duration(assigner.max_size_ms), format_duration(assigner.step_ms)
            text = f"cumulative {size} by {step}{_offset(assigner.offset_ms)}"
        case Session():
            text = f"session gap {format_duration(assigner.gap_ms)}"
        case DynamicSession():
            text = f"session gap by {' '.join(assigner.gap_by.split())}"
        case CountWindows():
            text = f"count {assigner.size}" + (f" every {assigner.slide}" if assigner.slide is not None else "")
        case GlobalWindows():
            text = "global"
        case LocalWindows():
            text = f"{describe_assigner(assigner.windows)} in {assigner.zone or f'the zone {assigner.zone_by}'}"
        case _:
            text = assigner.describe()
    return f"{text} of processing time" if assigner.domain == "processing" else text


def describe_trigger(trigger: Trigger) -> str:
    """Return a trigger as a user would say it.

    >>> describe_trigger(PurgingTrigger(EventTimeTrigger(early=CountTrigger(100))))
    'event time (early: count 100), purging'
    """
    match trigger:
        case EventTimeTrigger():
            inner = [(name, part) for name, part in (("early", trigger.early), ("late", trigger.late)) if part is not None]
            shown = "; ".join(f"{name}: {describe_trigger(part)}" for name, part in inner)
            return f"event time ({shown})" if shown else "event time"
        case ContinuousEventTimeTrigger():
            return f"every {format_duration(trigger.interval_ms)} of event time"
        case ContinuousProcessingTimeTrigger():
            return f"every {format_duration(trigger.interval_ms)} of processing time"
        case CountTrigger():
            return f"count {trigger.count}"
        case DeltaTrigger():
            return f"delta {function_name(trigger.delta)} > {trigger.threshold:g}"
        case PurgingTrigger():
            return f"{describe_trigger(trigger.inner)}, purging"
        case _:
            # Those that have no settings, by their names; a user's own as it says.
            return trigger.describe().removesuffix("()").removesuffix("_trigger").replace("_", " ")


def describe_evictor(evictor: Evictor) -> str:
    """Return an evictor as a user would say it.

    >>> describe_evictor(TimeEvictor(300_000, after=True))
    'time 5m after the function'
    """
    match evictor:
        case CountEvictor():
            text = f"count {evictor.count}"
        case TimeEvictor():
            text = f"time {format_duration(evictor.size_ms)}"
        case DeltaEvictor():
            text = f"delta {function_name(evictor.delta)} >= {evictor.threshold:g}"
        case _:
            return evictor.describe()
    return f"{text} after the function" if evictor.after else text


def describe_aggregate(aggregate: Aggregate) -> str:
    """Return an aggregate as a call."""
    return f"{aggregate.kind}({', '.join(aggregate.arguments)})"


def _function(function: WindowFunction, *, then: bool) -> str:
    on_batches = " on batches" if function.batches else ""
    return f"{'then ' if then else ''}process {function_name(function.function)}{on_batches} returns {function.returns}"


def _offset(offset_ms: int) -> str:
    return f" offset {format_duration(offset_ms)}" if offset_ms else ""

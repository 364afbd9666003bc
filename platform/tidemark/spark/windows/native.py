"""Which windows Spark's own operators run, and which ones a process in Python does."""

from __future__ import annotations

from tidemark.graph.nodes import WindowNode
from tidemark.semantics.assigners import CountWindows, Cumulative, DynamicSession, Session, Sliding, Tumbling
from tidemark.semantics.builtin_triggers import default_trigger
from tidemark.spark.windows.counted import is_counted
from tidemark.spark.windows.session_rules import is_triggered_session
from tidemark.spark.windows.triggered import is_triggered


def is_native(node: WindowNode) -> bool:
    """Return whether a window's results are made by native aggregates as elements come, so that no elements are kept."""
    return is_triggered(node) or is_triggered_session(node) or fires_at_its_end(node) or is_counted(node)


def fires_at_its_end(node: WindowNode) -> bool:
    """Return whether aligned windows or sessions fire at their end and for late elements, and are aggregated or reduced."""
    plain = node.trigger is None or node.trigger == default_trigger(node.assigner)
    known = isinstance(node.assigner, Tumbling | Sliding | Cumulative | Session | DynamicSession)
    return plain and known and node.evictor is None and bool(node.aggregates)


def needs_order(node: WindowNode) -> bool:
    """Return whether elements of one event time have to be told apart by their source positions."""
    one_by_one = isinstance(node.assigner, DynamicSession | CountWindows)
    return not is_native(node) or one_by_one or any(aggregate.ordered for _, aggregate in node.aggregates)

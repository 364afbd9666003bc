"""Which windows ask for the order of their elements."""

from __future__ import annotations

from tidemark.graph.model.nodes import WindowNode
from tidemark.graph.windows.native_windows import is_native
from tidemark.semantics.windows.assigners import CountWindows, DynamicSession


def needs_order(node: WindowNode) -> bool:
    """Return whether elements of one event time have to be told apart by their source positions."""
    one_by_one = isinstance(node.assigner, DynamicSession | CountWindows)
    return not is_native(node) or one_by_one or any(aggregate.ordered for _, aggregate in node.aggregates)

"""What an operator's kind says of it to the engine."""

from __future__ import annotations

from tidemark.graph.model.nodes import StatefulNode
from tidemark.graph.operators.registry import kind_of


def needs_order(node: StatefulNode) -> bool:
    """Return whether elements of one event time have to be told apart by their source positions."""
    return kind_of(node).needs_order(node)


def late_known_after_emit(node: StatefulNode) -> bool:
    """Return whether it is known only after ``emit`` which rows of an epoch were not accepted."""
    return kind_of(node).capabilities(node).late_known_after_emit

"""The columns that a regular join keeps of each input, by their names in state."""

from __future__ import annotations

from collections.abc import Mapping

from tidemark.graph.model.nodes import Expression
from tidemark.graph.operators.regular_join.node import RegularJoinNode, plain_name
from tidemark.graph.operators.state_names import partial_column


def on_part(port: str) -> str:
    """Return the part of state with the compared values of an input that are no columns of it."""
    return f"{port}_on"


def kept_columns(node: RegularJoinNode, port: str) -> Mapping[str, str]:
    """Return the columns of an input that results need, with their names in state; of the right of a semi or anti join only its key."""
    side = node.sides[port]
    needed = {*side.keys, *(plain_name(each, side.columns) for each in side.on)}
    whole = port == "left" or not node.left_only
    return {name: partial_column(port, name) for name in side.columns if whole or name in needed}


def compared_columns(node: RegularJoinNode, port: str) -> tuple[tuple[str, Expression], ...]:
    """Return the columns in state of an input's compared values, in order, with their expressions."""
    side, kept = node.sides[port], kept_columns(node, port)
    found = []
    for number, each in enumerate(side.on):
        name = plain_name(each, side.columns)
        found.append((partial_column(on_part(port), str(number)) if name is None else kept[name], each))
    return tuple(found)

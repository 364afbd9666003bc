"""What joins of elements in plain Python have in common: keys, and the rows of results."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from tidemark.graph.checks.schema_inference import schema_of
from tidemark.graph.operators.join_keys import result_columns
from tidemark.graph.operators.join_node import ElementJoinNode
from tidemark.semantics.joins.interval import SIDES, Side
from tidemark.testing.operators.contract import PureOperatorBase, Row, value_of


class PureElementJoin(PureOperatorBase):
    """A join of elements.

    Args:
        node: its declaration.
    """

    def __init__(self, node: ElementJoinNode) -> None:
        self._node = node
        schemas = [schema_of(port.node) for port in node.ports]
        names = [[] if schema is None else list(schema.names) for schema in schemas]
        self._names: dict[Side, list[str]] = dict(zip(SIDES, names, strict=True))

    def begin_epoch(self, processing_time: int) -> None:
        """Do nothing: only event time counts."""

    def learned(self, side: Side, row: Row) -> tuple[object, ...]:
        """Return the key of an element, whose columns are those of its side."""
        self._names[side] = self._names[side] or list(row)
        return self.key(side, row)

    def key(self, side: Side, row: Row) -> tuple[object, ...]:
        """Return the key of an element."""
        node = self._node
        sides = node.port_keys[node.PORTS.index(side)]
        return tuple(value_of(expression, row, what=f"{side} key {name!r}", node=node) for name, expression in sides)

    def joined_row(self, left: Row | None, right: Row | None) -> dict[str, object]:
        """Return the columns of a result."""
        node, nothing = self._node, cast("Mapping[str, object]", {})
        columns = result_columns(node.on, self._names["left"], self._names["right"], one_sided=node.one_sided)
        found = {}
        for each in columns:
            from_left = left is not None and each.left is not None
            found[each.name] = (left or nothing).get(each.left or "") if from_left else (right or nothing).get(each.right or "")
        return found

    def keys_by_name(self, side: Side, row: Row) -> dict[str, object]:
        """Return the key of an element, by name."""
        return dict(zip([key.name for key in self._node.on], self.key(side, row), strict=True))

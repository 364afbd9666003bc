"""Interval joins in plain Python, element by element."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from tidemark.graph.checks.schema_inference import schema_of
from tidemark.graph.operators.interval_join.node import IntervalJoinNode
from tidemark.graph.operators.join_keys import result_columns
from tidemark.semantics.joins.interval import SIDES, IntervalJoinByElement, Joined, Side
from tidemark.testing.operators.contract import Arrived, Emitted, Folds, PureOperatorBase, Row, instant, value_of


class PureIntervalJoin(PureOperatorBase):
    """An interval join.

    Args:
        node: its declaration.
        folds: not used.
    """

    def __init__(self, node: IntervalJoinNode, folds: Folds) -> None:
        del folds
        self._node = node
        self._operator = IntervalJoinByElement[Row](node.rule)
        schemas = [schema_of(port.node) for port in node.ports]
        names = [[] if schema is None else list(schema.names) for schema in schemas]
        self._names: dict[Side, list[str]] = dict(zip(SIDES, names, strict=True))

    def begin_epoch(self, processing_time: int) -> None:
        """Do nothing: only event time counts."""

    def process(self, element: Arrived) -> str | None:
        """Process an element; return ``late_left`` or ``late_right`` for a late one."""
        side = cast("Side", element.port)
        self._names[side] = self._names[side] or list(element.row)
        key = self._key(side, element.row)
        whole = None if None in key else key
        accepted = self._operator.process(side, whole, element.time, element.row)
        return None if accepted else f"late_{side}"

    def _key(self, side: Side, row: Row) -> tuple[object, ...]:
        node = self._node
        sides = node.port_keys[node.PORTS.index(side)]
        return tuple(value_of(expression, row, what=f"{side} key {name!r}", node=node) for name, expression in sides)

    def end_epoch(self, watermark: int) -> list[Emitted]:
        """Return the pairs, and the rows without a partner."""
        return [Emitted(self._row(each), each.time) for each in self._operator.end_epoch(watermark)]

    def _row(self, joined: Joined[Row]) -> dict[str, object]:
        node, nothing = self._node, cast("Mapping[str, object]", {})
        columns = result_columns(node.on, self._names["left"], self._names["right"], one_sided=node.one_sided)
        left, right = joined.left, joined.right or nothing
        found = {}
        for each in columns:
            from_left = left is not None and each.left is not None
            found[each.name] = (left or nothing).get(each.left or "") if from_left else right.get(each.right or "")
        return found

    def state(self) -> list[dict[str, object]]:
        """Return the elements of both sides, with their keys and times."""
        names = [key.name for key in self._node.on]
        return [
            {"input": side, **dict(zip(names, self._key(side, row), strict=True)), "event_time": instant(time), side: dict(row)}
            for side, _, time, row in self._operator.kept()
        ]

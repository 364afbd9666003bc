"""Interval joins in plain Python, element by element."""

from __future__ import annotations

from typing import cast

from tidemark.graph.operators.interval_join.node import IntervalJoinNode
from tidemark.semantics.joins.interval import IntervalJoinByElement, Side
from tidemark.testing.operators.contract import Arrived, Emitted, Folds, Row, instant
from tidemark.testing.operators.joins.sides import PureElementJoin


class PureIntervalJoin(PureElementJoin):
    """An interval join.

    Args:
        node: its declaration.
        folds: not used.
    """

    def __init__(self, node: IntervalJoinNode, folds: Folds) -> None:
        del folds
        super().__init__(node)
        self._operator = IntervalJoinByElement[Row](node.rule)

    def process(self, element: Arrived) -> str | None:
        """Process an element; return ``late_left`` or ``late_right`` for a late one."""
        side = cast("Side", element.port)
        key = self.learned(side, element.row)
        whole = None if None in key else key
        accepted = self._operator.process(side, whole, element.time, element.row)
        return None if accepted else f"late_{side}"

    def end_epoch(self, watermark: int) -> list[Emitted]:
        """Return the pairs, and the rows without a partner."""
        return [Emitted(self.joined_row(each.left, each.right), each.time) for each in self._operator.end_epoch(watermark)]

    def state(self) -> list[dict[str, object]]:
        """Return the elements of both sides, with their keys and times."""
        return [
            {"input": side, **self.keys_by_name(side, row), "event_time": instant(time), side: dict(row)}
            for side, _, time, row in self._operator.kept()
        ]

"""Window joins in plain Python, element by element."""

from __future__ import annotations

from typing import cast

from tidemark.graph.operators.window_join.node import WindowJoinNode
from tidemark.semantics.joins.interval import Side
from tidemark.semantics.joins.window import WindowJoinByElement, WindowJoined
from tidemark.semantics.windows.windows import Window
from tidemark.testing.operators.contract import Arrived, Emitted, Folds, Row, instant
from tidemark.testing.operators.joins.sides import PureElementJoin


class PureWindowJoin(PureElementJoin):
    """A window join.

    Args:
        node: its declaration.
        folds: not used.
    """

    def __init__(self, node: WindowJoinNode, folds: Folds) -> None:
        del folds
        super().__init__(node)
        self._operator = WindowJoinByElement[Row](node.rule)

    def process(self, element: Arrived) -> str | None:
        """Process an element; return ``late_left`` or ``late_right`` for a late one."""
        side = cast("Side", element.port)
        key = self.learned(side, element.row)
        return None if self._operator.process(side, key, element.time, element.row) else f"late_{side}"

    def end_epoch(self, watermark: int) -> list[Emitted]:
        """Return the results of windows that fire."""
        return [Emitted(self._row(each), each.window.max_timestamp) for each in self._operator.end_epoch(watermark)]

    def _row(self, each: WindowJoined[Row]) -> dict[str, object]:
        pane = {"pane_timing": each.timing, "pane_index": each.index}
        return {**self.joined_row(each.left, each.right), **_bounds(each.window), **pane}

    def state(self) -> list[dict[str, object]]:
        """Return the elements of both sides in each of their windows, with keys and bounds."""
        return [
            {"input": side, **self.keys_by_name(side, row), **_bounds(window), side: dict(row)}
            for side, _, window, row in self._operator.kept()
        ]


def _bounds(window: Window) -> dict[str, object]:
    return {"window_start": instant(window.start), "window_end": instant(window.end)}

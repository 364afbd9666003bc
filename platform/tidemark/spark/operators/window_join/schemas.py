"""Columns of a window join's state, results and side outputs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from tidemark.graph.operators.window_join.node import WindowJoinNode
from tidemark.spark.operators.base.schemas import with_time
from tidemark.spark.operators.interval_join.schemas import IntervalJoinSchemas
from tidemark.spark.operators.window_join.columns import WindowJoinColumns, window_join_types

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql import types as T


class WindowJoinSchemas(IntervalJoinSchemas):
    """Keys and the elements of both sides in state.

    Args:
        node: the operator.
        inputs: frames without rows, by port.
    """

    def __init__(self, node: WindowJoinNode, inputs: Mapping[str, DataFrame]) -> None:
        super().__init__(node, inputs)
        self._joined = WindowJoinColumns(node, self.sides)

    def results(self) -> T.StructType:
        """Return the columns of the left side, those of the right, the window, and the pane."""
        return with_time(window_join_types(self._joined))

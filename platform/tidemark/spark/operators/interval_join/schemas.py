"""Columns of an interval join's state, results and side outputs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from tidemark.graph.operators.join_node import LATE_OF, ElementJoinNode
from tidemark.semantics.joins.interval import SIDES
from tidemark.spark.operators.base.schemas import OperatorSchemas, with_time
from tidemark.spark.operators.interval_join.columns import (
    ResultColumns,
    SideColumns,
    check_key_types,
    key_types,
    result_types,
    row_types,
    state_schema,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql import types as T


class IntervalJoinSchemas(OperatorSchemas):
    """Keys and the elements of both sides in state.

    Args:
        node: the operator.
        inputs: frames without rows, by port.
    """

    def __init__(self, node: ElementJoinNode, inputs: Mapping[str, DataFrame]) -> None:
        self._inputs = inputs
        self._keys = key_types(node, "left", inputs["left"])
        check_key_types(node, self._keys, key_types(node, "right", inputs["right"]))
        self.sides = {side: SideColumns(node, side, row_types(inputs[side])) for side in SIDES}
        self._results = ResultColumns(node, self.sides)

    def state(self) -> T.StructType:
        """Return keys, and the columns of both sides."""
        return state_schema(self._keys, list(self.sides.values()))

    def results(self) -> T.StructType:
        """Return the columns of the left side, then those of the right."""
        return with_time(result_types(self._results))

    def side_output(self, counter: str) -> T.StructType:
        """Return the columns of the side whose late rows they are."""
        return self._inputs[LATE_OF[counter]].schema

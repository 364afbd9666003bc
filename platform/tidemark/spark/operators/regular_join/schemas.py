"""Columns of a regular join's state and results."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from tidemark.graph.operators.regular_join.node import RegularJoinNode
from tidemark.spark.operators.base.schemas import OperatorSchemas
from tidemark.spark.operators.regular_join.layout import JoinLayout, types_of_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql import types as T


class RegularJoinSchemas(OperatorSchemas):
    """The kept columns of both inputs in state; as results the columns of both.

    Args:
        node: the operator.
        inputs: frames without rows, by port.
    """

    def __init__(self, node: RegularJoinNode, inputs: Mapping[str, DataFrame]) -> None:
        self._layout = JoinLayout(node, {port: types_of_rows(node, port, rows) for port, rows in inputs.items()})

    def state(self) -> T.StructType:
        """Return the kept columns and compared values of both inputs."""
        return self._layout.state

    def results(self) -> T.StructType:
        """Return the columns of both inputs, as far as results have them."""
        return self._layout.result_types

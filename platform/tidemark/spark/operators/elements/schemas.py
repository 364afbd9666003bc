"""Columns of the results and side outputs of an operator over elements, which keeps none in a main state table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from pyspark.sql import types as T

from tidemark.graph.operators.element_process.node import ElementProcessNode
from tidemark.graph.operators.emitting import emitted_counter
from tidemark.spark.columns.expressions import visible_of
from tidemark.spark.columns.schemas import nullable, struct_of
from tidemark.spark.operators.base.schemas import OperatorSchemas, with_time

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class ElementSchemas(OperatorSchemas):
    """As results the columns that the function declares; of a filter those of its input.

    Args:
        node: the operator.
        inputs: frames without rows, by port.
    """

    def __init__(self, node: ElementProcessNode, inputs: Mapping[str, DataFrame]) -> None:
        self._node = node
        self._rows = inputs[node.PORTS[0]]

    def state(self) -> T.StructType:
        """Return no columns."""
        return T.StructType()

    def results(self) -> T.StructType:
        """Return the declared columns, or those of the elements."""
        return with_time(self._elements if self._node.keeps_elements else struct_of(self._node.returns))

    def side_output(self, counter: str) -> T.StructType:
        """Return the declared columns; of failed elements those of the input, and the error."""
        for tag, ddl in self._node.side_outputs:
            if emitted_counter(tag) == counter:
                return with_time(struct_of(ddl))
        return with_time(T.StructType([*self._elements, T.StructField("error", T.StringType())]))

    @property
    def _elements(self) -> T.StructType:
        names = visible_of(self._rows.columns)
        return T.StructType([field for field in nullable(self._rows.schema) if field.name in names])

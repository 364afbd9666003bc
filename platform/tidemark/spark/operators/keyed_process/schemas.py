"""Columns of a process function's state, results and side outputs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from pyspark.sql import types as T

from tidemark.graph.operators.emitting import emitted_counter
from tidemark.graph.operators.keyed_process.node import KeyedProcessNode
from tidemark.spark.columns.expressions import column, visible_of
from tidemark.spark.columns.schemas import nullable, struct_of
from tidemark.spark.operators.base.schemas import OperatorSchemas, with_time
from tidemark.spark.operators.keyed_process.columns import TIMER_FIELDS
from tidemark.spark.operators.keyed_process.layout import keys_of_node, state_fields

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class KeyedProcessSchemas(OperatorSchemas):
    """Keys and states in state; as results the columns that the function declares.

    Args:
        node: the operator.
        inputs: frames without rows, by port.
    """

    def __init__(self, node: KeyedProcessNode, inputs: Mapping[str, DataFrame]) -> None:
        self._node = node
        self._rows = inputs[node.PORTS[0]]

    def state(self) -> T.StructType:
        """Return keys, and the columns of states."""
        names = keys_of_node(self._node)
        keys = self._rows.select(*(column(expression).alias(names[name]) for name, expression in self._node.keys)).schema
        timers = {field.name for field in TIMER_FIELDS}
        return T.StructType([*nullable(keys), *(field for field in state_fields(self._node) if field.name not in timers)])

    def results(self) -> T.StructType:
        """Return the declared columns."""
        return with_time(struct_of(self._node.returns))

    def side_output(self, counter: str) -> T.StructType:
        """Return the declared columns; of failed elements those of the input, and the error."""
        for tag, ddl in self._node.side_outputs:
            if emitted_counter(tag) == counter:
                return with_time(struct_of(ddl))
        if len(self._node.methods) > 1:
            return with_time(struct_of("input STRING, element STRING, error STRING"))
        names = visible_of(self._rows.columns)
        given = [field for field in nullable(self._rows.schema) if field.name in names]
        return with_time(T.StructType([*given, T.StructField("error", T.StringType())]))

"""Columns of the results of a join with a table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from pyspark.sql import types as T

from tidemark.graph.checks.schema_inference import schema_of
from tidemark.graph.operators.lookup.node import LookupNode
from tidemark.spark.columns.expressions import visible_of
from tidemark.spark.columns.schemas import no_rows, nullable, struct_of
from tidemark.spark.operators.base.schemas import OperatorSchemas, with_time
from tidemark.spark.operators.lookup.frames import joined, keyed_rows, with_found
from tidemark.spark.operators.lookup.versions import TableReader

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class LookupSchemas(OperatorSchemas):
    """No state; as results the columns of the input, then those of the table.

    Args:
        node: the operator.
        inputs: frames without rows, by port.
    """

    def __init__(self, node: LookupNode, inputs: Mapping[str, DataFrame]) -> None:
        self._node = node
        self._rows = inputs["elements"]

    def state(self) -> T.StructType:
        """Return no columns."""
        return T.StructType()

    def results(self) -> T.StructType:
        """Return the columns of both; those of the table are read from it, unless they were declared.

        Raises:
            SourceError: there is no such table, or it cannot be read.
        """
        node, spark = self._node, self._rows.sparkSession
        if node.table.schema is not None:
            table = no_rows(spark, nullable(struct_of(node.table.schema)))
        else:
            table = TableReader(node).current(spark)
        made = joined(node, self._rows, with_found(keyed_rows(node, table))).schema
        columns = {field.name: field for field in nullable(made) if visible_of([field.name])}
        known = schema_of(node)
        ordered = [name for name in (known.names if known is not None else ()) if name in columns]
        return with_time(T.StructType([*(columns.pop(name) for name in ordered), *columns.values()]))

"""Columns of a temporal join's state, results and side outputs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from pyspark.sql import types as T

from tidemark.graph.checks.schema_inference import schema_of
from tidemark.graph.operators.asof_join.node import LATE_RIGHT, LEFT, RIGHT, AsofJoinNode
from tidemark.graph.operators.join_keys import added_names
from tidemark.spark.columns.changes import CHANGE_TYPE
from tidemark.spark.columns.expressions import CHANGE, visible_of
from tidemark.spark.columns.schemas import nullable
from tidemark.spark.operators.asof_join.frames import AsofFrames
from tidemark.spark.operators.base.schemas import OperatorSchemas, with_time

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class AsofJoinSchemas(OperatorSchemas):
    """Keys and both inputs' columns in state; as results the left columns, then the right ones.

    Args:
        node: the operator.
        inputs: frames without rows, by port.
    """

    def __init__(self, node: AsofJoinNode, inputs: Mapping[str, DataFrame]) -> None:
        self._node = node
        self._left, self._right = inputs[LEFT], inputs[RIGHT]
        self._frames = AsofFrames(node)

    def state(self) -> T.StructType:
        """Return keys, and the columns of both inputs."""
        kept = [self._frames.rows_of(LEFT, self._left, 0).schema, self._frames.rows_of(RIGHT, self._right, 0).schema]
        columns = {field.name: field for schema in kept for field in nullable(schema) if visible_of([field.name])}
        return T.StructType(list(columns.values()))

    def results(self) -> T.StructType:
        """Return the left columns, then the right ones without the keys of one name."""
        left, right = _visible(self._left), _visible(self._right)
        names = set(added_names(self._node.on, right.names))
        found = {field.name: field for field in (*left, *(field for field in right if field.name in names))}
        known = schema_of(self._node)
        ordered = [name for name in (known.names if known is not None else ()) if name in found]
        columns = with_time(T.StructType([*(found.pop(name) for name in ordered), *found.values()]))
        return T.StructType([*columns, T.StructField(CHANGE, CHANGE_TYPE)]) if self._node.corrects else columns

    def side_output(self, counter: str) -> T.StructType:
        """Return the columns of the late element's own input."""
        return with_time(_visible(self._right if counter == LATE_RIGHT else self._left))


def _visible(rows: DataFrame) -> T.StructType:
    names = set(visible_of(rows.columns))
    return T.StructType([field for field in nullable(rows.schema) if field.name in names])

"""Columns of a deduplication's state and results."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from tidemark.graph.operators.deduplicate.node import DeduplicateNode
from tidemark.spark.columns.expressions import POSITION, TIME, quoted, visible_of
from tidemark.spark.columns.schemas import nullable
from tidemark.spark.operators.base.schemas import OperatorSchemas
from tidemark.spark.operators.deduplicate.frames import DeduplicateFrames

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql import types as T


class DeduplicateSchemas(OperatorSchemas):
    """Keys in state; as results the input's columns.

    Args:
        node: the operator.
        inputs: frames without rows, by port.
    """

    def __init__(self, node: DeduplicateNode, inputs: Mapping[str, DataFrame]) -> None:
        (self._rows,) = inputs.values()
        self._frames = DeduplicateFrames(node)

    def state(self) -> T.StructType:
        """Return the keys."""
        return nullable(self._rows.select(*self._frames.key_columns).schema)

    def results(self) -> T.StructType:
        """Return the input's columns."""
        return self._rows.select(*map(quoted, visible_of(self._rows.columns)), TIME, POSITION).schema

"""Columns of the state and the results of the best rows of each group."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from pyspark.sql import types as T

from tidemark.graph.operators.top_n.node import TopNode
from tidemark.spark.operators.changelog.schemas import RowsSchemas
from tidemark.spark.operators.top_n.frames import TopFrames

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def top_schemas(node: TopNode, inputs: Mapping[str, DataFrame]) -> RowsSchemas:
    """Return the columns of an operator: the input's, and as results also the rank."""
    added = None if node.rank is None else T.StructType([T.StructField(node.rank, T.IntegerType())])
    return RowsSchemas(TopFrames(node), inputs, added)

"""Columns of the state and the results of aggregates of groups."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from tidemark.graph.operators.group_aggregate.node import GroupAggregateNode
from tidemark.spark.operators.base.schemas import OperatorSchemas
from tidemark.spark.operators.group_aggregate.layout import GroupLayout
from tidemark.spark.operators.group_aggregate.lookups import CountedValues, KeptRows
from tidemark.spark.operators.group_aggregate.passes import GroupPasses

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql import types as T


class GroupAggregateSchemas(OperatorSchemas):
    """Keys and aggregates in state; as results the rows of a changelog.

    Args:
        node: the operator.
        inputs: frames without rows, by port.
    """

    def __init__(self, node: GroupAggregateNode, inputs: Mapping[str, DataFrame]) -> None:
        (self._rows,) = inputs.values()
        self._layout = GroupLayout(node)
        self._uid = node.uid or ""
        self._schema = self._layout.schema(self._rows)

    def state(self) -> T.StructType:
        """Return keys and the columns of aggregates, of all tables."""
        return self._schema

    def results(self) -> T.StructType:
        """Return the columns of results."""
        passes = GroupPasses(self._layout, self._schema, self._uid)
        weighted = passes.weighted(self._rows)
        found = []
        if self._layout.counted:
            values = CountedValues(self._layout, self._schema)
            found.append(values.found(values.merged(weighted, None)))
        if self._layout.kept:
            kept = KeptRows(self._layout)
            found.append(kept.found(kept.merged(weighted, None)))
        groups = passes.groups(passes.delta(self._rows), None, found)
        return passes.changes(passes.with_results(groups)).schema

"""Columns of a window operator's state and results."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from pyspark.sql import types as T

from tidemark.graph.operators.window.execution import is_incremental
from tidemark.graph.operators.window.node import WindowNode
from tidemark.semantics.windows.assigners import DynamicSession
from tidemark.spark.columns.replaced_sessions import REPLACED_TYPE
from tidemark.spark.columns.schemas import no_rows, nullable, struct_of
from tidemark.spark.operators.base.partials import Partials
from tidemark.spark.operators.base.schemas import OperatorSchemas, with_time
from tidemark.spark.operators.process.layout import layout_of_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class WindowSchemas(OperatorSchemas):
    """The schemas of windows: keys, and partials or elements.

    Args:
        node: the operator.
        inputs: frames without rows, by port.
    """

    def __init__(self, node: WindowNode, inputs: Mapping[str, DataFrame]) -> None:
        self._node = node
        (self._rows,) = inputs.values()
        self._partials = Partials(node)

    def state(self) -> T.StructType:
        """Return keys, and partials or the columns of elements."""
        partials = self._partials
        if is_incremental(self._node):
            return nullable(self._groups())
        names = {name: column for (name, _), column in zip(self._node.keys, partials.keys, strict=True)}
        key_types = self._rows.select(*partials.key_columns).schema
        gaps = isinstance(self._node.assigner, DynamicSession)
        layout = layout_of_rows(self._node, names, self._rows.schema, key_types, has_gap=gaps)
        return T.StructType([layout.fields[name] for name in (*layout.keys.values(), *layout.elements.values())])

    def results(self) -> T.StructType:
        """Return keys, bounds, results and the columns of the pane."""
        node, partials, rows = self._node, self._partials, self._rows
        keyed = rows.select(*partials.key_columns).selectExpr(*partials.key_results).schema if node.keys else T.StructType()
        if node.function is not None:
            made = struct_of(node.function.returns)
        else:
            # Nullable, as when read from files: merging some partials fails where they cannot be null.
            stored = no_rows(rows.sparkSession, nullable(self._groups()))
            made = partials.grouped(stored).selectExpr(*partials.results).schema
        bounds = T.StructType().add("window_start", "timestamp").add("window_end", "timestamp")
        pane = T.StructType().add("pane_timing", "string").add("pane_index", "integer")
        if node.assigner.merging:
            pane = pane.add("replaces", REPLACED_TYPE)
        return with_time(T.StructType([*keyed, *bounds, *made, *pane]))

    def empty_accumulators(self) -> DataFrame | None:
        """Return a row with the partials of no elements."""
        return self._rows.agg(*self._partials.creations) if is_incremental(self._node) else None

    def _groups(self) -> T.StructType:
        return self._rows.groupBy(*self._partials.key_columns).agg(*self._partials.creations).schema

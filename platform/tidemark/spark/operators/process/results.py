"""Result rows of panes that a pass wrote: a function's results, or native aggregates over a pane's elements."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from tidemark.graph.operators.window.node import WindowNode
from tidemark.spark.columns.expressions import POSITION, TIME, quoted
from tidemark.spark.columns.replaced_sessions import replaced_sessions
from tidemark.spark.operators.base.partials import Partials
from tidemark.spark.operators.keyed.columns import names_of
from tidemark.spark.operators.keyed.layout import Layout
from tidemark.spark.operators.process.pane_columns import FROM, INDEX, PANE_FIELDS, REPLACES, RESULT_NUMBER, RESULT_TIME, TIMING, TO

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_SHIFT = 20
"""Up to so many bits of a result's number in its pane follow the hash of its key."""


def aggregated(node: WindowNode, panes: DataFrame, layout: Layout) -> DataFrame:
    """Return the results of native aggregates over the elements of each pane."""
    partials = Partials(node)
    fields = [name for name in names_of(PANE_FIELDS) if name != RESULT_NUMBER]
    # Under other names: the stream may have a column with the name of a key in state.
    names = [f"__tm_key_{number}" for number in range(len(partials.keys))]
    elements = panes.select(
        *(F.col(quoted(key)).alias(name) for key, name in zip(partials.keys, names, strict=True)),
        *(F.col(quoted(name)) for name in (*fields, *layout.engine)),
        *(F.col(quoted(column)).alias(name) for name, column in layout.elements.items()),
    )
    keys = (F.col(name).alias(key) for key, name in zip(partials.keys, names, strict=True))
    grouped = elements.groupBy(*keys, *fields).agg(*partials.creations)
    return _results(node, grouped.withColumn(RESULT_NUMBER, F.expr("0L")), partials.results)


def processed(node: WindowNode, panes: DataFrame, results: Mapping[str, str]) -> DataFrame:
    """Return the results of a window function; ``results`` are columns by the function's names."""
    return _results(node, panes, [f"{quoted(column)} AS {quoted(name)}" for name, column in results.items()])


def _results(node: WindowNode, panes: DataFrame, results: list[str]) -> DataFrame:
    """Return keys, bounds, results, pane, and the hidden time and position, by which downstream windows order them."""
    partials = Partials(node)
    replaces = [f"{replaced_sessions(REPLACES)} AS replaces"] if node.assigner.merging else []
    row = f"shiftleft({partials.key_hash}, {_SHIFT}) | {RESULT_NUMBER}"
    return panes.selectExpr(
        *partials.key_results,
        f"timestamp_millis({FROM}) AS window_start",
        f"timestamp_millis({TO}) AS window_end",
        *results,
        f"{TIMING} AS pane_timing",
        f"CAST({INDEX} AS INT) AS pane_index",
        *replaces,
        f"{RESULT_TIME} AS {TIME}",
        f"struct('{node.uid}' AS origin, coalesce({FROM}, {INDEX}) AS block, {row} AS row) AS {POSITION}",
    )

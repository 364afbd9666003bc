"""Column lineage of a window's results."""

from __future__ import annotations

from tidemark.graph.expressions.column_origins import NO_ORIGINS, ColumnOrigins, Origins, merged
from tidemark.graph.expressions.ddl import parse_schema
from tidemark.graph.expressions.expressions import Site
from tidemark.graph.operators.window.columns import BOUNDS, REPLACES, aggregate_columns
from tidemark.graph.operators.window.node import WindowNode
from tidemark.graph.operators.window.reduce import merged_columns
from tidemark.semantics.windows.assigners import CountWindows, DynamicSession, GlobalWindows
from tidemark.semantics.windows.local_windows import LocalWindows


def window_lineage(node: WindowNode, given: ColumnOrigins) -> ColumnOrigins:
    """Return the origins of keys, bounds and results."""
    columns = {name.lower(): given.of(expression) for name, expression in node.keys}
    bounds = _bounds(node, given)
    columns |= dict.fromkeys((*BOUNDS, *((REPLACES,) if node.assigner.merging else ())), bounds)
    results = {
        name.lower(): given.of_names(aggregate_columns(aggregate, Site(f"aggregate {name!r}", node.place, node.uid)))
        for name, aggregate in node.aggregates
    }
    if node.function is not None:
        # It sees the key and the window, too.
        read = merged(results.values()) if results else given.every()
        seen = merged([read, *columns.values()])
        results = {name.lower(): seen for name in parse_schema(node.function.returns).names}
    elif node.reduced:
        results = {name.lower(): given.of_names(_merged_with(name, node)) for name, _ in node.reduced}
    return ColumnOrigins(columns | results, NO_ORIGINS, NO_ORIGINS if node.time_domain == "processing" else given.time)


def _bounds(node: WindowNode, given: ColumnOrigins) -> Origins:
    """Return the origins of the bounds of windows: none for those of processing time, and for those whose bounds are null."""
    if node.time_domain == "processing" or isinstance(node.assigner, CountWindows | GlobalWindows):
        return NO_ORIGINS
    if isinstance(node.assigner, LocalWindows) and node.assigner.zone_by is not None:
        return given.time | given.of(node.assigner.zone_by)
    return given.time | given.of(node.assigner.gap_by) if isinstance(node.assigner, DynamicSession) else given.time


def _merged_with(column: str, node: WindowNode) -> set[str]:
    """Return the columns that a reduced column depends on, directly or through others."""
    merges = {name.lower(): merge for name, merge in node.reduced}
    found: set[str] = set()
    pending = [column.lower()]
    while pending:
        name = pending.pop()
        if name not in found:
            found.add(name)
            pending.extend(merged_columns(merges[name], merges))
    return found

"""Column lineage: which columns of which sources a column is made from."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import reduce

from tidemark.graph.checks.propagation import schema_of
from tidemark.graph.expressions.ddl import parse_schema
from tidemark.graph.expressions.expressions import Site, referenced_columns
from tidemark.graph.model.nodes import (
    ExplodeNode,
    Expression,
    FunctionNode,
    Node,
    SelectNode,
    SideOutputNode,
    SourceNode,
    TransformNode,
    UnionNode,
    WindowNode,
    WithColumnsNode,
    walk,
)
from tidemark.graph.operators.window.columns import aggregate_columns
from tidemark.graph.operators.window.reduce import merged_columns
from tidemark.semantics.windows.assigners import CountWindows, DynamicSession, GlobalWindows

Origins = frozenset[tuple[str, str]]
"""(source, column) pairs."""

_NONE: Origins = frozenset()


@dataclass(frozen=True)
class _Lines:
    """Origins by lower-case column name; ``other`` for columns not named; ``time`` of the elements' event time."""

    columns: dict[str, Origins]
    other: Origins
    time: Origins

    def every(self) -> Origins:
        return reduce(frozenset.union, self.columns.values(), self.other)

    def of_names(self, names: Iterable[str]) -> Origins:
        return reduce(frozenset.union, (self.columns.get(name.lower(), self.other) for name in names), _NONE)

    def of(self, expression: Expression) -> Origins:
        names = referenced_columns(expression)
        return self.every() if names is None else self.of_names(names)


def lineage(node: Node, column: str) -> set[tuple[str, str]]:
    """Return the (source name, source column) pairs that a node's column is made from.

    Where it cannot be known (Python functions, deferred expressions), every column that could have part is in it.
    Window bounds come from the columns that time the elements.
    """
    lines: dict[Node, _Lines] = {}
    for each in walk([node]):
        lines[each] = _lines(each, [lines[child] for child in each.inputs])
    return set(lines[node].of_names([column]))


def _lines(node: Node, inputs: list[_Lines]) -> _Lines:  # noqa: PLR0911 - one case per kind of node
    match node:
        case SourceNode():
            return _source(node)
        case UnionNode():
            names = {name for lines in inputs for name in lines.columns}
            return _Lines(
                {name: reduce(frozenset.union, (lines.of_names([name]) for lines in inputs)) for name in names},
                reduce(frozenset.union, (lines.other for lines in inputs)),
                reduce(frozenset.union, (lines.time for lines in inputs)),
            )
    given = inputs[0]
    match node:
        case SideOutputNode():
            return _side_output(node, given)
        case SelectNode():
            return _Lines({name.lower(): given.of(expression) for name, expression in node.columns}, _NONE, given.time)
        case WithColumnsNode():
            added = {name.lower(): given.of(expression) for name, expression in node.columns}
            return _Lines(given.columns | added, given.other, given.time)
        case ExplodeNode():
            return _Lines(given.columns | {node.as_.lower(): given.of(node.expression)}, given.other, given.time)
        case FunctionNode() | TransformNode():
            return _Lines({}, given.every(), given.time)
        case WindowNode():
            return _window(node, given)
    return given


def _source(node: SourceNode) -> _Lines:
    schema = schema_of(node)
    columns = {name.lower(): frozenset({(node.name, name)}) for name in schema.names} if schema else {}
    lines = _Lines(columns, _NONE, _NONE)
    timestamp = node.watermarks.timestamp
    time = lines.of(timestamp) if timestamp is not None else _NONE
    return _Lines(columns, _NONE, time)


def _side_output(node: SideOutputNode, given: _Lines) -> _Lines:
    emitter = node.emitter
    if isinstance(emitter, SourceNode):
        return _Lines({"raw": given.every(), "event_time": given.time}, _NONE, _NONE)
    if isinstance(emitter, WindowNode):
        # Late rows are rows of the window's input, not of its results.
        lines: dict[Node, _Lines] = {}
        for each in walk(emitter.inputs):
            lines[each] = _lines(each, [lines[child] for child in each.inputs])
        return lines[emitter.input]
    return given


def _window(node: WindowNode, given: _Lines) -> _Lines:
    columns = {name.lower(): given.of(expression) for name, expression in node.keys}
    bounds = _bounds(node, given)
    columns |= {"window_start": bounds, "window_end": bounds, **({"replaces": bounds} if node.assigner.merging else {})}
    results = {
        name.lower(): given.of_names(aggregate_columns(aggregate, Site(f"aggregate {name!r}", node.place, node.uid)))
        for name, aggregate in node.aggregates
    }
    if node.function is not None:
        # It sees the key and the window, too.
        read = reduce(frozenset.union, results.values(), _NONE) if results else given.every()
        seen = reduce(frozenset.union, columns.values(), read)
        results = {name.lower(): seen for name in parse_schema(node.function.returns).names}
    elif node.reduced:
        results = {name.lower(): given.of_names(_merged_with(name, node)) for name, _ in node.reduced}
    return _Lines(columns | results, _NONE, _NONE if node.assigner.domain == "processing" else given.time)


def _bounds(node: WindowNode, given: _Lines) -> Origins:
    """Return what the bounds of windows come from: nothing for those of processing time, and for those whose bounds are null."""
    if node.assigner.domain == "processing" or isinstance(node.assigner, CountWindows | GlobalWindows):
        return _NONE
    return given.time | given.of(node.assigner.gap_by) if isinstance(node.assigner, DynamicSession) else given.time


def _merged_with(column: str, node: WindowNode) -> set[str]:
    """Return the columns that take part, also by way of others, in what a reduced column becomes."""
    merges = {name.lower(): merge for name, merge in node.reduced}
    found: set[str] = set()
    pending = [column.lower()]
    while pending:
        name = pending.pop()
        if name not in found:
            found.add(name)
            pending.extend(merged_columns(merges[name], merges))
    return found

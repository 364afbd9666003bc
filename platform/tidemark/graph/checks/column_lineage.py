"""Column lineage: the source columns that a column is made from."""

from __future__ import annotations

from tidemark.graph.checks.schema_inference import schema_of
from tidemark.graph.expressions.column_origins import NO_ORIGINS, ColumnOrigins, merged
from tidemark.graph.model.nodes import (
    ElementsNode,
    ExplodeNode,
    FunctionNode,
    Node,
    SelectNode,
    SideOutputNode,
    SourceNode,
    StatefulNode,
    TransformNode,
    UnionNode,
    WithColumnsNode,
    walk,
)
from tidemark.graph.operators.registry import kind_of


def lineage(node: Node, column: str) -> set[tuple[str, str]]:
    """Return the (source name, source column) pairs that a node's column is made from.

    If it cannot be known (Python functions, deferred expressions), every column that may contribute is included.
    Window bounds come from the columns that time the elements.
    """
    lines: dict[Node, ColumnOrigins] = {}
    for each in walk([node]):
        lines[each] = _lines(each, [lines[child] for child in each.inputs])
    return set(lines[node].of_names([column]))


def _lines(node: Node, inputs: list[ColumnOrigins]) -> ColumnOrigins:  # noqa: PLR0911 - one case per kind of node
    match node:
        case SourceNode():
            return _source(node)
        case UnionNode():
            names = {name for lines in inputs for name in lines.columns}
            return ColumnOrigins(
                {name: merged(lines.of_names([name]) for lines in inputs) for name in names},
                merged(lines.other for lines in inputs),
                merged(lines.time for lines in inputs),
            )
        case StatefulNode():
            return kind_of(node).lineage(node, inputs)
    (given,) = inputs
    match node:
        case SideOutputNode():
            return _side_output(node, given)
        case SelectNode():
            return ColumnOrigins({name.lower(): given.of(expression) for name, expression in node.columns}, NO_ORIGINS, given.time)
        case WithColumnsNode():
            added = {name.lower(): given.of(expression) for name, expression in node.columns}
            return ColumnOrigins({**given.columns, **added}, given.other, given.time)
        case ElementsNode():
            return ColumnOrigins({**given.columns, node.operation.lower(): NO_ORIGINS}, given.other, given.time)
        case ExplodeNode():
            return ColumnOrigins({**given.columns, node.as_.lower(): given.of(node.expression)}, given.other, given.time)
        case FunctionNode() | TransformNode():
            return ColumnOrigins({}, given.every(), given.time)
    return given


def _source(node: SourceNode) -> ColumnOrigins:
    schema = schema_of(node)
    columns = {name.lower(): frozenset({(node.name, name)}) for name in schema.names} if schema else {}
    lines = ColumnOrigins(columns, NO_ORIGINS, NO_ORIGINS)
    timestamp = node.watermarks.timestamp
    time = lines.of(timestamp) if timestamp is not None else NO_ORIGINS
    return ColumnOrigins(columns, NO_ORIGINS, time)


def _side_output(node: SideOutputNode, given: ColumnOrigins) -> ColumnOrigins:
    emitter = node.emitter
    if isinstance(emitter, SourceNode):
        return ColumnOrigins({"raw": given.every(), "event_time": given.time}, NO_ORIGINS, NO_ORIGINS)
    if isinstance(emitter, StatefulNode):
        # Rows that the operator does not accept are rows of its inputs, not of its results.
        lines: dict[Node, ColumnOrigins] = {}
        for each in walk(emitter.inputs):
            lines[each] = _lines(each, [lines[child] for child in each.inputs])
        return kind_of(emitter).side_lineage(emitter, emitter.counter_of(node.tag), [lines[port.node] for port in emitter.ports])
    return given

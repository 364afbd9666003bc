"""Which columns of a source anything in a job may read, so that the rest need not be read at all."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from tidemark.graph.expressions import Site, column_names, parse_sql, referenced_columns
from tidemark.graph.nodes import (
    ExplodeNode,
    Expression,
    FilterNode,
    FunctionNode,
    Node,
    SelectNode,
    SideOutputNode,
    SourceNode,
    SplitNode,
    TransformNode,
    WindowNode,
    WithColumnsNode,
)
from tidemark.graph.propagation import schema_of
from tidemark.graph.window_columns import aggregate_columns

if TYPE_CHECKING:
    from tidemark.graph.job import Job

Need = frozenset[str] | None
"""Lower-case column names; None is all columns."""

_NOTHING: frozenset[str] = frozenset()


def required_columns(job: Job, source_node: SourceNode) -> frozenset[str] | None:
    """Return the source's columns, as its schema spells them, that any consumer in a job may read; None is all of them.

    Side outputs that are bound (late, rejected, malformed, branches) need every column there is at their point, and so do
    outputs, Python functions and deferred expressions. Every expression counts, used or not, since the engine builds them all.
    """
    needs: dict[Node, Need] = dict.fromkeys(job.nodes, _NOTHING)
    for output in job.outputs.values():
        needs[output.node] = None
    for node in reversed(job.nodes):
        need = needs[node]
        if isinstance(node, SideOutputNode):
            _need_side_output(node, need, needs)
            continue
        for child in node.inputs:
            needs[child] = _either(needs[child], _need_of_input(node, need))
    return _named(source_node, _either(needs[source_node], _timing(source_node)))


def _need_side_output(node: SideOutputNode, need: Need, needs: dict[Node, Need]) -> None:
    emitter = node.inputs[0]
    if isinstance(emitter, SourceNode):
        needs[emitter] = None
        return
    # The rows are those of the emitter's input; what the emitter itself reads is added when its turn comes.
    for child in emitter.inputs:
        needs[child] = _either(needs[child], need)


def _need_of_input(node: Node, need: Need) -> Need:
    match node:
        case SelectNode():
            return _reads(expression for _, expression in node.columns)
        case WithColumnsNode():
            defined = frozenset(name.lower() for name, _ in node.columns)
            kept = None if need is None else need - defined
            return _either(kept, _reads(expression for _, expression in node.columns))
        case FilterNode():
            return _either(need, _reads([node.condition]))
        case ExplodeNode():
            kept = None if need is None else need - {node.as_.lower()}
            return _either(kept, _reads([node.expression]))
        case FunctionNode() | TransformNode():
            return None
        case SplitNode():
            return _reads(condition for _, condition in node.branches)
        case WindowNode():
            return _either(_reads(expression for _, expression in node.keys), _aggregates(node))
    return need


def _aggregates(node: WindowNode) -> frozenset[str]:
    sites = ((aggregate, Site(f"aggregate {name!r}", node.place, node.uid)) for name, aggregate in node.aggregates)
    return frozenset(column.lower() for aggregate, site in sites for column in aggregate_columns(aggregate, site))


def _reads(expressions: Iterable[Expression]) -> Need:
    result: Need = _NOTHING
    for expression in expressions:
        names = referenced_columns(expression)
        result = _either(result, None if names is None else frozenset(name.lower() for name in names))
    return result


def _either(left: Need, right: Need) -> Need:
    return None if left is None or right is None else left | right


def _timing(node: SourceNode) -> Need:
    strategy = node.watermarks
    texts = [strategy.timestamp or "", f"`{strategy.split_by}`" if strategy.split_by else "", *strategy.generator.metrics.values()]
    site = Site("watermark expression", node.place, node.name)
    return frozenset(name.lower() for text in texts if text for name in column_names(parse_sql(text, site)))


def _named(node: SourceNode, need: Need) -> frozenset[str] | None:
    schema = schema_of(node)
    if need is None or schema is None:
        return None
    return frozenset(column.name for column in schema.columns if column.name.lower() in need)

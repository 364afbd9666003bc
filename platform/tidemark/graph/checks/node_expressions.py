"""The SQL texts in an operator, each with its role: for checks of a whole job, and to find the text that Spark refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tidemark.graph.expressions.expressions import Site
from tidemark.graph.model.nodes import (
    ChangelogNode,
    ExplodeNode,
    FilterNode,
    Node,
    SelectNode,
    SourceNode,
    SplitNode,
    StatefulNode,
    WithColumnsNode,
)
from tidemark.graph.operators.registry import kind_of


def node_expressions(node: Node) -> Iterator[tuple[Site, str]]:
    """Yield the SQL texts that a user wrote for an operator; deferred functions are left out.

    >>> [(site.what, text) for site, text in node_expressions(FilterNode(condition="fare > 0"))]
    [('filter condition', 'fare > 0')]
    """
    for what, expression in _named(node):
        if isinstance(expression, str):
            yield Site(what, node.place, node.uid), expression


def deferred_expressions(node: Node) -> Iterator[tuple[Site, Callable[[], object]]]:
    """Yield the functions that make a Column when the job runs."""
    for what, expression in _named(node):
        if callable(expression):
            yield Site(what, node.place, node.uid), expression


def _named(node: Node) -> Iterator[tuple[str, object]]:
    match node:
        case SourceNode():
            yield f"timestamp of source {node.name!r}", node.watermarks.timestamp
            yield from ((f"watermark of source {node.name!r}", text) for text in node.watermarks.generator.metrics.values())
        case SelectNode() | WithColumnsNode():
            operator = "select" if isinstance(node, SelectNode) else "with_columns"
            yield from ((f"{operator} column {name!r}", expression) for name, expression in node.columns)
        case FilterNode():
            yield "filter condition", node.condition
        case ExplodeNode():
            yield "explode", node.expression
        case SplitNode():
            yield from ((f"split condition of {tag.name!r}", condition) for tag, condition in node.branches)
        case ChangelogNode() if node.operation is not None:
            yield "as_changelog operation", node.operation
            if node.sequence is not None:
                yield "as_changelog sequence", node.sequence
        case StatefulNode():
            yield from kind_of(node).expressions(node)

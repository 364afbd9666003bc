"""The names of a graph's nodes in progress, records and messages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tidemark.graph.model.nodes import (
    ChangelogNode,
    ElementsNode,
    ExplodeNode,
    FilterNode,
    FunctionNode,
    Node,
    SelectNode,
    SideOutputNode,
    SourceNode,
    SplitNode,
    StatefulNode,
    TransformNode,
    UnionNode,
    WithColumnsNode,
)

_PREFIX: Final = {
    SelectNode: "select",
    WithColumnsNode: "with-columns",
    FilterNode: "filter",
    ExplodeNode: "explode",
    FunctionNode: "function",
    TransformNode: "transform",
    SplitNode: "split",
    SideOutputNode: "side-output",
    UnionNode: "union",
    ChangelogNode: "changelog",
    ElementsNode: "elements",
}


def node_kind(node: Node) -> str:
    """Return a node's kind in a word: that of a stateful operator, else such as ``source`` or ``filter``."""
    if isinstance(node, StatefulNode):
        return node.KIND
    return "source" if isinstance(node, SourceNode) else _PREFIX[type(node)]


def node_names(nodes: Sequence[Node]) -> dict[int, str]:
    """Return the name of each node by ``id(node)``: its uid, source name or tag, or its kind and its number in the graph.

    Args:
        nodes: all nodes of the graph, inputs before consumers.
    """
    return {id(node): _name(node, number) for number, node in enumerate(nodes)}


def _name(node: Node, number: int) -> str:
    if node.uid:
        return node.uid
    if isinstance(node, SourceNode):
        return node.name
    if isinstance(node, FilterNode) and node.rejects_to:
        return node.rejects_to.name
    if isinstance(node, SideOutputNode):
        return node.tag.name
    return f"{node_kind(node)}-{number}"

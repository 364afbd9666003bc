"""What the engine needs to know of a job's graph before it runs: who consumes what, what is kept, what has which name.

Pure Python over the graph's nodes; made once per run.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tidemark.graph.model.nodes import (
    DeltaSpec,
    ExplodeNode,
    FilterNode,
    FunctionNode,
    Node,
    Output,
    SelectNode,
    SideOutputNode,
    SourceNode,
    SplitNode,
    TransformNode,
    UnionNode,
    WindowNode,
    WithColumnsNode,
    walk,
)
from tidemark.spark.operators.registry.ordering import needs_order

CHAINABLE = (SelectNode, WithColumnsNode, FilterNode)
"""Nodes that can share one pass with what comes before them: rows that drop out are marked, not removed."""

_PREFIX = {
    SelectNode: "select",
    WithColumnsNode: "with-columns",
    FilterNode: "filter",
    ExplodeNode: "explode",
    FunctionNode: "function",
    TransformNode: "transform",
    SplitNode: "split",
    SideOutputNode: "side-output",
    UnionNode: "union",
    WindowNode: "window",
}


@dataclass(frozen=True)
class Topology:
    """Nodes in order (inputs first) and what follows from the edges between them; keys are ``id(node)``."""

    nodes: tuple[Node, ...]
    outputs: Mapping[str, Output]
    names: Mapping[int, str]
    consumers: Mapping[int, int]
    gated: frozenset[int]
    ordered: frozenset[int]

    @property
    def sources(self) -> tuple[SourceNode, ...]:
        """The sources, in the order they are first used."""
        return tuple(node for node in self.nodes if isinstance(node, SourceNode))

    @property
    def windows(self) -> tuple[WindowNode, ...]:
        """The window operators, inputs before consumers."""
        return tuple(node for node in self.nodes if isinstance(node, WindowNode))

    def name(self, node: Node) -> str:
        """Return the node's name in progress, records and messages: its uid, source name or tag, else kind and number."""
        return self.names[id(node)]

    def shared(self, node: Node) -> bool:
        """Whether more than one consumer reads the node's rows in every epoch."""
        return self.consumers.get(id(node), 0) > 1

    def gate(self, node: Node) -> SideOutputNode | None:
        """Return the side output whose count decides whether there is anything to read of a node, if there is one."""
        while len(node.inputs) == 1:
            if isinstance(node, SideOutputNode) and id(node) in self.gated:
                return node
            if isinstance(node, WindowNode):
                return None
            node = node.input
        return None

    def upstream_sources(self, node: Node) -> tuple[SourceNode, ...]:
        """Return the sources a node's rows come from."""
        return tuple(found for found in walk([node]) if isinstance(found, SourceNode))


def result_windows(node: Node) -> tuple[WindowNode, ...]:
    """Return the windows whose results become rows of a node, itself included if it is one.

    Late rows are no results: they are those that came into the window.
    """
    windows: dict[int, WindowNode] = {}
    pending = [node]
    while pending:
        current = pending.pop()
        if isinstance(current, SideOutputNode) and isinstance(current.input, WindowNode):
            current = current.input
        elif isinstance(current, WindowNode):
            windows[id(current)] = current
        pending += current.inputs
    return tuple(windows.values())


def late_windows(node: Node) -> tuple[WindowNode, ...]:
    """Return the windows whose late rows become rows of a node."""
    sides = (found for found in walk([node]) if isinstance(found, SideOutputNode))
    return tuple(side.input for side in sides if isinstance(side.input, WindowNode))


def may_vary(node: Node) -> bool:
    """Whether reading the node's rows twice could give two results, as far as the graph can tell."""
    return any(isinstance(found, FunctionNode | TransformNode) for found in walk([node]))


def build_topology(outputs: Mapping[str, Output]) -> Topology:
    """Analyse the graph behind a job's outputs."""
    nodes = walk(output.node for output in outputs.values())
    gated = _gated(nodes)
    consumers: dict[int, int] = {}
    for node in nodes:
        for parent in node.inputs:
            if id(node) not in gated:
                consumers[id(parent)] = consumers.get(id(parent), 0) + 1
    for output in outputs.values():
        consumers[id(output.node)] = consumers.get(id(output.node), 0) + 1
    ordering: list[Node] = [node for node in nodes if isinstance(node, WindowNode) and needs_order(node)]
    # Of one epoch's rows with one key the last one stays; results of windows have positions of their own.
    replacing = [output.node for output in outputs.values() if isinstance(output.sink, DeltaSpec) and output.sink.mode == "upsert"]
    ordering += [node for node in replacing if not result_windows(node)]
    ordered = frozenset(id(source) for source in walk(ordering) if isinstance(source, SourceNode))
    return Topology(
        nodes=nodes,
        outputs=dict(outputs),
        names={id(node): _name(node, number) for number, node in enumerate(nodes)},
        consumers=consumers,
        gated=gated,
        ordered=ordered,
    )


def _gated(nodes: tuple[Node, ...]) -> frozenset[int]:
    """Return the late, rejected and malformed side outputs that no window and no union needs in every epoch."""
    needed = {id(found) for node in nodes if isinstance(node, WindowNode | UnionNode) for parent in node.inputs for found in walk([parent])}
    return frozenset(
        id(node) for node in nodes if isinstance(node, SideOutputNode) and not isinstance(node.input, SplitNode) and id(node) not in needed
    )


def _name(node: Node, number: int) -> str:
    if node.uid:
        return node.uid
    if isinstance(node, SourceNode):
        return node.name
    if isinstance(node, FilterNode) and node.rejects_to:
        return node.rejects_to.name
    if isinstance(node, SideOutputNode):
        return node.tag.name
    return f"{_PREFIX[type(node)]}-{number}"

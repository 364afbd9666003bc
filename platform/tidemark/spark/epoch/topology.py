"""The engine's view of a job's graph before it runs: consumers of each node, outputs, names.

Pure Python over the graph's nodes; made once per run.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tidemark.graph.job.node_names import node_names
from tidemark.graph.model.connector_spec import ConnectorSpec
from tidemark.graph.model.nodes import (
    ChangelogNode,
    DeltaSpec,
    FilterNode,
    FunctionNode,
    Node,
    Output,
    SelectNode,
    SideOutputNode,
    SinkSpec,
    SourceNode,
    SplitNode,
    StatefulNode,
    TransformNode,
    UnionNode,
    WithColumnsNode,
    walk,
)
from tidemark.graph.model.watermark_delays import watermark_delays
from tidemark.graph.operators.registry import kind_of

FUSABLE = (SelectNode, WithColumnsNode, FilterNode)
"""Nodes that can share one pass with their input: filtered rows are marked, not removed."""


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
    def operators(self) -> tuple[StatefulNode, ...]:
        """The stateful operators, inputs before consumers."""
        return tuple(node for node in self.nodes if isinstance(node, StatefulNode))

    def name(self, node: Node) -> str:
        """Return the node's name in progress, records and messages: its uid, source name or tag, or its kind and a number."""
        return self.names[id(node)]

    def shared(self, node: Node) -> bool:
        """Whether more than one consumer reads the node's rows in every epoch."""
        return self.consumers.get(id(node), 0) > 1

    def gate(self, node: Node) -> SideOutputNode | None:
        """Return the side output whose count decides whether a node has rows to read, None where there is none."""
        while len(node.inputs) == 1:
            if isinstance(node, SideOutputNode) and id(node) in self.gated:
                return node
            if isinstance(node, StatefulNode):
                return None
            node = node.input
        return None

    def fused_path(self, node: Node) -> tuple[Node, list[FilterNode]]:
        """Return where the pass that ends at the node starts, and the filters in it, in order."""
        filters: list[FilterNode] = []
        while isinstance(node, FUSABLE):
            if isinstance(node, FilterNode):
                filters.insert(0, node)
            parent = node.input
            if self.shared(parent):
                return parent if not isinstance(parent, SourceNode) else node, filters
            node = parent
        return node, filters

    def path_to_source(self, node: Node, *, changelogs: bool = False) -> tuple[Node, ...] | None:
        """Return a node and its upstream nodes up to its source, where these are only filters and expressions that it does not share.

        With ``changelogs`` rows may also be taken as changes. None otherwise: a union's or a shared node's rows are counted when computed,
        by a pass that may come later or not at all.
        """
        path = [node]
        while isinstance(path[-1], (*FUSABLE, ChangelogNode) if changelogs else FUSABLE):
            path.append(path[-1].input)
        return None if not isinstance(path[-1], SourceNode) or any(map(self.shared, path)) else tuple(path)

    def path_to_operator(self, node: Node) -> StatefulNode | None:
        """Return the operator whose results a node's rows are, after filters and expressions only, where nothing else reads them.

        None otherwise.
        """
        while isinstance(node, FUSABLE) and self.consumers.get(id(node), 0) == 1:
            node = node.input
        return node if isinstance(node, StatefulNode) and self.consumers.get(id(node), 0) == 1 else None

    def upstream_sources(self, node: Node) -> tuple[SourceNode, ...]:
        """Return the sources a node's rows come from."""
        return tuple(found for found in walk([node]) if isinstance(found, SourceNode))

    def source_delays(self, node: Node, *, results: bool = False) -> dict[str, int]:
        """Return how much later than each of its sources a node sees the watermark, by the name of the source, milliseconds.

        With ``results`` it is how much later the watermark is that goes with the node's results.
        """
        return {each.name: delay for each, delay in watermark_delays(node, results=results) if isinstance(each, SourceNode)}


def result_operators(*nodes: Node) -> tuple[StatefulNode, ...]:
    """Return the operators whose results become rows of nodes, including a node that is one itself.

    Side outputs are not results: they are rows of the operator's input.
    """
    operators: dict[int, StatefulNode] = {}
    pending = list(nodes)
    while pending:
        current = pending.pop()
        if isinstance(current, SideOutputNode) and isinstance(current.emitter, StatefulNode):
            current = current.emitter
        elif isinstance(current, StatefulNode):
            operators[id(current)] = current
        pending += current.inputs
    return tuple(operators.values())


def operators_before(*nodes: Node) -> tuple[StatefulNode, ...]:
    """Return the operators whose turn in an epoch must come before rows of nodes can be read.

    Those whose results are among the rows, and those whose late rows are, if these are known only after their turn.
    """
    sides = (found.emitter for found in walk(nodes) if isinstance(found, SideOutputNode))
    late = (emitter for emitter in sides if isinstance(emitter, StatefulNode) and kind_of(emitter).late_known_after_emit(emitter))
    return tuple({id(found): found for found in (*result_operators(*nodes), *late)}.values())


def looked_up(emitter: Node) -> tuple[Node, ...]:
    """Return the nodes in whose rows the side outputs of a node are looked up: none, where an operator makes these rows itself."""
    if isinstance(emitter, StatefulNode):
        return tuple(port.node for port in emitter.ports) if kind_of(emitter).looks_up_side_rows(emitter) else ()
    return (emitter,)


def may_be_nondeterministic(node: Node) -> bool:
    """Whether reading the node's rows twice could return different rows, according to the graph."""
    return any(isinstance(found, FunctionNode | TransformNode) for found in walk([node]))


def _replaces(sink: SinkSpec) -> bool:
    return bool(sink.row_keys) if isinstance(sink, ConnectorSpec) else isinstance(sink, DeltaSpec) and sink.mode != "append"


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
    ordering: list[Node] = [node for node in nodes if isinstance(node, StatefulNode) and kind_of(node).needs_order(node)]
    # The changes of a key are taken in the order of its rows.
    ordering += [node for node in nodes if isinstance(node, ChangelogNode)]
    # Of an epoch's rows with one key the last one is kept; results of operators have their own positions.
    replacing = [output.node for output in outputs.values() if _replaces(output.sink)]
    ordering += [node for node in replacing if not result_operators(node)]
    ordered = frozenset(id(source) for source in walk(ordering) if isinstance(source, SourceNode))
    return Topology(
        nodes=nodes,
        outputs=dict(outputs),
        names=node_names(nodes),
        consumers=consumers,
        gated=gated,
        ordered=ordered,
    )


def _gated(nodes: tuple[Node, ...]) -> frozenset[int]:
    """Return the late, rejected and malformed side outputs that no operator and no union needs in every epoch."""
    needed = {
        id(found) for node in nodes if isinstance(node, StatefulNode | UnionNode) for parent in node.inputs for found in walk([parent])
    }
    return frozenset(
        id(node) for node in nodes if isinstance(node, SideOutputNode) and not isinstance(node.input, SplitNode) and id(node) not in needed
    )

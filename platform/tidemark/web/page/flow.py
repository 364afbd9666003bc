"""How many rows went into and out of each node of a graph in an epoch. Pure.

An epoch's progress counts what sources, filters, transforms, operators and outputs took, and not what operators and expressions gave: that
follows from what their consumers took.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from tidemark.state.encoding.redaction import redacted
from tidemark.state.log.progress import EpochProgress
from tidemark.state.status.job_graph import GraphEdge, GraphNode, JobGraph

_SAME_ROWS: Final = frozenset({"select", "with-columns", "union"})
"""Kinds of nodes that give every row that they take."""


@dataclass(frozen=True)
class NodeRows:
    """Rows into and out of a node; None where they are not known. ``late`` are those of an operator that came too late."""

    rows_in: int | None = None
    rows_out: int | None = None
    late: int = 0


def rows_by_node(graph: JobGraph, epoch: EpochProgress) -> dict[str, NodeRows]:
    """Return the rows of each node in an epoch, by the node's id.

    Args:
        graph: the job's graph; nodes that the epoch does not know have unknown rows.
        epoch: its progress.
    """
    counted = {node.id: _counted(node, epoch) for node in graph.nodes}
    rows_in = {name: found.rows_in for name, found in counted.items()}
    rows_out = {name: found.rows_out for name, found in counted.items()}
    tagged = {edge: _side_rows(edge, graph, epoch) for edge in graph.edges if edge.tag}
    to, since = _by(graph.edges, end=True), _by(graph.edges, end=False)
    for node in graph.nodes:
        if rows_in[node.id] is None and node.id in to:
            rows_in[node.id] = _sum(tagged.get(edge, rows_out[edge.start] if not edge.tag else None) for edge in to[node.id])
        if rows_out[node.id] is None and node.kind in _SAME_ROWS:
            rows_out[node.id] = rows_in[node.id]
    for node in reversed(graph.nodes):
        only = (edge.end for edge in since.get(node.id, ()) if not edge.tag and len(to[edge.end]) == 1)
        if rows_out[node.id] is None:
            rows_out[node.id] = next((rows for end in only if (rows := rows_in[end]) is not None), None)
        if rows_in[node.id] is None and node.kind in _SAME_ROWS:
            rows_in[node.id] = rows_out[node.id]
    return {name: NodeRows(rows_in[name], rows_out[name], found.late) for name, found in counted.items()}


def sum_of_epochs(graph: JobGraph, epochs: Iterable[EpochProgress]) -> dict[str, NodeRows]:
    """Return the rows of each node in several epochs, by the node's id; epochs in which they are not known are left out."""
    found = [rows_by_node(graph, epoch) for epoch in epochs]
    return {
        node.id: NodeRows(
            _sum_known(rows[node.id].rows_in for rows in found),
            _sum_known(rows[node.id].rows_out for rows in found),
            sum(rows[node.id].late for rows in found),
        )
        for node in graph.nodes
    }


def sources_of(graph: JobGraph, node: str) -> frozenset[str]:
    """Return the ids of the sources whose rows reach a node."""
    to, found, left = _by(graph.edges, end=True), set[str](), [node]
    while left:
        for edge in to.get(left.pop(), ()):
            if edge.start not in found:
                found.add(edge.start)
                left.append(edge.start)
    return frozenset(each.id for each in graph.nodes if each.role == "source" and each.id in found | {node})


def graph_of_progress(job: str, epoch: EpochProgress | None) -> JobGraph:
    """Return what is known of a graph that no driver has stored: its nodes with counts, without the edges between them.

    Args:
        job: the job's name.
        epoch: its newest epoch; None if it has none.
    """
    return JobGraph(job, "", "", tuple(_nodes_of(epoch)) if epoch is not None else ())


def _nodes_of(epoch: EpochProgress) -> Iterator[GraphNode]:
    for n, name in enumerate(epoch.sources):
        yield GraphNode(f"s{n}", "source", name, "source", f"source {name}")
    for n, name in enumerate(epoch.filters):
        yield GraphNode(f"f{n}", "step", name, "filter", f"filter {name}")
    for n, name in enumerate(epoch.transforms):
        yield GraphNode(f"t{n}", "step", name, "transform", f"transform {name}")
    for n, (uid, operator) in enumerate(epoch.operators.items()):
        yield GraphNode(f"n{n}", "operator", uid, operator.kind, operator.kind)
    for n, (name, output) in enumerate(epoch.outputs.items()):
        yield GraphNode(f"o{n}", "output", name, output.sink, redacted(output.location or output.sink))


def _counted(node: GraphNode, epoch: EpochProgress) -> NodeRows:
    """Return what the progress itself says."""
    match node.role:
        case "source" if node.name in epoch.sources:
            source = epoch.sources[node.name]
            return NodeRows(source.rows_read, source.rows_passed)
        case "operator" if node.name in epoch.operators:
            operator = epoch.operators[node.name]
            return NodeRows(operator.rows_in, None, operator.late)
        case "output" if node.name in epoch.outputs:
            return NodeRows(epoch.outputs[node.name].rows)
        case "step" if node.kind in {"filter", "split"} and node.name in epoch.filters:
            found = epoch.filters[node.name]
            return NodeRows(found.rows_in, found.rows_passed)
        case "step" if node.kind == "transform" and node.name in epoch.transforms:
            transform = epoch.transforms[node.name]
            return NodeRows(transform.rows_in, transform.rows_out)
    return NodeRows()


def _side_rows(edge: GraphEdge, graph: JobGraph, epoch: EpochProgress) -> int | None:
    """Return the rows of a side output, None where the progress does not count them."""
    emitter = next(node for node in graph.nodes if node.id == edge.start)
    if emitter.role == "source" and emitter.name in epoch.sources:
        return epoch.sources[emitter.name].rows_malformed
    if emitter.kind == "filter" and emitter.name in epoch.filters:
        return epoch.filters[emitter.name].rows_rejected
    operator = epoch.operators.get(emitter.name) if emitter.role == "operator" else None
    return operator.rows_late if operator is not None and operator.late_to == edge.tag else None


def _by(edges: Iterable[GraphEdge], *, end: bool) -> Mapping[str, list[GraphEdge]]:
    found: dict[str, list[GraphEdge]] = {}
    for edge in edges:
        found.setdefault(edge.end if end else edge.start, []).append(edge)
    return found


def _sum(values: Iterable[int | None]) -> int | None:
    total = 0
    for value in values:
        if value is None:
            return None
        total += value
    return total


def _sum_known(values: Iterable[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None

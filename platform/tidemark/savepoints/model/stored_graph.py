"""A job's graph as its driver stores it, so that other processes can draw it without the job's code."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tidemark.graph.api.sinks import guarantee
from tidemark.graph.checks.descriptions import describe_node, describe_sink, describe_timing
from tidemark.graph.job.code_version import code_version
from tidemark.graph.job.explain import drawn_nodes, outlet_of
from tidemark.graph.job.job import Job
from tidemark.graph.job.node_names import node_kind, node_names
from tidemark.graph.model.connector_spec import ConnectorSpec
from tidemark.graph.model.nodes import ConsoleSpec, DeltaSpec, MemorySpec, Node, Output, ParquetSpec, SinkSpec, SourceNode, StatefulNode
from tidemark.state.encoding.redaction import redacted
from tidemark.state.status.job_graph import GraphEdge, GraphNode, JobGraph, Role

_SINKS: Final[Mapping[type, str]] = {DeltaSpec: "delta", ParquetSpec: "parquet", ConsoleSpec: "console", MemorySpec: "memory"}


def graph_of(job: Job) -> JobGraph:
    """Return a job's graph as data: the drawing that ``Job.explain`` makes, with the names that progress has. Credentials are removed."""
    names = node_names(job.nodes)
    ids = {node: f"n{number}" for node, number in drawn_nodes(job).items()}
    outputs = {name: f"o{number}" for number, name in enumerate(job.outputs, start=1)}
    edges = [_edge(child, ids, ids[node]) for node in ids for child in node.inputs]
    edges += [_edge(output.node, ids, outputs[name]) for name, output in job.outputs.items()]
    return JobGraph(
        job.name,
        code_version(job),
        redacted(job.description or ""),
        (
            *(_node(node, number, names[id(node)]) for node, number in ids.items()),
            *(_output(output, outputs[name], name) for name, output in job.outputs.items()),
        ),
        tuple(edges),
    )


def _edge(child: Node, ids: dict[Node, str], end: str) -> GraphEdge:
    emitter, tag = outlet_of(child)
    return GraphEdge(ids[emitter], end, tag or "")


def _node(node: Node, number: str, name: str) -> GraphNode:
    role: Role = "source" if isinstance(node, SourceNode) else "operator" if isinstance(node, StatefulNode) else "step"
    detail = describe_timing(node) if isinstance(node, SourceNode) else ""
    return GraphNode(number, role, name, node_kind(node), redacted(describe_node(node)), redacted(detail))


def _output(output: Output, number: str, name: str) -> GraphNode:
    sink = output.sink
    return GraphNode(
        number, "output", name, _sink_kind(sink), redacted(describe_sink(sink)), guarantee(sink), redacted(output.description)
    )  # fmt: skip


def _sink_kind(sink: SinkSpec) -> str:
    return sink.kind if isinstance(sink, ConnectorSpec) else _SINKS[type(sink)]

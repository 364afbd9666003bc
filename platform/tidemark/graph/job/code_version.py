"""The version of a job's code: a hash of what the graph computes, the same wherever it is deployed."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import fields
from typing import TYPE_CHECKING

from tidemark.graph.checks.side_outputs import tags_of
from tidemark.graph.expressions.function_fingerprint import function_text
from tidemark.graph.expressions.policy_definition import settings_of
from tidemark.graph.job.described_job import DescribedJob
from tidemark.graph.model.connector_spec import ConnectorSpec
from tidemark.graph.model.nodes import (
    ChangelogNode,
    DeltaSpec,
    ElementsNode,
    ExplodeNode,
    Expression,
    FilterNode,
    FunctionNode,
    Node,
    SelectNode,
    SideOutputNode,
    SinkSpec,
    SourceNode,
    SplitNode,
    StatefulNode,
    TransformNode,
    WithColumnsNode,
)
from tidemark.graph.model.postgres_changes_spec import PostgresChangesSpec
from tidemark.graph.model.source_specs import DeltaTableSpec, ElementsSpec, FilesSpec, FormatSpec, RateSpec, SourceSpec
from tidemark.graph.operators.registry import encode
from tidemark.semantics.watermarks.watermarks import WatermarkStrategy

if TYPE_CHECKING:
    from tidemark.graph.job.job import Job

_FORMAT = 1


def code_version(job: Job) -> str:
    """Return a hash of what the job computes, 16 hexadecimal digits.

    Included: expressions, the source text of functions, keys, windows, lateness, aggregates, uids, tags, names of sources and outputs,
    kinds of sinks, watermark strategies. Not included: paths, options of formats other than files, parallelism, descriptions, owners,
    line numbers. Of a described job it is the version that was described.
    """
    if isinstance(job, DescribedJob):
        return job.version
    numbers = {node: number for number, node in enumerate(job.nodes)}
    graph = {
        "format": _FORMAT,
        "nodes": [{**_node(node), "uid": node.uid, "inputs": [numbers[child] for child in node.inputs]} for node in job.nodes],
        "outputs": {name: [numbers[output.node], _sink(output.sink)] for name, output in job.outputs.items()},
    }
    return hashlib.sha256(json.dumps(graph, sort_keys=True).encode()).hexdigest()[:16]


def _node(node: Node) -> dict[str, object]:
    return {"kind": type(node).__name__, "tags": [tag.name for tag in tags_of(node)], "what": _what(node)}


def _what(node: Node) -> object:  # noqa: C901, PLR0911 - one case per kind of node
    match node:
        case SourceNode():
            return [node.name, _spec(node.spec), _strategy(node.watermarks)]
        case SelectNode() | WithColumnsNode():
            return _columns(node.columns)
        case FilterNode():
            return _expression(node.condition)
        case ExplodeNode():
            return [_expression(node.expression), node.as_, node.outer]
        case FunctionNode():
            return [node.kind, function_text(node.function), node.schema, node.batches]
        case TransformNode():
            return [function_text(node.function), node.columns]
        case StatefulNode():
            return encode(node)
        case SplitNode():
            return _columns((tag.name, condition) for tag, condition in node.branches)
        case SideOutputNode():
            return node.tag.name
        case ChangelogNode():
            operation = None if node.operation is None else _expression(node.operation)
            return [node.keys, operation, *([] if node.sequence is None else [_expression(node.sequence)])]
        case ElementsNode():
            return node.operation
    return None


def _columns(columns: Iterable[tuple[str, Expression]]) -> list[object]:
    return [[name, _expression(expression)] for name, expression in columns]


def _expression(expression: Expression) -> str:
    return expression if isinstance(expression, str) else f"function {function_text(expression)}"


def _spec(spec: SourceSpec) -> list[object]:
    match spec:
        case ElementsSpec():
            return ["elements", spec.schema]
        case FilesSpec():
            return ["files", spec.format, spec.schema, dict(spec.options)]
        case FormatSpec():
            return ["format", spec.format, spec.schema, *([] if spec.decoding is None else spec.decoding.encoded())]
        case DeltaTableSpec():
            return ["delta", spec.schema, spec.changes, spec.on_rewrite]
        case PostgresChangesSpec():
            return ["postgres", [[table.label, str(table.columns), list(table.keys)] for table in spec.tables], spec.on_truncate]
        case RateSpec():
            return ["rate"]


def _strategy(strategy: WatermarkStrategy) -> list[object]:
    values = [getattr(strategy, field.name) for field in fields(strategy) if field.name != "generator"]
    generator = strategy.generator
    if type(generator).__module__.startswith("tidemark."):
        return [*values, type(generator).__name__, repr(settings_of(generator))]
    return [*values, function_text(type(generator)), repr(settings_of(generator))]


def _sink(sink: SinkSpec) -> object:
    if isinstance(sink, ConnectorSpec):
        return sink.encoded()
    kind = type(sink).__name__
    return (
        [kind, sink.mode, sink.keys, *([sink.sequence] if sink.sequence else [])]
        if isinstance(sink, DeltaSpec) and sink.mode != "append"
        else kind
    )

"""Nodes, sources, strategies and sinks in words, for drawings of the graph."""

from __future__ import annotations

import re
from dataclasses import replace

from tidemark.durations import format_duration
from tidemark.graph.expressions.expression_text import describe_columns, describe_expression, function_name
from tidemark.graph.model.connector_spec import ConnectorSpec
from tidemark.graph.model.nodes import (
    ChangelogNode,
    ConsoleSpec,
    DeltaSpec,
    ElementsNode,
    ExplodeNode,
    FilterNode,
    FunctionNode,
    MemorySpec,
    Node,
    ParquetSpec,
    SelectNode,
    SideOutputNode,
    SinkSpec,
    SourceNode,
    SplitNode,
    StatefulNode,
    TransformNode,
    UnionNode,
    WithColumnsNode,
)
from tidemark.graph.model.postgres_changes_spec import PostgresChangesSpec
from tidemark.graph.model.source_specs import DeltaTableSpec, ElementsSpec, FilesSpec, FormatSpec, RateSpec, SourceSpec
from tidemark.graph.operators.registry import kind_of
from tidemark.semantics.watermarks.watermarks import Ascending, BoundedOutOfOrderness, IngestionTime, Punctuated, WatermarkStrategy

_CREDENTIALS = re.compile(r"://[^/@]*:[^/@]*@")


def describe_node(node: Node) -> str:
    """Return what a node does, in one line.

    >>> describe_node(FilterNode(condition="fare >= 0"))
    'filter fare >= 0'
    """
    match node:
        case SourceNode():
            return f"source {node.name}: {describe_spec(node.spec)}"
        case SelectNode():
            return f"select {describe_columns(node.columns)}"
        case WithColumnsNode():
            return f"with_columns {describe_columns(node.columns)}"
        case FilterNode():
            return f"filter {describe_expression(node.condition)}"
        case ExplodeNode():
            return f"explode {describe_expression(node.expression)} as {node.as_}{', outer' if node.outer else ''}"
        case FunctionNode():
            return f"{node.kind} {function_name(node.function)}{' on batches' if node.batches else ''} returns {node.schema}"
        case TransformNode():
            return f"transform {function_name(node.function)}"
        case _:
            return _describe_flow(node)


def _describe_flow(node: Node) -> str:
    match node:
        case SplitNode():
            branches = [f"{tag.name}: {describe_expression(condition)}" for tag, condition in node.branches]
            return f"split {'; '.join([*branches, *([f'{node.otherwise.name}: otherwise'] if node.otherwise else [])])}"
        case SideOutputNode():
            return f"side output {node.tag.name}"
        case UnionNode():
            return "union"
        case ChangelogNode():
            changes = "" if node.operation is None else f", operation {describe_expression(node.operation)}"
            order = "" if node.sequence is None else f" in order of {describe_expression(node.sequence)}"
            return f"changelog of {', '.join(node.keys)}{changes}{order}"
        case ElementsNode():
            return "changes as elements"
        case StatefulNode():
            return kind_of(node).describe(node)
    return type(node).__name__


def describe_spec(spec: SourceSpec) -> str:
    """Return a source's format and place; values of options are left out, since they may be secret."""
    match spec:
        case ElementsSpec():
            return f"{sum(len(batch) for batch in spec.batches)} elements in {len(spec.batches)} epochs"
        case FilesSpec():
            return f"{spec.format} files in {describe_path(spec.path)}"
        case FormatSpec():
            return spec.format if spec.decoding is None else f"{spec.format}, values as {spec.decoding.format}"
        case DeltaTableSpec():
            return f"{'changes' if spec.changes else 'added rows'} of Delta table {describe_path(spec.path)}"
        case PostgresChangesSpec():
            return f"changes of {', '.join(table.label for table in spec.tables)} by {spec.dsn_env}"
        case RateSpec():
            return f"rate, {spec.rows_per_second} rows/s"


def describe_timing(node: SourceNode) -> str:
    """Return how a source's elements are timed, with the event time as the user wrote it."""
    strategy = node.watermarks
    return describe_watermarks(replace(strategy, timestamp=node.reasons.timestamp) if node.reasons is not None else strategy)


def describe_watermarks(strategy: WatermarkStrategy) -> str:
    """Return how elements are timed.

    >>> describe_watermarks(WatermarkStrategy(timestamp="pickup_at", generator=BoundedOutOfOrderness(300_000)))
    'event time pickup_at, at most 5m out of order'
    """
    match strategy.generator:
        case BoundedOutOfOrderness(bound_ms=bound):
            order = f"at most {format_duration(bound)} out of order"
        case Ascending():
            order = "ascending"
        case Punctuated(marker=marker):
            order = f"watermarks from {marker}"
        case IngestionTime():
            return "ingestion time"
        case other:
            order = f"watermarks by {type(other).__name__}"
    time = "ingestion time" if strategy.timestamp is None else f"event time {describe_expression(strategy.timestamp)}"
    parts = [time, order]
    if strategy.split_by:
        parts.append(f"split by {strategy.split_by}")
    if strategy.idle_after_ms:
        parts.append(f"idle after {format_duration(strategy.idle_after_ms)}{', then advancing' if strategy.advance_when_idle else ''}")
    return ", ".join(parts)


def describe_sink(sink: SinkSpec) -> str:
    """Return a sink's kind and place."""
    match sink:
        case DeltaSpec():
            upserts = "" if sink.mode == "append" else f", {sink.mode} by {', '.join(sink.keys)}" if sink.keys else f", {sink.mode}"
            return f"delta {describe_path(sink.path)}{upserts}"
        case ParquetSpec():
            return f"parquet {describe_path(sink.path)}{', whose readers move files' if sink.readers_move_files else ''}"
        case ConsoleSpec():
            return "console"
        case MemorySpec():
            return f"memory {sink.name}"
        case ConnectorSpec():
            return sink.describe()


def describe_path(path: str) -> str:
    """Return a path without the credentials that some URLs hold.

    >>> describe_path("s3://me:secret@bucket/tips")
    's3://***@bucket/tips'
    """
    return _CREDENTIALS.sub("://***@", path)

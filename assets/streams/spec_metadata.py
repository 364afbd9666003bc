"""The definition metadata of a stream's asset: columns, lineage, table, windows, the job's graph.

All of it is computed from the graph alone, without a JVM and without touching any data.
"""

from __future__ import annotations

from collections.abc import Mapping

import dagster as dg

from tidemark.assets.streams.job_streams import StreamData, functions_of, windows_of
from tidemark.assets.streams.stream_descriptions import describe_column, is_event_time
from tidemark.assets.values.metadata_values import MetadataItem, MetadataValues
from tidemark.durations import format_duration
from tidemark.graph import (
    ConnectorSpec,
    DeltaSpec,
    DeltaTableSpec,
    FilesSpec,
    FormatSpec,
    KeyedProcessNode,
    Node,
    ParquetSpec,
    PostgresChangesSpec,
    RateSpec,
    Schema,
    SourceNode,
    WindowNode,
    guarantee,
    kind_of,
    lineage,
    output_schema,
    schema_of,
)


def stream_metadata(data: StreamData, upstream: Mapping[str, dg.AssetKey]) -> MetadataValues:
    """Return the definition metadata of an output.

    Args:
        data: the output.
        upstream: asset keys of its sources by name, for the column lineage.
    """
    if data.output is None:
        raise TypeError("a stream that is not a source has an output")
    sink = data.output.sink
    metadata: dict[str, MetadataItem] = {
        "tidemark/kind": data.kind,
        "tidemark/guarantee": guarantee(sink),
        "tidemark/graph": dg.MetadataValue.md(f"```mermaid\n{data.job.explain(format='mermaid')}\n```"),
        **_schema_metadata(data.output.node, output_schema(data.output), dict(data.output.column_texts)),
        **_window_metadata(windows_of(data.output.node)),
        **_function_metadata(functions_of(data.output.node)),
    }
    if columns := column_lineage(data.output.node, upstream):
        metadata["dagster/column_lineage"] = columns
    if isinstance(sink, DeltaSpec | ParquetSpec):
        metadata["dagster/table_name"] = table_name(sink.path)
        metadata["dagster/storage_kind"] = "delta" if isinstance(sink, DeltaSpec) else "parquet"
        metadata["tidemark/location"] = dg.MetadataValue.path(sink.path)
    elif isinstance(sink, ConnectorSpec):
        metadata["dagster/table_name"] = sink.table_name
        metadata["dagster/storage_kind"] = sink.kind
        metadata["tidemark/location"] = sink.location
    return metadata


def source_metadata(data: StreamData) -> MetadataValues:
    """Return the definition metadata of a source: its location, its columns and its event time."""
    if data.source is None:
        raise TypeError("only a source has a specification of where it reads")
    strategy = data.source.watermarks
    metadata: dict[str, MetadataItem] = {
        "tidemark/kind": "source",
        "tidemark/event_time": data.source.reasons.timestamp if data.source.reasons else strategy.timestamp or "time of ingestion",
        "tidemark/out_of_orderness": format_duration(strategy.generator.bound_ms),
        **_schema_metadata(data.source, schema_of(data.source)),
    }
    if strategy.idle_after_ms is not None:
        metadata["tidemark/idle_after"] = format_duration(strategy.idle_after_ms)
    if strategy.split_by is not None:
        metadata["tidemark/split_by"] = strategy.split_by
    match data.source.spec:
        case FilesSpec(path=path, format=format):
            metadata |= {"tidemark/location": dg.MetadataValue.path(path), "dagster/storage_kind": format}
        case FormatSpec(format=format):
            # Options may contain passwords; only the format's name is shown.
            metadata["dagster/storage_kind"] = format
        case DeltaTableSpec(path=path):
            metadata |= {"tidemark/location": dg.MetadataValue.path(path), "dagster/storage_kind": "delta"}
        case PostgresChangesSpec(tables=tables):
            metadata |= {"tidemark/tables": ", ".join(table.label for table in tables), "dagster/storage_kind": "postgres"}
        case RateSpec(rows_per_second=rate):
            metadata["tidemark/rate"] = rate
        case _:
            pass
    return metadata


_ADDED = {
    "operation": "What the epoch did to the row: `insert`, `update` (the row after it) or `delete` (the row before it).",
    "epoch": "The epoch that changed the row.",
    "valid_from": "The time from which this version of the row is valid.",
    "valid_to": "The time at which the next version begins, or the row was deleted; null while the version is the newest.",
}
"""Descriptions of columns that sinks add."""


def table_name(path: str) -> str:
    """Return a table's name: the last part of its path.

    >>> table_name("s3://lake/warehouse/hourly_tips/")
    'hourly_tips'
    """
    return path.rstrip("/").rsplit("/", 1)[-1]


def column_lineage(node: Node, upstream: Mapping[str, dg.AssetKey]) -> dg.TableColumnLineage | None:
    """Return the source columns from which each column is computed; None if none are known."""
    schema = schema_of(node)
    if schema is None:
        return None
    deps = {
        column.name: [
            dg.TableColumnDep(asset_key=upstream[source], column_name=name)
            for source, name in sorted(lineage(node, column.name))
            if source in upstream
        ]
        for column in schema.columns
    }
    known = {name: found for name, found in deps.items() if found}
    return dg.TableColumnLineage(deps_by_column=known) if known else None


def _schema_metadata(node: Node, schema: Schema | None, given: Mapping[str, str] | None = None) -> MetadataValues:
    """Return the columns with their descriptions: the given ones, else what the graph says."""
    texts = given or {}
    if schema is None:
        return {}
    columns = [
        dg.TableColumn(
            name=column.name,
            type=column.type.lower() if column.type else "unknown",
            description=texts.get(column.name) or _description(node, column.name),
        )
        for column in schema.columns
    ]
    return {"dagster/column_schema": dg.TableSchema(columns=columns)}


def _description(node: Node, column: str) -> str | None:
    if isinstance(node, SourceNode):
        # On a source's own page its columns need no other description.
        return "Event time." if is_event_time(node, column) else None
    given = schema_of(node)
    if given is not None and given.find(column) is None:
        return _ADDED.get(column)
    return describe_column(node, column)


def _window_metadata(windows: tuple[WindowNode, ...]) -> MetadataValues:
    if not windows:
        return {}
    lines = [
        f"- `{window.uid}`: {window.assigner.describe()}, keyed by {', '.join(name for name, _ in window.keys) or 'nothing'}, "
        f"allowed lateness {format_duration(window.allowed_lateness_ms)}"
        for window in windows
    ]
    return {"tidemark/windows": dg.MetadataValue.md("\n".join(lines))}


def _function_metadata(functions: tuple[KeyedProcessNode, ...]) -> MetadataValues:
    if not functions:
        return {}
    lines = [f"- `{function.uid}`: {kind_of(function).describe(function)}" for function in functions]
    return {"tidemark/process_functions": dg.MetadataValue.md("\n".join(lines))}

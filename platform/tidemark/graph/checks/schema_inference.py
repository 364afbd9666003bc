"""Columns from operator to operator: the schema of each stream, as far as the graph alone determines it."""

from __future__ import annotations

from collections.abc import Mapping
from weakref import WeakKeyDictionary

from tidemark.graph.expressions.ddl import parse_schema
from tidemark.graph.expressions.expression_types import expression_type, item_type
from tidemark.graph.model.nodes import (
    ElementsNode,
    ExplodeNode,
    FunctionNode,
    Node,
    SelectNode,
    SideOutputNode,
    SourceNode,
    StatefulNode,
    TransformNode,
    UnionNode,
    WithColumnsNode,
)
from tidemark.graph.model.postgres_changes_spec import PostgresChangesSpec
from tidemark.graph.model.record_decoding import RecordDecoding
from tidemark.graph.model.schema import Schema, SchemaColumn
from tidemark.graph.model.source_specs import DeltaTableSpec, ElementsSpec, FilesSpec, FormatSpec, RateSpec, SourceSpec
from tidemark.graph.operators.keys import typed
from tidemark.graph.operators.registry import kind_of

MALFORMED_COLUMNS = Schema.of(
    [
        ("raw", "STRING"),
        ("reason", "STRING"),
        ("event_time", "TIMESTAMP"),
        ("source", "STRING"),
        ("split", "STRING"),
        ("read_at", "TIMESTAMP"),
    ]
)
"""Columns of a malformed side output: the record as it came, why it is malformed, its time if any, where and when it was read."""

_RATE = Schema.of([("timestamp", "TIMESTAMP"), ("value", "BIGINT")])
_KAFKA = Schema.of(
    [
        ("key", "BINARY"),
        ("value", "BINARY"),
        ("topic", "STRING"),
        ("partition", "INT"),
        ("offset", "BIGINT"),
        ("timestamp", "TIMESTAMP"),
        ("timestampType", "INT"),
    ]
)
_DELTA_CHANGES = (
    SchemaColumn("_change_type", "STRING"),
    SchemaColumn("_commit_version", "BIGINT"),
    SchemaColumn("_commit_timestamp", "TIMESTAMP"),
)
"""Columns that a Delta table's changes have, named as Delta's own reader names them."""

_KAFKA_HEADERS = SchemaColumn("headers", "ARRAY<STRUCT<key: STRING, value: BINARY>>")

_known: WeakKeyDictionary[Node, Schema | None] = WeakKeyDictionary()


def schema_of(node: Node) -> Schema | None:
    """Return the columns of a node's rows, or None if they cannot be known before the job runs.

    A column's type is None if the graph alone does not determine it. Cached per node, since nodes never change.
    """
    if node not in _known:
        _known[node] = _derive(node)
    return _known[node]


def _derive(node: Node) -> Schema | None:  # noqa: C901, PLR0911 - one case per kind of node
    match node:
        case SourceNode():
            return source_schema(node.spec)
        case SideOutputNode():
            return _side_output(node)
        case FunctionNode():
            return parse_schema(node.schema, place=node.place)
        case TransformNode():
            return None if node.columns is None else _same_types(node.columns)
        case UnionNode():
            return _union([schema_of(child) for child in node.inputs])
        case StatefulNode():
            return kind_of(node).output_schema(node, input_schemas(node))
    given = schema_of(node.input)
    match node:
        case SelectNode():
            return Schema(tuple(typed(node.columns, given)))
        case WithColumnsNode():
            return given.with_columns(typed(node.columns, given)) if given else None
        case ElementsNode():
            return given.with_columns([SchemaColumn(node.operation, "STRING")]) if given else None
        case ExplodeNode():
            kind = item_type(expression_type(node.expression, given))
            return given.with_columns([SchemaColumn(node.as_, kind)]) if given else None
    return given


def input_schemas(node: StatefulNode) -> list[Schema | None]:
    """Return the columns that come into each port of an operator, in order; None for those that the graph does not know."""
    return [schema_of(port.node) for port in node.ports] or [None] * len(node.PORTS)


def state_columns(node: StatefulNode) -> Mapping[str, str | None] | None:
    """Return the columns of an operator's main state table with their types, as its kind does."""
    return kind_of(node).state_columns(node, input_schemas(node))


def _side_output(node: SideOutputNode) -> Schema | None:
    emitter = node.emitter
    if isinstance(emitter, SourceNode):
        return MALFORMED_COLUMNS
    if isinstance(emitter, StatefulNode):
        return kind_of(emitter).side_schema(emitter, emitter.counter_of(node.tag), input_schemas(emitter))
    return schema_of(emitter.input)


def source_schema(spec: SourceSpec) -> Schema | None:
    """Return the columns that a source reads, or None if only the running source knows them."""
    match spec:
        case ElementsSpec() | FilesSpec():
            return parse_schema(spec.schema)
        case RateSpec():
            return _RATE
        case DeltaTableSpec():
            return parse_schema(spec.schema).with_columns(_DELTA_CHANGES if spec.changes else ())
        case PostgresChangesSpec():
            return spec.row_schema
        case FormatSpec():
            if spec.schema is not None:
                return parse_schema(spec.schema)
            # Spark compares names of formats and options in small letters.
            name = spec.format.lower()
            if name == "kafka":
                headers = any(key.lower() == "includeheaders" and str(value).lower() == "true" for key, value in spec.options.items())
                value = [] if spec.decoding is None else [_decoded_value(spec.decoding)]
                return _KAFKA.with_columns([*value, *([_KAFKA_HEADERS] if headers else [])])
            return _RATE if name in {"rate", "rate-micro-batch"} else None


def _decoded_value(decoding: RecordDecoding) -> SchemaColumn:
    parts = (f"`{column.name.replace('`', '``')}`: {column.type}" for column in parse_schema(decoding.schema).columns)
    return SchemaColumn("value", f"STRUCT<{', '.join(parts)}>")


def _same_types(names: tuple[str, ...]) -> Schema:
    return Schema.of((name, None) for name in names)


def _union(schemas: list[Schema | None]) -> Schema | None:
    known = [schema for schema in schemas if schema is not None]
    if not known:
        return None
    columns = []
    for column in known[0].columns:
        others = [schema.find(column.name) for schema in known]
        agreed = len(known) == len(schemas) and all(other is not None and other.type == column.type for other in others)
        columns.append(SchemaColumn(column.name, column.type if agreed else None))
    return Schema(tuple(columns))

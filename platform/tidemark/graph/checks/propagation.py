"""Columns from operator to operator: what each stream looks like, as far as the graph alone tells."""

from __future__ import annotations

from collections.abc import Iterable
from weakref import WeakKeyDictionary

from tidemark.graph.aggregates.aggregate_types import aggregate_type
from tidemark.graph.expressions.ddl import parse_schema
from tidemark.graph.expressions.expression_types import item_type, type_of
from tidemark.graph.expressions.expressions import Site, parse_sql
from tidemark.graph.model.nodes import (
    ElementsSpec,
    ExplodeNode,
    Expression,
    FilesSpec,
    FormatSpec,
    FunctionNode,
    Node,
    RateSpec,
    SelectNode,
    SideOutputNode,
    SourceNode,
    SourceSpec,
    TransformNode,
    UnionNode,
    WindowNode,
    WithColumnsNode,
)
from tidemark.graph.model.schema import Schema, SchemaColumn
from tidemark.graph.operators.window.columns import REPLACED_SESSIONS, REPLACES
from tidemark.graph.operators.window.reduce import reduced_types

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
"""What a malformed side output has: the record as it came, why it is malformed, its time if any, where and when it was read."""

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
_KAFKA_HEADERS = SchemaColumn("headers", "ARRAY<STRUCT<key: STRING, value: BINARY>>")

_known: WeakKeyDictionary[Node, Schema | None] = WeakKeyDictionary()


def schema_of(node: Node) -> Schema | None:
    """Return the columns of a node's rows, or None where they cannot be known before the job runs.

    A column's type is None where the graph alone does not tell it. Remembered per node, since nodes never change.
    """
    if node not in _known:
        _known[node] = _derive(node)
    return _known[node]


def _derive(node: Node) -> Schema | None:  # noqa: PLR0911 - one case per kind of node
    match node:
        case SourceNode():
            return source_schema(node.spec)
        case SideOutputNode():
            emitter = node.emitter
            return MALFORMED_COLUMNS if isinstance(emitter, SourceNode) else schema_of(emitter.input)
        case FunctionNode():
            return parse_schema(node.schema, place=node.place)
        case TransformNode():
            return None if node.columns is None else _same_types(node.columns)
        case UnionNode():
            return _union([schema_of(child) for child in node.inputs])
    given = schema_of(node.input)
    match node:
        case SelectNode():
            return Schema(tuple(_typed(node.columns, given)))
        case WithColumnsNode():
            return given.with_columns(_typed(node.columns, given)) if given else None
        case ExplodeNode():
            kind = item_type(expression_type(node.expression, given))
            return given.with_columns([SchemaColumn(node.as_, kind)]) if given else None
        case WindowNode():
            return _window(node, given)
    return given


def source_schema(spec: SourceSpec) -> Schema | None:
    """Return the columns that a source reads, or None where only the running source knows."""
    match spec:
        case ElementsSpec() | FilesSpec():
            return parse_schema(spec.schema)
        case RateSpec():
            return _RATE
        case FormatSpec():
            if spec.schema is not None:
                return parse_schema(spec.schema)
            # Spark compares names of formats and options in small letters.
            name = spec.format.lower()
            if name == "kafka":
                headers = any(key.lower() == "includeheaders" and str(value).lower() == "true" for key, value in spec.options.items())
                return _KAFKA.with_columns([_KAFKA_HEADERS] if headers else [])
            return _RATE if name in {"rate", "rate-micro-batch"} else None


def expression_type(expression: Expression, schema: Schema | None) -> str | None:
    """Return the type of an expression over columns, None where it is not certain."""
    return type_of(parse_sql(expression, Site("expression", "")), schema) if isinstance(expression, str) else None


def _typed(columns: Iterable[tuple[str, Expression]], given: Schema | None) -> Iterable[SchemaColumn]:
    return [SchemaColumn(name, expression_type(expression, given)) for name, expression in columns]


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


def _window(node: WindowNode, given: Schema | None) -> Schema:
    keys = _typed(node.keys, given)
    bounds = [SchemaColumn("window_start", "TIMESTAMP"), SchemaColumn("window_end", "TIMESTAMP")]
    pane = [SchemaColumn("pane_timing", "STRING"), SchemaColumn("pane_index", "INT")]
    merged = [SchemaColumn(REPLACES, REPLACED_SESSIONS)] if node.assigner.merging else []
    return Schema((*keys, *bounds, *_results(node, given), *pane, *merged))


def _results(node: WindowNode, given: Schema | None) -> tuple[SchemaColumn, ...]:
    if node.function is not None:
        return parse_schema(node.function.returns, place=node.place).columns
    if node.reduced:
        return reduced_types(node.aggregates[0][1], [name for name, _ in node.reduced], given)
    return tuple(SchemaColumn(name, aggregate_type(aggregate, given)) for name, aggregate in node.aggregates)

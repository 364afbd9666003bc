"""Checks of a source: its name, what it reads, and how it is timed."""

from __future__ import annotations

from typing import get_args

from tidemark.errors import DefinitionError, ExpressionError
from tidemark.graph.checks.schema_inference import schema_of
from tidemark.graph.expressions.expression_types import type_of
from tidemark.graph.expressions.expressions import Site, check_columns, parse_row_expression, parse_sql, unknown_column
from tidemark.graph.expressions.name_checks import check_column_names, check_tag
from tidemark.graph.model.nodes import SourceNode
from tidemark.graph.model.source_specs import FormatSpec, SourceSpec
from tidemark.names import validate_source_name
from tidemark.semantics.watermarks.watermarks import Punctuated, WatermarkStrategy

_TIMES = frozenset({"TIMESTAMP", "TIMESTAMP_LTZ", "DATE", "BIGINT", "STRING"})
_CONVERSIONS = {"INT": "timestamp_seconds({0})", "TIMESTAMP_NTZ": "CAST({0} AS TIMESTAMP)"}


def check_source(node: SourceNode) -> None:
    """Check a source.

    Raises:
        DefinitionError: or one of its kinds; see ``source``.
    """
    validate_source_name(node.name, place=node.place)
    if not isinstance(node.spec, get_args(SourceSpec)):
        raise DefinitionError(
            f"source {node.name!r} reads from {node.spec!r}, which is not a source specification",
            fix="pass files(...), from_elements(...), streaming_format(...), delta_source(...) or rate(...)",
            place=node.place,
        )
    if not isinstance(node.watermarks, WatermarkStrategy):
        raise DefinitionError(
            f"source {node.name!r} has watermarks={node.watermarks!r}, which is not a watermark strategy",
            fix="pass bounded_out_of_orderness('5 minutes', timestamp='...') or ingestion_time()",
            place=node.place,
        )
    if node.malformed_to is not None:
        check_tag(node.malformed_to, "malformed_to", node.place)
    schema = schema_of(node)
    if schema is not None:
        check_column_names(schema.names, f"source {node.name!r}", node.place)
    _check_generator(node)
    _check_timestamp(node)
    _check_splits(node)


def _check_splits(node: SourceNode) -> None:
    split_by, schema = node.watermarks.split_by, schema_of(node)
    if split_by is None:
        return
    if isinstance(node.spec, FormatSpec) and node.spec.format.lower() == "kafka":
        raise DefinitionError(
            f"source {node.name!r} has split_by={split_by!r}, and the splits of a Kafka source are its partitions",
            fix="leave split_by out; if a partition has rows of several clocks, let the bound cover how far these are apart",
            place=node.place,
        )
    if schema is not None and schema.find(split_by) is None:
        site = Site(f"split_by of source {node.name!r}", node.place)
        raise unknown_column(split_by, site.what, schema, site)


def _check_timestamp(node: SourceNode) -> None:
    timestamp = node.watermarks.timestamp
    if timestamp is None:
        return
    site = Site(f"timestamp of source {node.name!r}", node.place)
    if not isinstance(timestamp, str):
        raise ExpressionError(
            f"{site.what} is {timestamp!r}, not SQL text", fix="write a column or SQL expression as text", place=node.place
        )
    schema = schema_of(node)
    parsed = parse_row_expression(timestamp, site)
    check_columns(parsed, timestamp, schema, site)
    kind = type_of(parsed, schema)
    if kind is not None and kind not in _TIMES:
        conversion = _CONVERSIONS.get(kind, "TRY_CAST({0} AS TIMESTAMP)").format(timestamp)
        raise ExpressionError(
            f"{site.of(timestamp)} is of type {kind}, not TIMESTAMP, DATE, BIGINT (milliseconds) or STRING",
            fix=f"convert it, such as timestamp={conversion!r}",
            place=node.place,
        )


def _check_generator(node: SourceNode) -> None:
    generator = node.watermarks.generator
    missing = [name for name in ("bound_ms", "metrics", "watermark") if not hasattr(generator, name)]
    if missing:
        raise DefinitionError(
            f"source {node.name!r} has watermark generator {generator!r}, which lacks {', '.join(missing)}",
            fix="give it the properties bound_ms and metrics and the method watermark(stats)",
            place=node.place,
        )
    if isinstance(generator, Punctuated):
        marker = Site(f"watermark marker of source {node.name!r}", node.place)
        check_columns(parse_row_expression(generator.marker, marker), generator.marker, schema_of(node), marker)
    site = Site(f"watermark of source {node.name!r}", node.place)
    for metric in generator.metrics.values():
        check_columns(parse_sql(metric, site), metric, schema_of(node), site)

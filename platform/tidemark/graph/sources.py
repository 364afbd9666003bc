"""Where elements come from: source specifications, and ``source`` that starts a stream from one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from tidemark.graph.ddl import parse_schema
from tidemark.graph.nodes import ElementsSpec, FilesSpec, FormatSpec, OutputTag, RateSpec, SourceNode, SourceSpec
from tidemark.graph.places import user_place
from tidemark.graph.streams import Stream
from tidemark.semantics.watermarks import WatermarkStrategy

Row = Mapping[str, object] | Sequence[object]
"""An element given in the program: values by column name, or in the schema's order."""


def source(name: str, spec: SourceSpec, *, watermarks: WatermarkStrategy, malformed_to: OutputTag | None = None) -> Stream:
    """Start a stream.

    Args:
        name: identifies the source's positions in checkpoints; letters, digits and ``_``.
        spec: where elements come from: ``files(...)``, ``from_elements(...)``, ``streaming_format(...)``, ``rate(...)``.
        watermarks: how elements are timed, such as ``bounded_out_of_orderness("5 minutes", timestamp="pickup_at")``.
        malformed_to: tag of the side output for records that cannot be parsed or timed; without it they are counted only.

    Raises:
        InvalidNameError: the name is not allowed.
        ColumnError: the timestamp or ``split_by`` names a column that the source does not have.
        ExpressionError: the timestamp is not an SQL expression.
    """
    return Stream(SourceNode(name=name, spec=spec, watermarks=watermarks, malformed_to=malformed_to, place=user_place()))


def from_elements(rows: Sequence[Row] | None = None, *, schema: str, epochs: Sequence[Sequence[Row]] | None = None) -> ElementsSpec:
    """Return a source of elements given in the program, for tests and notebooks.

    Args:
        rows: all elements, read in one epoch.
        schema: Spark DDL, such as ``"zone INT, pickup_at TIMESTAMP"``.
        epochs: elements epoch by epoch, instead of ``rows``.

    >>> from_elements([{"zone": 7, "fare": 2.5}], schema="zone INT, fare DOUBLE").batches
    (((7, 2.5),),)
    """
    batches = [rows] if rows is not None else epochs or []
    names = [column.name for column in parse_schema(schema, place=user_place()).columns]
    return ElementsSpec(batches=tuple(tuple(_as_tuple(row, names) for row in batch) for batch in batches), schema=schema)


def _as_tuple(row: Row, names: list[str]) -> tuple[object, ...]:
    if isinstance(row, Mapping):
        return tuple(row.get(name) for name in names)
    return tuple(row)


def files(
    path: str,
    *,
    format: Literal["json", "csv", "parquet", "orc", "text"],  # noqa: A002 - the name that Spark's readers give it
    schema: str,
    options: Mapping[str, str] | None = None,
    max_files_per_epoch: int | None = None,
    max_bytes_per_epoch: int | None = None,
) -> FilesSpec:
    """Return a source of the files that arrive in a folder; each is read once, oldest first.

    Args:
        path: folder or glob, local or of an object store.
        format: how the files are written.
        schema: Spark DDL of the columns to read.
        options: reader options of Spark, such as ``{"header": "true"}``.
        max_files_per_epoch: greatest number of files of one epoch; None leaves it to the engine's bound.
        max_bytes_per_epoch: greatest number of bytes of one epoch.
    """
    return FilesSpec(
        path=path,
        format=format,
        schema=schema,
        options=dict(options or {}),
        max_files_per_epoch=max_files_per_epoch,
        max_bytes_per_epoch=max_bytes_per_epoch,
    )


def streaming_format(format: str, *, options: Mapping[str, str] | None = None, schema: str | None = None) -> FormatSpec:  # noqa: A002 - as above
    """Return a source of any Structured Streaming format, such as ``streaming_format("kafka", options={...})``.

    Args:
        format: name that ``spark.readStream.format`` takes.
        options: the format's options.
        schema: Spark DDL, for formats that want one.
    """
    return FormatSpec(format=format, options=dict(options or {}), schema=schema)


def rate(*, rows_per_second: int, partitions: int | None = None) -> RateSpec:
    """Return Spark's rate source: columns ``timestamp`` TIMESTAMP and ``value`` BIGINT, for trying things out.

    >>> rate(rows_per_second=100).rows_per_second
    100
    """
    return RateSpec(rows_per_second=rows_per_second, partitions=partitions)

"""Source specifications, and ``source``, which starts a stream from one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import date, datetime
from typing import Final, Literal, get_args

from tidemark.errors import DefinitionError
from tidemark.graph.api.streams import Stream
from tidemark.graph.checks.file_options import check_file_options
from tidemark.graph.expressions.ddl import parse_schema
from tidemark.graph.expressions.expression_text import shortened
from tidemark.graph.model.call_site import call_site
from tidemark.graph.model.nodes import OutputTag, SourceNode
from tidemark.graph.model.source_specs import ElementsSpec, FilesSpec, FormatSpec, RateSpec, SourceSpec
from tidemark.names import is_blank, location_fix
from tidemark.semantics.watermarks.watermarks import WatermarkStrategy

Row = Mapping[str, object] | Sequence[object]
"""An element given in the program: values by column name, or in the schema's order."""

FileFormat = Literal["json", "csv", "parquet", "orc", "text"]

_INSTANT: Final = "give a datetime with a zone, such as datetime(2025, 1, 1, tzinfo=UTC); of ms: datetime.fromtimestamp(ms / 1000, UTC)"
_TIMES: Final = {
    "TIMESTAMP": _INSTANT,
    "TIMESTAMP_LTZ": _INSTANT,
    "TIMESTAMP_NTZ": "give a datetime without a zone, such as datetime(2025, 1, 1)",
    "DATE": "give a date, such as date(2025, 1, 1)",
}
"""What to give for a column of a time: a number has no unit that shows, and text no zone."""

_ROW_BOUNDS: Final = {"kafka": "maxOffsetsPerTrigger", "iceberg": "streaming-max-rows-per-micro-batch"}
_BYTE_BOUNDS: Final = {"delta": "maxBytesPerTrigger"}
"""The option that bounds what a trigger reads, by format."""
_FILE_BOUNDS: Final = {"maxFilesPerTrigger": "max_files_per_epoch", "maxBytesPerTrigger": "max_bytes_per_epoch"}
"""Spark's options for the bounds of files, and their parameters here."""


def source(name: str, spec: SourceSpec, *, watermarks: WatermarkStrategy, malformed_to: OutputTag | None = None) -> Stream:
    """Start a stream.

    Args:
        name: identifies the source's positions in checkpoints; letters, digits and ``_``.
        spec: where elements come from, such as ``files(...)``, ``kafka_source(...)``, ``delta_source(...)`` or ``from_elements(...)``.
        watermarks: how elements are timed, such as ``bounded_out_of_orderness("5 minutes", timestamp="pickup_at")``.
        malformed_to: tag of the side output for records that cannot be parsed or timed; without it they are counted only.

    Raises:
        InvalidNameError: the name is not allowed.
        ColumnError: the timestamp or ``split_by`` names a column that the source does not have.
        ExpressionError: the timestamp is not an SQL expression, or not one of a time.
    """
    return Stream(SourceNode(name=name, spec=spec, watermarks=watermarks, malformed_to=malformed_to, place=call_site()))


def from_elements(rows: Sequence[Row] | None = None, *, schema: str, epochs: Sequence[Sequence[Row]] | None = None) -> ElementsSpec:
    """Return a source of elements given in the program, for tests and notebooks.

    Args:
        rows: all elements, read in one epoch.
        schema: Spark DDL, such as ``"zone INT, pickup_at TIMESTAMP"``.
        epochs: elements epoch by epoch, instead of ``rows``.

    Raises:
        DefinitionError: the schema cannot be read, an element does not fit it, or not exactly one of rows and epochs is given.

    >>> from_elements([{"zone": 7, "fare": 2.5}], schema="zone INT, fare DOUBLE").batches
    (((7, 2.5),),)
    """
    place = call_site()
    if (rows is None) == (epochs is None):
        raise DefinitionError(
            "from_elements(...) takes rows or epochs, exactly one of them", fix="pass rows=[...], or epochs=[[...], [...]]", place=place
        )
    columns = parse_schema(schema, place=place)
    batches = epochs if epochs is not None else [rows or []]
    given = tuple(tuple(_as_tuple(row, columns.names, place) for row in batch) for batch in batches)
    for at, column in enumerate(columns.columns):
        if str(column.type) in _TIMES:
            _check_times((row[at] for batch in given for row in batch), column.name, str(column.type), place)
    return ElementsSpec(batches=given, schema=schema)


def _check_times(values: Iterable[object], column: str, type_: str, place: str) -> None:
    for value in values:
        if value is not None and not isinstance(value, date if type_ == "DATE" else datetime):
            raise DefinitionError(f"from_elements(...): {value!r} of the column {column!r} is no {type_}", fix=_TIMES[type_], place=place)


def _as_tuple(row: Row, names: tuple[str, ...], place: str) -> tuple[object, ...]:
    if isinstance(row, Mapping):
        unknown = [key for key in row if key not in names]
        if not unknown:
            return tuple(row.get(name) for name in names)
        wrong = f"has {unknown[0]!r}, which is no column of the schema"
    elif isinstance(row, str | bytes) or not isinstance(row, Sequence):
        wrong = "is neither a dict nor a tuple"
    elif len(row) != len(names):
        wrong = f"has {len(row)} values for {len(names)} columns"
    else:
        return tuple(row)
    raise DefinitionError(f"element {row!r} {wrong}", fix=f"give values for the columns {', '.join(names)}", place=place)


def files(
    path: str,
    *,
    format: FileFormat,
    schema: str | None = None,
    options: Mapping[str, str | float | bool] | None = None,
    max_files_per_epoch: int | None = None,
    max_bytes_per_epoch: int | None = None,
) -> FilesSpec:
    """Return a source of the files that arrive in a folder; each is read once, oldest first.

    Args:
        path: folder or glob, local or of an object store.
        format: how the files are written.
        schema: Spark DDL of the columns to read; not needed for text, which has the one column ``value``.
        options: reader options of Spark, such as ``{"header": "true"}``.
        max_files_per_epoch: greatest number of files of one epoch; None leaves it to the engine's bound.
        max_bytes_per_epoch: greatest number of bytes of one epoch; one of the two.

    Raises:
        DefinitionError: no path, an unknown format, no schema or an unreadable one, a limit below 1, two limits, or one among the options;
            an option that Spark does not know.
    """
    place = call_site()
    if is_blank(path):
        raise DefinitionError(
            f"files(path={path!r}) names no folder", fix=location_fix(path, "give the folder the files arrive in"), place=place
        )
    if format not in get_args(FileFormat):
        formats = ", ".join(get_args(FileFormat))
        raise DefinitionError(
            f"files(format={format!r}) is not one of {formats}", fix="use one of these, or streaming_format(...)", place=place
        )
    if schema is None and format == "text":
        schema = "value STRING"
    if schema is None:
        raise DefinitionError(f"files(format={format!r}) has no schema", fix="give schema='zone INT, pickup_at TIMESTAMP'", place=place)
    parse_schema(schema, place=place)
    _check_limit("max_files_per_epoch", max_files_per_epoch, place)
    _check_limit("max_bytes_per_epoch", max_bytes_per_epoch, place)
    for option, parameter in _FILE_BOUNDS.items():
        if any(name.lower() == option.lower() for name in options or ()):
            raise DefinitionError(f"files(options={{{option!r}: …}}) is a bound of the epoch", fix=f"give {parameter} instead", place=place)
    texts = _as_texts("files", options, place)
    check_file_options(format, texts, place)
    if max_files_per_epoch is not None and max_bytes_per_epoch is not None:
        raise DefinitionError(
            "max_files_per_epoch and max_bytes_per_epoch both bound the epochs of one source", fix="give one of them", place=place
        )
    return FilesSpec(
        path=path,
        format=format,
        schema=schema,
        options=texts,
        max_files_per_epoch=max_files_per_epoch,
        max_bytes_per_epoch=max_bytes_per_epoch,
    )


def streaming_format(
    format: str,
    *,
    options: Mapping[str, str | float | bool] | None = None,
    schema: str | None = None,
    max_rows_per_epoch: int | None = None,
    max_bytes_per_epoch: int | None = None,
) -> FormatSpec:
    """Return a source of any Structured Streaming format, such as ``streaming_format("kafka", options={...})``.

    Args:
        format: name that ``spark.readStream.format`` takes.
        options: the format's options.
        schema: Spark DDL, for formats that want one.
        max_rows_per_epoch: greatest number of rows of one epoch, for formats that can be bounded so: Kafka and Iceberg.
        max_bytes_per_epoch: greatest number of bytes of one epoch, for formats that can be bounded so: Delta.

    Raises:
        DefinitionError: no format, an unreadable schema, a limit below 1, one that the format does not have, or one that is given twice.

    >>> streaming_format("kafka", options={"subscribe": "rides"}, max_rows_per_epoch=100_000).options["maxOffsetsPerTrigger"]
    '100000'
    """
    place = call_site()
    if is_blank(format):
        raise DefinitionError(f"streaming_format({format!r}) names no format", fix="give a name, such as 'kafka'", place=place)
    if schema is not None:
        parse_schema(schema, place=place)
    bounded = _as_texts("streaming_format", options, place)
    for name, value, by_format in (
        ("max_rows_per_epoch", max_rows_per_epoch, _ROW_BOUNDS),
        ("max_bytes_per_epoch", max_bytes_per_epoch, _BYTE_BOUNDS),
    ):
        _check_limit(name, value, place)
        if value is not None:
            bounded[_bound_option(format, name, by_format, bounded, place)] = str(value)
    return FormatSpec(format=format, options=bounded, schema=schema)


def _as_texts(function: str, options: object, place: str) -> dict[str, str]:
    """Return options as Spark keeps them.

    Raises:
        DefinitionError: they are no dict of options by name.
    """
    given = {} if options is None else options
    if not (isinstance(given, Mapping) and all(isinstance(name, str) for name in given)):
        raise DefinitionError(
            f"{function}(options={shortened(repr(options))}) is not a dict of options by name",
            fix="write options={'header': 'true'}",
            place=place,
        )
    return {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in given.items()}


def _bound_option(format: str, name: str, by_format: Mapping[str, str], options: Mapping[str, str], place: str) -> str:
    """Return the option by which a format takes a bound."""
    option = by_format.get(format.lower())
    if option is None:
        raise DefinitionError(
            f"{name} does not go with format {format!r}",
            fix=f"leave it out, or bound the source by an option of the format in options={{...}}; it goes with {', '.join(by_format)}",
            place=place,
        )
    if option.lower() in {key.lower() for key in options}:
        raise DefinitionError(f"{name} and the option {option!r} say the same of the source", fix="give one of them", place=place)
    return option


def rate(*, rows_per_second: int, partitions: int | None = None) -> RateSpec:
    """Return Spark's rate source: columns ``timestamp`` TIMESTAMP and ``value`` BIGINT, for trying things out.

    Raises:
        DefinitionError: fewer than one row per second, or fewer than one partition.

    >>> rate(rows_per_second=100).rows_per_second
    100
    """
    place = call_site()
    if type(rows_per_second) is not int:
        raise DefinitionError(f"rows_per_second={rows_per_second!r} is not a whole number", fix="give 1 or more", place=place)
    _check_limit("rows_per_second", rows_per_second, place)
    _check_limit("partitions", partitions, place)
    return RateSpec(rows_per_second=rows_per_second, partitions=partitions)


def _check_limit(name: str, value: int | None, place: str) -> None:
    if value is not None and (type(value) is not int or value < 1):
        raise DefinitionError(f"{name}={value!r} is not a whole number of 1 or more", fix="give 1 or more, or leave it out", place=place)

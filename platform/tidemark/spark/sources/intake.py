"""From a batch's raw rows to rows with event time, split, position and a status: passing or malformed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F
from pyspark.sql import types as T

from tidemark.errors import SourceError
from tidemark.graph.model.nodes import SourceNode
from tidemark.graph.model.source_specs import DeltaTableSpec, FilesSpec, FormatSpec
from tidemark.semantics.watermarks.event_time import MAX_EVENT_TIME, MIN_EVENT_TIME
from tidemark.spark.columns.expressions import (
    CORRUPT,
    POSITION,
    RAW,
    ROW_STATUS,
    SPLIT,
    TIME,
    VALUE,
    column,
    quoted,
    text_literal,
    visible_of,
)
from tidemark.spark.columns.few_rows import has_few_rows
from tidemark.spark.columns.row_counts import MALFORMED, PASSING
from tidemark.spark.columns.schemas import may_forbid_nulls, struct_of
from tidemark.spark.frame_steps import FrameSteps
from tidemark.spark.prepared.runtime_literals import literal, runtime_literals

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from tidemark.spark.sources.record_texts import RecordTexts

FIRST_FILTER = 2

PATH = "__tm_path"
BLOCK = "__tm_block"
ROW = "__tm_row"
_ELEMENT_BITS: Final = 32
_PARTITION_BITS: Final = 33
"""Below the number of an epoch's elements, and of the partition in ``monotonically_increasing_id``, is the row's own."""


@dataclass(frozen=True)
class SourceRows:
    """The rows of a source in an epoch, made into a DataFrame where that is needed.

    ``files`` are the ones that it reads, where they are small and are read in one task, and ``few_of_files`` says whether such files have
    few rows; ``scanned`` are the ones that it reads by one scan, whatever their size, which may be ``small``. ``few`` is whether a source
    that is no folder is known to have few rows. ``may_have_split`` is whether it may have the engine's column of splits; ``splits`` are
    those that it may have rows of, where the source's position says so before they are read.
    """

    read: Callable[[], DataFrame]
    files: tuple[str, ...] = ()
    may_have_split: bool = True
    few: bool = False
    splits: tuple[str, ...] = ()
    few_of_files: Callable[[Iterable[str]], bool] = has_few_rows
    scanned: tuple[str, ...] = ()
    small: bool = False

    @cached_property
    def rows(self) -> DataFrame:
        """The rows."""
        return self.read()

    @cached_property
    def few_files(self) -> tuple[str, ...]:
        """The files, where they have few rows; empty otherwise."""
        return self.files if self.files and self.few_of_files(self.files) else ()

    @property
    def has_few_rows(self) -> bool:
        """Whether it is known to have few rows."""
        return self.few or bool(self.few_files)


@dataclass(frozen=True)
class Intake:
    """One source's rows of one epoch.

    ``batch`` are its rows as ``tidemark.spark.sources.sources`` reads them, ``ordered`` says whether they need a position.
    ``latest`` is the latest valid event time. Only a ``strict`` intake marks rows beyond it, which are rare. Where such a row is found,
    the epoch's input is read again, strictly.
    ``texts`` reads the epoch's records again with their texts, for malformed ones.
    """

    node: SourceNode
    batch: SourceRows
    processing_time: int
    latest: int
    strict: bool
    ordered: bool
    texts: RecordTexts | None = None

    @cached_property
    def rows(self) -> DataFrame:
        """The user's columns and the engine's: time (milliseconds), status, and split and position where they are needed."""
        return _with_status(self, self.batch.rows)

    @property
    def rows_with_value(self) -> DataFrame:
        """The same with ``VALUE`` where the source decodes it."""
        return _with_status(self, self.batch.rows, VALUE)

    @property
    def has_splits(self) -> bool:
        """Whether the rows have a split."""
        return self.node.watermarks.split_by is not None or (self.batch.may_have_split and SPLIT in self.batch.rows.columns)

    @property
    def numbers(self) -> tuple[int, int]:
        """The numbers that its rows are made with and that differ between epochs."""
        return self.processing_time, self.latest

    def with_numbers(self, numbers: Sequence[int]) -> Intake:
        """Return the same rows as made with other numbers."""
        processing_time, latest = numbers
        return replace(self, processing_time=processing_time, latest=latest)

    @property
    def bounded(self) -> bool:
        """Whether a row can be too far ahead of processing time."""
        return self.latest < MAX_EVENT_TIME


def prepare_batch(
    node: SourceNode,
    batch: SourceRows,
    processing_time: int,
    *,
    ordered: bool,
    strict: bool,
    texts: RecordTexts | None = None,
) -> Intake:
    """Return the rows of a batch with event time and status.

    Args:
        node: the source.
        batch: its rows.
        processing_time: of the epoch, milliseconds.
        ordered: whether rows need a position.
        strict: whether to mark rows that are too far ahead of processing time.
        texts: as of ``Intake``.
    """
    skew = node.watermarks.max_future_skew_ms
    latest = MAX_EVENT_TIME if skew is None else min(MAX_EVENT_TIME, processing_time + skew)
    return Intake(node, batch, processing_time, latest, strict, ordered, texts)


def _with_status(intake: Intake, batch: DataFrame, *more: str) -> DataFrame:
    node, strategy = intake.node, intake.node.watermarks
    kinds = {field.name: field.dataType for field in batch.schema}
    names = list(kinds)
    now = f"{literal(intake.processing_time)} AS {TIME}"
    hidden: list[str | Column] = [now if strategy.timestamp is None else _milliseconds(node, batch, kinds).alias(TIME)]
    if SPLIT in names:
        hidden.append(SPLIT)
    elif strategy.split_by is not None:
        hidden.append(f"CAST({quoted(strategy.split_by)} AS STRING) AS {SPLIT}")
    if intake.ordered:
        hidden.append(f"{_position(node, names)} AS {POSITION}")
    corrupt = [CORRUPT] if CORRUPT in names else []
    raw = [name for name in (RAW, *more) if name in names]
    timed = FrameSteps(batch).select(*map(quoted, visible_of(names)), *corrupt, *raw, *hidden)
    bound = runtime_literals(intake.latest, varying=TIME)[0] if intake.strict else f"{MAX_EVENT_TIME}L"
    conditions = [f"{TIME} BETWEEN {MIN_EVENT_TIME}L AND {bound}", *(f"({present})" for _, present in required_values(node))]
    good = " AND ".join([*conditions, f"{CORRUPT} IS NULL"] if corrupt else conditions)
    return timed.select("*", f"if({good}, {PASSING}, {MALFORMED}) AS {ROW_STATUS}").frame()


def required_values(node: SourceNode) -> Sequence[tuple[str, str]]:
    """Return the columns that a source's schema declares NOT NULL, each with an SQL condition that it has a value.

    Spark treats every column of a file as nullable, whatever the schema says. A field of a struct is required where the struct is not
    null, also in the items of arrays and maps; it has the path of the array or map.
    """
    spec = node.spec
    if isinstance(spec, FormatSpec) and spec.decoding is not None:
        return _required_of_value(spec.decoding.schema) if may_forbid_nulls(spec.decoding.schema) else ()
    if not isinstance(spec, FilesSpec | FormatSpec | DeltaTableSpec) or spec.schema is None or not may_forbid_nulls(spec.schema):
        return ()
    return _required_of(spec.schema)


@lru_cache
def _required_of_value(schema: str) -> Sequence[tuple[str, str]]:
    return tuple(_required(struct_of(schema), "value", "value", 0))


@lru_cache
def _required_of(schema: str) -> Sequence[tuple[str, str]]:
    # Spark parses the text, which each epoch would pay for.
    return tuple(each for field in struct_of(schema) for each in _required_column(field))


def _required_column(field: T.StructField) -> Iterator[tuple[str, str]]:
    value = quoted(field.name)
    if not field.nullable:
        yield field.name, f"{value} IS NOT NULL"
    yield from _required(field.dataType, field.name, value, 0)


def _required(kind: T.DataType, name: str, value: str, depth: int) -> Iterator[tuple[str, str]]:
    """Yield the fields that a type requires within a value, each with SQL that is true where the value has them, or is null."""
    if isinstance(kind, T.StructType):
        for field in kind:
            inner, path = f"{value}.{quoted(field.name)}", f"{name}.{field.name}"
            if not field.nullable:
                yield path, f"{value} IS NULL OR {inner} IS NOT NULL"
            yield from _required(field.dataType, path, inner, depth)
    else:
        item = f"item_{depth}"
        for items, of_item in _items(kind, value):
            for path, present in _required(of_item, name, item, depth + 1):
                yield path, f"{value} IS NULL OR forall({items}, {item} -> {present})"


def _items(kind: T.DataType, value: str) -> Sequence[tuple[str, T.DataType]]:
    if isinstance(kind, T.ArrayType):
        return ((value, kind.elementType),)
    if isinstance(kind, T.MapType):
        return (f"map_keys({value})", kind.keyType), (f"map_values({value})", kind.valueType)
    return ()


def _milliseconds(node: SourceNode, batch: DataFrame, kinds: Mapping[str, T.DataType]) -> Column:
    timestamp = node.watermarks.timestamp
    if timestamp is None:
        raise ValueError("no timestamp expression")
    value = column(timestamp)
    # The schema is known, and an analysis of another frame takes milliseconds in each epoch.
    found = kinds.get(timestamp)
    kind = found or batch.select(value.alias("t")).schema["t"].dataType
    if isinstance(kind, T.TimestampType):
        return F.unix_millis(value)
    if isinstance(kind, T.TimestampNTZType | T.DateType):
        return F.unix_millis(value.cast("timestamp"))
    if isinstance(kind, T.LongType | T.IntegerType):
        return value.cast("bigint")
    if isinstance(kind, T.StringType):
        return F.unix_millis(value.try_cast("timestamp"))
    raise SourceError(
        f"timestamp={timestamp!r} of source {node.name!r} has type {kind.simpleString()}, which is not an instant",
        fix="give a TIMESTAMP, a DATE, a BIGINT of milliseconds since 1970, or a STRING that casts to a timestamp",
        uid=node.name,
        place=node.place,
    )


def _position(node: SourceNode, names: Sequence[str]) -> str:
    """Return SQL of a struct<string, bigint, bigint> that orders rows of equal event time: partition and offset, or path and row."""
    name = text_literal(node.name)
    origin = f"concat_ws(':', {name}, {PATH})" if PATH in names else name
    block, row = BLOCK, ROW if ROW in names else "monotonically_increasing_id()"
    if BLOCK not in names:
        # Spread, so that rows made of a row have room for their numbers.
        bits = _ELEMENT_BITS if ROW in names else _PARTITION_BITS
        block, row = f"shiftright({row}, {bits})", f"({row} & {(1 << bits) - 1}L)"
    return f"struct({origin} AS origin, CAST({block} AS BIGINT) AS block, CAST({row} AS BIGINT) AS row)"

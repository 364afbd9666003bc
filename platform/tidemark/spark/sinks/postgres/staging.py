"""The rows of an epoch as they are staged: as COPY can take them, with values that Postgres cannot hold refused before the commit."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Final

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T

from tidemark.graph.checks.upsert_keys import END, START
from tidemark.spark.columns.expressions import quoted, visible_of
from tidemark.spark.sinks.delta.delta_changes import DELETED
from tidemark.spark.sinks.delta.delta_upsert import Newest

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

INDEX_ROW_BYTES: Final = 2704
"""The longest row of an index of Postgres: a third of a page (``BTMaxItemSize`` of PostgreSQL's nbtree.h)."""

_ROW_BYTES: Final = 16
_COLUMN_BYTES: Final = 32
"""At most what a key's length, alignment or fixed value takes, besides its text."""

_ITEM_BYTES: Final = 12
_BOUNDS: Final = "__tm_bounds"
_QUOTED: Final = (T.StringType, T.DateType, T.TimestampType, T.TimestampNTZType, T.BinaryType)


@dataclass(frozen=True)
class Problem:
    """A value that cannot be written, as an error of the epoch says it: the output and its column."""

    output: str
    column: str

    def raised(self, what: str, fix: str) -> Column:
        """Return an expression that fails."""
        return F.raise_error(F.lit(f"output '{self.output}': column '{self.column}' {what}, which its Postgres table cannot hold: {fix}"))


def as_copied(rows: DataFrame, output: str, required: Collection[str], keys: Sequence[str] = ()) -> DataFrame:
    """Return rows with values as COPY reads them: binary values and arrays as text, all others as they are.

    Args:
        rows: visible columns, and the engine's own, which stay.
        output: its name, for errors.
        required: columns of the table that take no null.
        keys: of an upsert: together they must fit into a row of an index.
    """
    visible = visible_of(rows.columns)
    kept = F.lit(False) if DELETED not in rows.columns else F.col(DELETED)
    too_long = _too_long(rows.schema, keys, output)
    columns = []
    for field in rows.schema:
        if field.name not in visible:
            columns.append(F.col(quoted(field.name)))
            continue
        problem, value = Problem(output, field.name), F.col(quoted(field.name))
        if field.name in required:
            fault = problem.raised("is null", "filter such rows, or take NOT NULL off the table's column")
            value = F.when(value.isNull() & ~kept, fault.cast(field.dataType)).otherwise(value)
        if too_long is not None and field.name == too_long.column:
            value = F.when(too_long.exceeds & ~kept, too_long.fault.cast(field.dataType)).otherwise(value)
        columns.append(_copied(value, field.dataType, problem).alias(field.name))
    return rows.select(*columns)


@dataclass(frozen=True)
class _TooLong:
    """When the keys of an upsert do not fit into a row of an index, and what fails then, in one of their columns."""

    column: str
    exceeds: Column
    fault: Column


def _too_long(schema: T.StructType, keys: Sequence[str], output: str) -> _TooLong | None:
    """Return the check of keys that have no fixed length, None where all have one."""
    sizes = {key: _size(F.col(quoted(key)), schema[key].dataType) for key in keys}
    known = {key: F.coalesce(size, F.lit(0)) for key, size in sizes.items() if size is not None}
    if not known:
        return None
    limit = INDEX_ROW_BYTES - _ROW_BYTES - _COLUMN_BYTES * len(keys)
    column = next(iter(known))
    fix = "upsert by shorter keys, such as a checksum of the text, or filter such rows"
    fault = Problem(output, column).raised(f"is part of a key of more than {limit} bytes", fix)
    return _TooLong(column, reduce(Column.__add__, known.values()) > limit, fault)


def _size(value: Column, kind: T.DataType) -> Column | None:
    """Return at most how many bytes a value takes in an index, besides those of each column; None where that is the same for all."""
    if isinstance(kind, T.StringType | T.BinaryType):
        return F.octet_length(value)
    if not isinstance(kind, T.ArrayType):
        return None
    texts = F.transform(value, lambda item: F.coalesce(F.octet_length(item.cast("string")), F.lit(0)))
    return F.aggregate(texts, F.lit(0), lambda total, size: total + size + F.lit(_ITEM_BYTES))


def with_replaced_sessions(newest: Newest) -> DataFrame:
    """Return the newest rows of an upsert, and apart the keys of the sessions that they replace: with other bounds, to be deleted."""
    rows = newest.rows
    entries = newest.upsert.replaced_by(rows.schema)
    if entries is None:
        return rows.withColumn(DELETED, F.lit(False))
    has_end = END in newest.upsert.keys
    own = f"named_struct('s', {START}, 'e', {END if has_end else START}, 'd', false)"
    other = f"NOT (x.{START} <=> {START}{f' AND x.{END} <=> {END}' if has_end else ''})"
    replaced = (
        f"transform(filter({entries}, x -> {other}), x -> named_struct('s', x.{START}, 'e', x.{END if has_end else START}, 'd', true))"
    )
    exploded = rows.withColumn(_BOUNDS, F.explode(F.expr(f"concat(array({own}), coalesce({replaced}, array()))")))
    changed = exploded.withColumn(START, F.col(f"{_BOUNDS}.s")).withColumn(DELETED, F.col(f"{_BOUNDS}.d"))
    if has_end:
        changed = changed.withColumn(END, F.col(f"{_BOUNDS}.e"))
    return changed.drop(_BOUNDS)


def _copied(value: Column, kind: T.DataType, problem: Problem) -> Column:
    if isinstance(kind, T.ArrayType):
        if isinstance(kind.elementType, T.StructType):
            return F.to_json(value)
        items = F.transform(value, lambda item: F.coalesce(_item(item, kind.elementType, problem), F.lit("NULL")))
        return F.concat(F.lit("{"), F.array_join(items, ","), F.lit("}"))
    if isinstance(kind, T.BinaryType):
        return F.concat(F.lit("\\x"), F.hex(value))
    return _held(value, kind, problem)


def _held(value: Column, kind: T.DataType, problem: Problem) -> Column:
    """Return a value, or fail where Postgres does not hold it."""
    if isinstance(kind, T.StringType):
        fault = problem.raised("has a text with the character 0, or bytes that are no UTF-8", "replace these, as by replace(text, char(0))")
        bad = (F.instr(value, F.lit("\0")) > 0) | ~F.call_function("is_valid_utf8", value)
        return F.when(bad, fault.cast("string")).otherwise(value)
    if isinstance(kind, T.DateType | T.TimestampType | T.TimestampNTZType):
        fault = problem.raised("has a year outside 1 to 9999", "filter such rows, or write null instead")
        year = F.year(value)
        return F.when((year < 1) | (year > 9999), fault.cast(kind)).otherwise(value)
    return value


def _item(item: Column, kind: T.DataType, problem: Problem) -> Column:
    """Return the text of an array's item, null for a null."""
    if isinstance(kind, T.BinaryType):
        return F.concat(F.lit('"\\\\x'), F.hex(item), F.lit('"'))
    held = _held(item, kind, problem)
    if isinstance(kind, T.TimestampType):
        text = F.date_format(held, "yyyy-MM-dd HH:mm:ss.SSSSSSxxx")
    elif isinstance(kind, T.TimestampNTZType):
        text = F.date_format(held, "yyyy-MM-dd HH:mm:ss.SSSSSS")
    else:
        text = held.cast("string")
    if isinstance(kind, T.StringType):
        text = F.replace(F.replace(text, F.lit("\\"), F.lit("\\\\")), F.lit('"'), F.lit('\\"'))
    return F.concat(F.lit('"'), text, F.lit('"')) if isinstance(kind, _QUOTED) else text

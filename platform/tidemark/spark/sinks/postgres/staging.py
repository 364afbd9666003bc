"""The rows of an epoch as they are staged: as COPY can take them, with values that Postgres cannot hold refused before the commit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Final

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T

from tidemark.spark.columns.expressions import quoted, visible_of
from tidemark.spark.sinks.database.limits import Limits, Problem, held, is_deleted, not_null

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

DATABASE: Final = "Postgres"
INDEX_ROW_BYTES: Final = 2704
"""The longest row of an index of Postgres: a third of a page (``BTMaxItemSize`` of PostgreSQL's nbtree.h)."""

_ROW_BYTES: Final = 16
_COLUMN_BYTES: Final = 32
"""At most what a key's length, alignment or fixed value takes, besides its text."""

_ITEM_BYTES: Final = 12
_QUOTED: Final = (T.StringType, T.DateType, T.TimestampType, T.TimestampNTZType, T.BinaryType)


def as_copied(rows: DataFrame, limits: Limits) -> DataFrame:
    """Return rows with values as COPY reads them: binary values and arrays as text, all others as they are.

    Args:
        rows: visible columns, and the engine's own, which stay.
        limits: of the table; the keys of an upsert must fit into a row of an index together.
    """
    visible = visible_of(rows.columns)
    kept = is_deleted(rows)
    too_long = _too_long(rows.schema, limits.keys, limits.output)
    columns = []
    for field in rows.schema:
        if field.name not in visible:
            columns.append(F.col(quoted(field.name)))
            continue
        problem = Problem(limits.output, field.name, DATABASE)
        value = not_null(F.col(quoted(field.name)), field, limits, kept, problem)
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
    fault = Problem(output, column, DATABASE).raised(f"is part of a key of more than {limit} bytes", fix)
    return _TooLong(column, reduce(Column.__add__, known.values()) > limit, fault)


def _size(value: Column, kind: T.DataType) -> Column | None:
    """Return at most how many bytes a value takes in an index, besides those of each column; None where that is the same for all."""
    if isinstance(kind, T.StringType | T.BinaryType):
        return F.octet_length(value)
    if not isinstance(kind, T.ArrayType):
        return None
    texts = F.transform(value, lambda item: F.coalesce(F.octet_length(item.cast("string")), F.lit(0)))
    return F.aggregate(texts, F.lit(0), lambda total, size: total + size + F.lit(_ITEM_BYTES))


def _copied(value: Column, kind: T.DataType, problem: Problem) -> Column:
    if isinstance(kind, T.ArrayType):
        if isinstance(kind.elementType, T.StructType):
            return F.to_json(value)
        items = F.transform(value, lambda item: F.coalesce(_item(item, kind.elementType, problem), F.lit("NULL")))
        return F.concat(F.lit("{"), F.array_join(items, ","), F.lit("}"))
    if isinstance(kind, T.BinaryType):
        return F.concat(F.lit("\\x"), F.hex(value))
    return held(value, kind, problem)


def _item(item: Column, kind: T.DataType, problem: Problem) -> Column:
    """Return the text of an array's item, null for a null."""
    if isinstance(kind, T.BinaryType):
        return F.concat(F.lit('"\\\\x'), F.hex(item), F.lit('"'))
    safe = held(item, kind, problem)
    if isinstance(kind, T.TimestampType):
        text = F.date_format(safe, "yyyy-MM-dd HH:mm:ss.SSSSSSxxx")
    elif isinstance(kind, T.TimestampNTZType):
        text = F.date_format(safe, "yyyy-MM-dd HH:mm:ss.SSSSSS")
    else:
        text = safe.cast("string")
    if isinstance(kind, T.StringType):
        text = F.replace(F.replace(text, F.lit("\\"), F.lit("\\\\")), F.lit('"'), F.lit('\\"'))
    return F.concat(F.lit('"'), text, F.lit('"')) if isinstance(kind, _QUOTED) else text

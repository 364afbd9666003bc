"""Splits an epoch's rows by the partitions of a table: a data file may have rows of one partition only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F
from pyspark.sql import types as T

from tidemark.graph.connectors.iceberg.node import PartitionBy
from tidemark.spark.columns.expressions import quoted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

PART: Final = "__tm_part"
"""Column by which files are split; the files do not have it."""

_DAY: Final = 86_400_000_000
_HOUR: Final = 3_600_000_000


def split(rows: DataFrame, fields: Sequence[PartitionBy]) -> tuple[DataFrame, tuple[str, ...]]:
    """Return rows with a column that has one value for each partition, and its name; without partitions the rows as they are."""
    types = {field.name: field.dataType for field in rows.schema}
    # A column that the rows lack is null in all of them.
    values = [_value(field, types[field.column]) for field in fields if field.column in types]
    if not values:
        return rows, ()
    named = ", ".join(f"{value} AS v{number}" for number, value in enumerate(values))
    return rows.withColumn(PART, F.expr(f"md5(to_json(struct({named})))")), (PART,)


def _value(field: PartitionBy, kind: T.DataType) -> str:
    """Return SQL of a value that two rows have in common only if they have the same value of the partition; times are those of UTC."""
    column = quoted(field.column)
    transform, _, width = field.transform.partition("[")
    size = width.removesuffix("]")
    match transform:
        case "identity":
            return column
        case "truncate" if isinstance(kind, T.StringType | T.CharType | T.VarcharType):
            return f"substring({column}, 1, {size})"
        case "truncate":
            return f"CAST({column} AS DECIMAL(20, 0)) - pmod({column}, {size})"
        case "hour" if isinstance(kind, T.TimestampNTZType):
            return f"struct(CAST({column} AS DATE), hour({column}))"
        case "hour":
            return _floored(column, _HOUR)
    day = f"date_add(DATE'1970-01-01', CAST({_floored(column, _DAY)} DIV {_DAY}L AS INT))"
    day = day if isinstance(kind, T.TimestampType) else f"CAST({column} AS DATE)"
    return {"day": day, "month": f"struct(year({day}), month({day}))", "year": f"year({day})"}[transform]


def _floored(column: str, unit: int) -> str:
    return f"(unix_micros({column}) - pmod(unix_micros({column}), {unit}L))"

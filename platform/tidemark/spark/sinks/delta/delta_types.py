"""The types of Spark's that a Delta table cannot hold."""

from __future__ import annotations

from collections.abc import Iterator

from pyspark.sql.types import (
    AnyTimeType,
    ArrayType,
    CalendarIntervalType,
    DataType,
    DayTimeIntervalType,
    MapType,
    StructType,
    YearMonthIntervalType,
)

from tidemark.errors import SinkError

_NOT_STORED = (DayTimeIntervalType, YearMonthIntervalType, CalendarIntervalType, AnyTimeType)
"""An interval would be written as a number without its unit."""


def require_delta_types(schema: StructType, output: str) -> None:
    """Make sure that a Delta table can hold the columns of an output.

    Raises:
        SinkError: it cannot; the error names the column.
    """
    for field in schema:
        for kind in _parts(field.dataType):
            if isinstance(kind, _NOT_STORED):
                text = kind.simpleString().upper()
                raise SinkError(
                    f"column {field.name!r} of output {output!r} is of type {text}, which Delta tables do not have",
                    fix=f"cast it after the last operator: .with_columns({field.name}='CAST({field.name} AS STRING)'), or leave it out",
                    uid=output,
                )


def _parts(kind: DataType) -> Iterator[DataType]:
    """Yield a type and those that it is made of."""
    yield kind
    inner: list[DataType] = []
    if isinstance(kind, ArrayType):
        inner = [kind.elementType]
    elif isinstance(kind, MapType):
        inner = [kind.keyType, kind.valueType]
    elif isinstance(kind, StructType):
        inner = [field.dataType for field in kind]
    for each in inner:
        yield from _parts(each)

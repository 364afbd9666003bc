"""What a writer's type is read as: SQL that takes the declared columns of a value by name, at any depth, without changing a value."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pyspark.sql import types as T

from tidemark.spark.columns.expressions import quoted
from tidemark.spark.columns.schemas import ddl_of

_WIDER: Final = {
    T.IntegerType: (T.LongType, T.FloatType, T.DoubleType),
    T.LongType: (T.FloatType, T.DoubleType),
    T.FloatType: (T.DoubleType,),
    T.StringType: (T.BinaryType,),
}
"""As Avro resolves a writer's type to a reader's."""

_DIGITS: Final[Mapping[type[T.DataType], int]] = {T.IntegerType: 10, T.LongType: 19}


class UnreadableTypeError(Exception):
    """A column of the writer's cannot be read as it is declared."""


def read_as(have: T.DataType, want: T.DataType, value: str, path: str = "value") -> str:
    """Return SQL that reads a value of one type as another.

    Fields are found by name without regard to case, as Spark does; those that the value lacks are null, those that are not
    wanted are left out. Numbers may become wider.

    Args:
        have: type of the value.
        want: type to return.
        value: SQL.
        path: of the value, for the error.

    Raises:
        UnreadableTypeError: the types differ in another way.
    """
    return f"CAST({_read_as(have, want, value, path, 0)} AS {ddl_of(want)})"


def _read_as(have: T.DataType, want: T.DataType, value: str, path: str, depth: int) -> str:
    if isinstance(have, T.StructType) and isinstance(want, T.StructType):
        fields = ", ".join(f"{literal(field.name)}, {_field(have, field, value, path, depth)}" for field in want)
        return f"if({value} IS NULL, NULL, named_struct({fields}))"
    if isinstance(have, T.ArrayType) and isinstance(want, T.ArrayType):
        item = f"item_{depth}"
        return f"transform({value}, {item} -> {_read_as(have.elementType, want.elementType, item, path, depth + 1)})"
    if isinstance(have, T.MapType) and isinstance(want, T.MapType) and have.keyType == want.keyType:
        key, item = f"key_{depth}", f"item_{depth}"
        return f"transform_values({value}, ({key}, {item}) -> {_read_as(have.valueType, want.valueType, item, path, depth + 1)})"
    if have == want or isinstance(want, _WIDER.get(type(have), ())) or _is_wider_decimal(have, want):
        return value if have == want else f"CAST({value} AS {ddl_of(want)})"
    raise UnreadableTypeError(f"{path} is {have.simpleString()}, and the source declares {want.simpleString()}")


def _field(have: T.StructType, want: T.StructField, value: str, path: str, depth: int) -> str:
    found = [each for each in have.names if each.lower() == want.name.lower()]
    if not found:
        return f"CAST(NULL AS {ddl_of(want.dataType)})"
    if len(found) > 1:
        raise UnreadableTypeError(f"{path} has {' and '.join(found)}, which Spark does not tell apart")
    return _read_as(have[found[0]].dataType, want.dataType, f"{value}.{quoted(found[0])}", f"{path}.{want.name}", depth)


def _is_wider_decimal(have: T.DataType, want: T.DataType) -> bool:
    if not isinstance(want, T.DecimalType):
        return False
    whole = want.precision - want.scale
    if isinstance(have, T.DecimalType):
        return want.scale >= have.scale and whole >= have.precision - have.scale
    return whole >= _DIGITS.get(type(have), whole + 1)


def literal(text: str) -> str:
    """Return a text as an SQL literal."""
    escapes = text.replace("\\", "\\\\").replace("'", "\\'").replace("\n", "\\n").replace("\r", "\\r")
    return f"'{escapes}'"

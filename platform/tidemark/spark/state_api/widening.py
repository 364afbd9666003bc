"""Values of a type as those of a wider one, of which structs may have more fields."""

from __future__ import annotations

from typing import cast

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, MapType, StructType


def widened(column: Column, stored: DataType, wanted: DataType) -> Column:
    """Return a column of one type as one of a wider type; fields that only this one has are null."""
    return _with_fields(column, stored, wanted).cast(wanted)


def _with_fields(column: Column, stored: DataType, wanted: DataType) -> Column:
    """Return a column whose structs have the fields of the wanted type, in its order, so that each can be cast."""
    if _fields(stored) == _fields(wanted):
        return column
    if isinstance(stored, ArrayType):
        return F.transform(column, lambda each: _with_fields(each, stored.elementType, cast("ArrayType", wanted).elementType))
    if isinstance(stored, MapType):
        return F.transform_values(column, lambda _, value: _with_fields(value, stored.valueType, cast("MapType", wanted).valueType))
    found = {field.name: field.dataType for field in cast("StructType", stored)}
    fields = [
        _with_fields(column.getField(field.name), found[field.name], field.dataType) if field.name in found else F.lit(None)
        for field in cast("StructType", wanted)
    ]
    named = [each.alias(field.name) for each, field in zip(fields, cast("StructType", wanted), strict=True)]
    return F.when(column.isNotNull(), F.struct(*named))


def _fields(kind: DataType) -> object:
    """Return the names of all fields in a type, by their places in it."""
    if isinstance(kind, ArrayType):
        return [_fields(kind.elementType)]
    if isinstance(kind, MapType):
        return [_fields(kind.valueType)]
    return [(each.name, _fields(each.dataType)) for each in kind] if isinstance(kind, StructType) else None

"""Checks batches that user code returns, and values that a schema requires, in Arrow's columns."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import TYPE_CHECKING

from tidemark.spark.columns.user_values import sql_type

if TYPE_CHECKING:
    import pyarrow as pa


class MisfitColumnError(ValueError):
    """A batch lacks declared columns, or has one of another type; its text follows "a batch whose"."""


def typed_batch(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return a batch with the types of a schema, column by column in its order.

    Numbers are cast to numbers, strings to strings, times to times; only where no value of a column loses anything.

    Raises:
        MisfitColumnError: the columns differ, or a type or a value does not fit.
    """
    import pyarrow as pa

    if len(batch.schema) != len(schema):
        raise MisfitColumnError(f"columns are {', '.join(batch.schema.names)}, and not {', '.join(schema.names)}")
    return pa.RecordBatch.from_arrays([_typed(column, field) for column, field in zip(batch.columns, schema, strict=True)], schema=schema)


def typed_by_name(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return a batch with the columns of a schema, which it may have in another order; the rest is as for ``typed_batch``.

    Raises:
        MisfitColumnError: the columns differ, or a type or a value does not fit.
    """
    if sorted(batch.schema.names) != sorted(schema.names):
        raise MisfitColumnError(f"columns are {', '.join(batch.schema.names)}, and not {', '.join(schema.names)}")
    return typed_batch(batch.select(schema.names), schema)


def missing_values(field: pa.Field, values: pa.Array) -> Iterator[str]:
    """Yield the path of each NOT NULL field that a value lacks; fields of a struct are required only where the struct is not null.

    Args:
        field: a column of the schema.
        values: of the column, whose type is the field's, apart from NOT NULL.
    """
    return _missing(field, values, field.name)


def _missing(field: pa.Field, values: pa.Array, path: str) -> Iterator[str]:
    import pyarrow.types as is_a

    if not field.nullable and values.null_count:
        yield path
    present = values.drop_null()
    if is_a.is_struct(field.type):
        for index, inner in enumerate(field.type):
            yield from _missing(inner, present.field(index), f"{path}.{inner.name}")
    elif is_a.is_map(field.type):
        # Those of a slice are within the keys and items of the whole.
        first, last = present.offsets[0].as_py(), present.offsets[-1].as_py()
        yield from _missing(field.type.key_field, present.keys[first:last], path)
        yield from _missing(field.type.item_field, present.items[first:last], path)
    elif is_a.is_list(field.type):
        yield from _missing(field.type.value_field, present.flatten(), path)


def _typed(column: pa.Array, field: pa.Field) -> pa.Array:
    import pyarrow as pa

    try:
        if _family(column.type) != _family(field.type):
            raise pa.ArrowInvalid
        typed = column.cast(_nullable(field.type), safe=True)
    except pa.ArrowException:
        raise MisfitColumnError(
            f"column {field.name!r} is of type {sql_type(column.type)} and does not fit {sql_type(field.type)}"
        ) from None
    if field.nullable and typed.type.equals(field.type):
        return typed
    for path in missing_values(field, typed):
        raise MisfitColumnError(f"column {path!r} has nulls and is declared NOT NULL")
    return typed.cast(field.type)


@functools.lru_cache(maxsize=1_000)
def _nullable(arrow: pa.DataType) -> pa.DataType:
    """Return a type without NOT NULL in its fields, which Arrow does not cast nulls to."""
    import pyarrow as pa

    if pa.types.is_struct(arrow):
        return pa.struct([_nullable_field(field) for field in arrow])
    if pa.types.is_map(arrow):
        return pa.map_(_nullable(arrow.key_type), _nullable_field(arrow.item_field))
    return pa.list_(_nullable_field(arrow.value_field)) if pa.types.is_list(arrow) else arrow


def _nullable_field(field: pa.Field) -> pa.Field:
    return field.with_type(_nullable(field.type)).with_nullable(nullable=True)


def _family(arrow: pa.DataType) -> object:
    """Return a value that is equal for types whose values may be cast to each other."""
    import pyarrow.types as is_a

    if is_a.is_dictionary(arrow):
        return _family(arrow.value_type)
    families = (
        ("number", (is_a.is_integer, is_a.is_floating, is_a.is_decimal)),
        ("text", (is_a.is_string, is_a.is_large_string, is_a.is_string_view)),
        ("bytes", (is_a.is_binary, is_a.is_large_binary, is_a.is_binary_view, is_a.is_fixed_size_binary)),
        ("time", (is_a.is_timestamp,)),
        ("date", (is_a.is_date,)),
        ("list", (is_a.is_list, is_a.is_large_list, is_a.is_fixed_size_list)),
    )
    return next((name for name, tests in families if any(test(arrow) for test in tests)), arrow.id)

"""Converts values that are written to state, and rows that are emitted at once, to their declared types."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from tidemark.errors import UserCodeError
from tidemark.graph.operators.keyed_process.descriptors import StateDescriptor
from tidemark.semantics.keyed_process.declarations import StateDeclaration
from tidemark.semantics.user_rows import is_text
from tidemark.spark.columns.typed_batches import MisfitColumnError, typed_by_name
from tidemark.spark.columns.user_values import MisfitError, coerce_values
from tidemark.spark.operators.keyed.python_values import python_values

if TYPE_CHECKING:
    import pyarrow as pa

_OTHER: Final = object()
"""A value that does not fit its type as it is."""

_KINDS: Final[Mapping[str, type]] = {"double": float, "string": str, "large_string": str, "bool": bool, "binary": bytes}
"""By the name of an Arrow type: the type of values that stay as they are."""


def declarations(
    states: Mapping[str, StateDescriptor], types: Mapping[str, tuple[pa.DataType, pa.DataType | None]]
) -> dict[str, StateDeclaration]:
    """Return states with the conversions of their values.

    Args:
        states: as the user declared them, by name.
        types: of the values, and of a map's keys, by name.
    """
    found = {}
    for name, descriptor in states.items():
        value, key = types[name]
        convert_key = None if key is None else key_conversion(key, f"a key of the state {name!r}")
        convert = conversion(value, f"the state {name!r}")
        copy = dict if _is_flat(value) else None
        key_type = None if key is None else _key_type(key)
        found[name] = replace(descriptor.declaration(name), copy=copy, convert=convert, convert_key=convert_key, key_type=key_type)
    return found


def _is_flat(kind: pa.DataType) -> bool:
    """Return whether values are dicts of what cannot be changed."""
    import pyarrow as pa

    return pa.types.is_struct(kind) and not any(pa.types.is_nested(field.type) for field in kind)


def _key_type(kind: pa.DataType) -> type | None:
    """Return the Python type of a map's keys; None for types whose equal values are not one key, and others that are converted."""
    import pyarrow as pa

    return None if pa.types.is_floating(kind) else _plain(kind)[0]


def key_conversion(kind: pa.DataType, what: str) -> Callable[[Any], Any]:
    """Return a function that converts a key of a map, or raises a ``UserCodeError``; ``what`` is given the key."""
    import pyarrow as pa

    convert = conversion(kind, what, none=False)
    return (lambda key: same_key(convert(key))) if pa.types.is_floating(kind) else convert


def same_key(key: object) -> object:
    """Return a key as it is looked up: NaN is one key, as in Spark and Flink, and in Python only if it is one object.

    >>> {same_key(float("nan")), same_key(float("nan"))}
    {nan}
    """
    return math.nan if isinstance(key, float) and math.isnan(key) else key


def conversion(kind: pa.DataType, what: str, *, none: bool = True) -> Callable[[Any], Any]:
    """Return a function that converts a value, or raises a ``UserCodeError``; ``what`` is given the value, ``none`` whether None may be."""
    import pyarrow as pa

    def slow(value: object) -> object:
        if value is None:
            if none:
                return None
            raise UserCodeError(f"{what} is None", fix="leave such entries out")
        try:
            (coerced,) = coerce_values([value], kind)
            (found,) = python_values(pa.array([coerced], kind))
        except (MisfitError, pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            said = str(error) if isinstance(error, MisfitError) else f"{value!r}: {' '.join(str(error).split())}"
            raise UserCodeError(f"{what} is given {said}", fix="give a value of the declared type") from None
        return found

    return _direct(kind, slow) or slow


def _direct(kind: pa.DataType, other: Callable[[Any], Any]) -> Callable[[Any], Any] | None:
    """Return a function that takes values which fit a type as they are, lists and dicts copied, and passes all others to ``other``.

    None for types of which it cannot tell.
    """
    import pyarrow as pa

    plain = _KINDS.get(str(kind))
    if plain is str:
        return lambda value: value if type(value) is str and is_text(value) else other(value)
    if plain is not None:
        return lambda value: value if type(value) is plain else other(value)
    if pa.types.is_signed_integer(kind):
        bound = 1 << (kind.bit_width - 1)
        return lambda value: value if type(value) is int and -bound <= value < bound else other(value)
    if pa.types.is_list(kind):
        return _direct_list(kind, other)
    return _direct_struct(kind, other) if pa.types.is_struct(kind) else None


def _direct_list(kind: pa.DataType, other: Callable[[Any], Any]) -> Callable[[Any], Any] | None:
    item = _within(kind.value_field)
    if item is None:
        return None

    def convert(values: object) -> object:
        if type(values) is not list:
            return other(values)
        found = [item(value) for value in values]
        return other(values) if any(value is _OTHER for value in found) else found

    return convert


def _direct_struct(kind: pa.DataType, other: Callable[[Any], Any]) -> Callable[[Any], Any] | None:
    fields = [(field, direct) for field in kind if (direct := _within(field)) is not None]
    if len(fields) < kind.num_fields:
        return None
    # Values of these types are taken as they are, without a call: it is done for each element.
    plain = [(field.name, *_plain(field.type), direct) for field, direct in fields]
    # A text may be none that can be written.
    plain = [(name, None if taken is str else taken, bound, direct) for name, taken, bound, direct in plain]

    def convert(value: object) -> object:
        if type(value) is not dict or len(value) != len(plain):
            return other(value)
        made = {}
        for name, taken, bound, direct in plain:
            found: Any = value.get(name, _OTHER)
            given = type(found)
            if given is not taken or (bound and not -bound <= found < bound):
                found = direct(found)
                if found is _OTHER:
                    return other(value)
            made[name] = found
        return made

    return convert


def _plain(kind: pa.DataType) -> tuple[type | None, int]:
    """Return the Python type of values that stay as they are, None for none; of integers also the first one that is too large, else 0."""
    import pyarrow as pa

    return (int, 1 << (kind.bit_width - 1)) if pa.types.is_signed_integer(kind) else (_KINDS.get(str(kind)), 0)


def _within(field: pa.Field) -> Callable[[Any], Any] | None:
    """Return the function for values inside of others: ``_OTHER`` for those that do not fit, None where the field may be null."""
    return _direct(field.type, _or_none if field.nullable else _other)


def _other(_: object) -> object:
    return _OTHER


def _or_none(value: object) -> object:
    return None if value is None else _OTHER


def typed_emission(rows: pa.RecordBatch, schema: pa.Schema, name: str) -> pa.RecordBatch:
    """Return rows that the function of a name emitted at once, with the declared columns.

    Raises:
        UserCodeError: they do not fit.
    """
    try:
        return typed_by_name(rows, schema)
    except MisfitColumnError as misfit:
        raise UserCodeError(
            f"{name} emitted a batch whose {misfit}",
            fix="emit a batch with the columns of returns=..., or of its side output, each of its type",
        ) from None

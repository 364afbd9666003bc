"""Converts values that are written to state, and rows that are emitted at once, to their declared types."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from tidemark.errors import UserCodeError
from tidemark.graph.operators.keyed_process.descriptors import StateDescriptor
from tidemark.semantics.keyed_process.declarations import StateDeclaration
from tidemark.spark.columns.typed_batches import MisfitColumnError, typed_by_name
from tidemark.spark.columns.user_values import MisfitError, coerce_values

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
        found[name] = replace(descriptor.declaration(name), convert=convert, convert_key=convert_key)
    return found


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
            (found,) = pa.array([coerced], kind).to_pylist()
        except (MisfitError, pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            said = str(error) if isinstance(error, MisfitError) else f"{value!r}: {' '.join(str(error).split())}"
            raise UserCodeError(f"{what} is given {said}", fix="give a value of the declared type") from None
        return found

    plain, direct = _KINDS.get(str(kind)), _direct(kind)
    if direct is None:
        return slow
    if plain is not None:
        # One call fewer than below.
        return lambda value: value if type(value) is plain else slow(value)

    def fast(value: object) -> object:
        found = direct(value)
        return slow(value) if found is _OTHER else found

    return fast


def _direct(kind: pa.DataType) -> Callable[[Any], Any] | None:  # noqa: C901 - one case per kind of type
    """Return a function that converts values which fit a type as they are, and returns ``_OTHER`` for all others; None for other types.

    Lists and dicts are copied.
    """
    import pyarrow as pa

    plain = _KINDS.get(str(kind))
    if plain is not None:
        return lambda value: value if type(value) is plain else _OTHER
    if pa.types.is_signed_integer(kind):
        bound = 1 << (kind.bit_width - 1)
        return lambda value: value if type(value) is int and -bound <= value < bound else _OTHER
    if pa.types.is_list(kind):
        item = _nullable(kind.value_field)
        if item is None:
            return None

        def listed(values: object) -> object:
            if type(values) is not list:
                return _OTHER
            found = [item(value) for value in values]
            return _OTHER if any(value is _OTHER for value in found) else found

        return listed
    if not pa.types.is_struct(kind):
        return None
    fields = [(field.name, _nullable(field)) for field in kind]
    known = [(name, convert) for name, convert in fields if convert is not None]
    if len({name for name, _ in known}) < len(fields):
        return None

    def struct(value: object) -> object:
        if type(value) is not dict or len(value) != len(known):
            return _OTHER
        made = {}
        for name, convert in known:
            found = made[name] = convert(value.get(name, _OTHER))
            if found is _OTHER:
                return _OTHER
        return made

    return struct


def _nullable(field: pa.Field) -> Callable[[Any], Any] | None:
    """Return the conversion of a field's values, which may be None where the field may be null."""
    direct = _direct(field.type)
    if direct is None or not field.nullable:
        return direct
    return lambda value: None if value is None else direct(value)


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

"""Checks values that user code returns against their declared types: converts them where nothing is lost, rejects them otherwise.

Spark turns a value of another type into null, and Arrow truncates fractions, so both get only checked values. Values come in lists, of
a column or of one value; a list of one Python type is checked as a whole.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, date, datetime, time, timedelta
from decimal import Context, Decimal, Inexact, InvalidOperation
from itertools import chain, islice, repeat
from operator import itemgetter, sub
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import pyarrow as pa

_NONE: Final = type(None)
_MAX_SHOWN: Final = 80
_EPOCH: Final = datetime(1970, 1, 1)  # noqa: DTZ001 - of timestamps without a time zone

_Leaf = tuple[str, frozenset[type], Callable[["pa.DataType", object], object]]

Coercion = Callable[[list[object]], list[object]]
"""Takes values that are not None, returns them converted to their type; the same list if nothing changes."""


class MisfitError(ValueError):
    """A value does not fit its type. ``path`` leads to it: names of columns and fields, from the outermost."""

    def __init__(self, value: object, type_name: str, path: tuple[str, ...] = ()) -> None:
        self.value = value
        self.type_name = type_name
        self.path = path
        super().__init__(value, type_name, path)

    def within(self, name: str) -> MisfitError:
        """Return this error for the value inside a column or field of this name."""
        return MisfitError(self.value, self.type_name, (name, *self.path))

    def __str__(self) -> str:
        """Return a text that follows "returned"."""
        text = " ".join(repr(self.value).split())
        shown = text if len(text) <= _MAX_SHOWN else f"{text[: _MAX_SHOWN - 2]} …"
        kind = "" if self.value is None else f" ({type(self.value).__name__})"
        at = f" as {'.'.join(self.path)!r}" if self.path else ""
        return f"{shown}{kind}{at}, which does not fit {self.type_name}"


def coerce_values(values: list[object], arrow: pa.DataType, *, nullable: bool = True) -> list[object]:
    """Return values that Arrow and Spark take without loss; the same list where nothing has to be converted.

    Whole floats become integers, integers that a float represents exactly become floats, NumPy scalars become Python values.

    Raises:
        MisfitError: a value does not fit.
    """
    if _NONE not in set(map(type, values)):
        return _coercion_of(arrow)(values)
    if not nullable:
        raise MisfitError(None, f"{sql_type(arrow)} NOT NULL")
    present = [value for value in values if value is not None]
    found = _coercion_of(arrow)(present)
    if found is present:
        return values
    following = iter(found)
    return [None if value is None else next(following) for value in values]


def coerce_batch(rows: Sequence[Mapping[str, object]], schema: pa.Schema) -> pa.RecordBatch:
    """Return rows as a batch; columns that a row does not name are null in it.

    Raises:
        MisfitError: a value does not fit its column, or a row names another column instead of one that it lacks.
        ArrowException, TypeError, ValueError, OverflowError: Arrow does not take a value.
    """
    import pyarrow as pa

    columns, are_dicts = [], {dict}.issuperset(map(type, rows))
    for field in schema:
        values = _column(rows, field.name, are_dicts=are_dicts)
        kinds = set(map(type, values))
        if kinds <= _native_kinds(field.type) and (column := _native_array(values, field.type)) is not None:
            columns.append(column)
            continue
        if _NONE in kinds:
            _raise_for_mistyped(rows, field.name, schema.names)
        try:
            columns.append(pa.array(coerce_values(values, field.type, nullable=field.nullable), type=field.type))
        except MisfitError as misfit:
            raise misfit.within(field.name) from None
    return pa.RecordBatch.from_arrays(columns, schema=schema)


@functools.lru_cache(maxsize=1_000)
def _native_kinds(arrow: pa.DataType) -> frozenset[type]:
    """Return the Python types of whose values Arrow itself says whether they fit a type; none of other types."""
    leaf = _leaf_of(arrow)
    return frozenset() if leaf is None else leaf[1]


def _native_array(values: list[Any], arrow: pa.DataType) -> pa.Array | None:
    """Return values of native types as an array; None where one of them does not fit."""
    import pyarrow as pa

    try:
        if pa.types.is_timestamp(arrow) and arrow.unit == "us":
            # Arrow asks each instant for its time zone, which takes several times as long.
            since = map(sub, values, repeat(_EPOCH if arrow.tz is None else _EPOCH.replace(tzinfo=UTC)))
            return pa.array(list(since), pa.duration("us")).view(arrow)
        return pa.array(values, arrow)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        return None


def _column(rows: Sequence[Mapping[str, object]], name: str, *, are_dicts: bool) -> list[object]:
    """Return the value of a name in each row; None in those that do not have it."""
    if are_dicts:
        # Other mappings may make up a value that is asked for so, as Counter and defaultdict do.
        try:
            # Most rows name all columns; this takes half the time.
            return list(map(itemgetter(name), rows))
        except KeyError:
            pass
    return [row.get(name) for row in rows]


def _raise_for_mistyped(rows: Sequence[Mapping[str, object]], name: str, names: Sequence[str]) -> None:
    for row in rows:
        if name not in row and (unknown := [each for each in row if each not in names]):
            raise MisfitError(dict(row), f"the columns {', '.join(names)}: it has {unknown[0]!r}, and no {name!r}")


@functools.lru_cache(maxsize=1_000)
def _coercion_of(arrow: pa.DataType) -> Coercion:
    """Return the function that checks values of a type; types without a Python equivalent are not checked."""
    import pyarrow.types as is_a

    if is_a.is_struct(arrow):
        # Variants and shapes are structs with Spark's metadata.
        return _all if any(field.metadata for field in arrow) else functools.partial(_structs, arrow)
    if is_a.is_map(arrow):
        return functools.partial(_maps, arrow)
    if is_a.is_list(arrow) or is_a.is_large_list(arrow):
        return functools.partial(_lists, arrow)
    leaf = _leaf_of(arrow)
    if leaf is None:
        return _all
    _, kinds, convert = leaf
    return functools.partial(_leaves, arrow, kinds, functools.partial(convert, arrow))


def _leaf_of(arrow: pa.DataType) -> _Leaf | None:
    """Return how values of a type without parts are checked; None of other types."""
    import pyarrow.types as is_a

    return next((leaf for leaf in _LEAVES if getattr(is_a, f"is_{leaf[0]}")(arrow)), None)


def _all(values: list[object]) -> list[object]:
    return values


def _leaves(arrow: pa.DataType, native: frozenset[type], convert: Callable[[object], object], values: list[object]) -> list[object]:
    if native.issuperset(map(type, values)) or _are_exact_decimals(arrow, values):
        if int in native and values and not (_holds(arrow, min(values)) and _holds(arrow, max(values))):  # type: ignore[type-var]
            raise MisfitError(next(value for value in values if not _holds(arrow, value)), sql_type(arrow))
        return values
    found = []
    for value in values:
        # A NumPy scalar's item is its Python value.
        plain = value.item() if type(value).__module__ == "numpy" and getattr(value, "shape", None) == () else value  # type: ignore[attr-defined]
        try:
            found.append(convert(plain))
        except (ValueError, TypeError, OverflowError, InvalidOperation, Inexact):
            raise MisfitError(value, sql_type(arrow)) from None
    return found


def _are_exact_decimals(arrow: pa.DataType, values: list[object]) -> bool:
    """Return whether values are decimals that Arrow takes unchanged; it rejects those that would lose digits."""
    import pyarrow as pa

    if not pa.types.is_decimal(arrow) or not {Decimal}.issuperset(map(type, values)):
        return False
    try:
        return bool(pa.array(values, type=arrow).null_count == 0)
    except pa.ArrowException:
        return False


def _integer(arrow: pa.DataType, value: object) -> object:
    if isinstance(value, bool) or not isinstance(value, (int, float, Decimal)) or value != int(value) or not _holds(arrow, int(value)):
        raise ValueError
    return int(value)


def _holds(arrow: pa.DataType, value: object) -> bool:
    bound: int = 1 << (arrow.bit_width - 1)
    return isinstance(value, int) and -bound <= value < bound


def _floating(arrow: pa.DataType, value: object) -> object:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError
    found = float(value)
    if isinstance(value, int) and (found if arrow.bit_width == 64 else struct.unpack("f", struct.pack("f", found))[0]) != value:
        raise ValueError
    return found


def _boolean(_: pa.DataType, value: object) -> object:
    return _only(value, bool)


def _string(_: pa.DataType, value: object) -> object:
    return value.decode() if isinstance(value, bytes) else str(_only(value, str))


def _binary(_: pa.DataType, value: object) -> object:
    return value.encode() if isinstance(value, str) else bytes(_only(value, (bytes, bytearray, memoryview)))  # type: ignore[call-overload]


def _timestamp(_: pa.DataType, value: object) -> object:
    return _only(value, datetime)


def _date(_: pa.DataType, value: object) -> object:
    if isinstance(value, datetime):
        if value.time() != time():
            raise ValueError
        return value.date()
    return _only(value, date)


def _duration(_: pa.DataType, value: object) -> object:
    return _only(value, timedelta)


def _decimal(arrow: pa.DataType, value: object) -> object:
    if isinstance(value, bool) or not isinstance(value, (int, Decimal)) or not Decimal(value).is_finite():
        raise ValueError
    return Decimal(value).quantize(Decimal(1).scaleb(-arrow.scale), context=_exact(arrow.precision))


@functools.lru_cache(maxsize=100)
def _exact(precision: int) -> Context:
    return Context(prec=precision, traps=[Inexact, InvalidOperation])


def _only(value: object, kinds: type | tuple[type, ...]) -> object:
    if not isinstance(value, kinds):
        raise TypeError
    return value


_LEAVES: Final[tuple[_Leaf, ...]] = (
    ("integer", frozenset({int}), _integer),
    ("floating", frozenset({float}), _floating),
    ("boolean", frozenset({bool}), _boolean),
    ("string", frozenset({str}), _string),
    ("large_string", frozenset({str}), _string),
    ("binary", frozenset({bytes, bytearray}), _binary),
    ("large_binary", frozenset({bytes, bytearray}), _binary),
    ("timestamp", frozenset({datetime}), _timestamp),
    ("date", frozenset({date}), _date),
    ("duration", frozenset({timedelta}), _duration),
    ("decimal", frozenset(), _decimal),
)
"""By Arrow's name of a type: the Python types whose values need no check, and the function that converts others or raises."""


def _lists(arrow: pa.DataType, values: list[object]) -> list[object]:
    lists: list[Sequence[object]] = [value if type(value) is list else _as_list(value, arrow) for value in values]
    items = list(chain.from_iterable(lists))
    found = coerce_values(items, arrow.value_type, nullable=arrow.value_field.nullable)
    same = found is items and all(map(_same, lists, values))
    return values if same else _cut(found, map(len, lists))


def _as_list(value: object, arrow: pa.DataType) -> Sequence[object]:
    if isinstance(value, (list, tuple, set, frozenset)):
        return list(value)
    if type(value).__module__ == "numpy" and len(getattr(value, "shape", ())) > 0:
        return list(value.tolist())  # type: ignore[attr-defined]
    raise MisfitError(value, sql_type(arrow))


def _maps(arrow: pa.DataType, values: list[object]) -> list[object]:
    maps = [value if type(value) is dict else _as_dict(value, arrow) for value in values]
    keys, items = list(chain.from_iterable(maps)), list(chain.from_iterable(each.values() for each in maps))
    found_keys = coerce_values(keys, arrow.key_type, nullable=False)
    found = coerce_values(items, arrow.item_type, nullable=arrow.item_field.nullable)
    if found_keys is keys and found is items and all(map(_same, maps, values)):
        return values
    counts = list(map(len, maps))
    pairs = zip(_cut(found_keys, counts), _cut(found, counts), strict=True)
    return [dict(zip(names, mapped, strict=True)) for names, mapped in pairs]  # type: ignore[call-overload]


def _as_dict(value: object, arrow: pa.DataType) -> dict[object, object]:
    try:
        if isinstance(value, (Mapping, list, tuple)):
            return dict(value)
    except (TypeError, ValueError):
        pass
    raise MisfitError(value, sql_type(arrow))


def _structs(arrow: pa.DataType, values: list[object]) -> list[object]:
    names = [field.name for field in arrow]
    rows = [_as_row(value, names, arrow) for value in values]
    same = all(map(_same, rows, values))
    columns = []
    for field in arrow:
        column = [row.get(field.name) for row in rows]
        try:
            found = coerce_values(column, field.type, nullable=field.nullable)
        except MisfitError as misfit:
            raise misfit.within(field.name) from None
        same = same and found is column
        columns.append(found)
    return values if same else [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]


def _as_row(value: object, names: Sequence[str], arrow: pa.DataType) -> Mapping[str, object]:
    if isinstance(value, Mapping) and value.keys() <= set(names):
        return value
    if isinstance(value, (list, tuple)) and len(value) == len(names):
        return dict(zip(names, value, strict=True))
    raise MisfitError(value, sql_type(arrow))


def _same(one: object, other: object) -> bool:
    return one is other


def _cut(items: Iterable[object], counts: Iterable[int]) -> list[object]:
    following = iter(items)
    return [list(islice(following, count)) for count in counts]


def sql_type(arrow: pa.DataType) -> str:
    """Return a type as messages show it."""
    from pyspark.sql.pandas.types import from_arrow_type

    text = from_arrow_type(arrow, prefer_timestamp_ntz=True).simpleString()
    # The names of fields stay as they are.
    return text if "struct<" in text else text.upper()

"""Values of Arrow as the user's code is given them.

Arrow has a map as a list of pairs; here it is a dict, as in PySpark, wherever Python can look up its keys. Arrow makes dicts itself, too
(``maps_as_pydicts``), but one value at a time, which takes fifty times as long.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from itertools import repeat
from operator import add
from typing import TYPE_CHECKING, Any, Final
from zoneinfo import ZoneInfo

from tidemark.errors import UserCodeError

if TYPE_CHECKING:
    import pyarrow as pa

_SHOWN_BYTES: Final = 80


def python_values(column: pa.Array) -> list[object]:
    """Return the values of a column; Arrow takes several times as long for instants, the times of which it looks up one by one."""
    import pyarrow as pa

    kind = column.type
    if pa.types.is_timestamp(kind) and kind.unit == "us" and kind.tz in (None, "UTC"):
        epoch = datetime(1970, 1, 1, tzinfo=None if kind.tz is None else ZoneInfo("UTC"))
        micros = column.cast(pa.int64())
        try:
            if not column.null_count:
                # In numpy's own loops.
                return list(map(add, repeat(epoch), micros.to_numpy().astype("timedelta64[us]").astype(object).tolist()))
            return [None if value is None else epoch + timedelta(0, 0, value) for value in micros.to_pylist()]
        except (OverflowError, TypeError):
            pass  # it is a year that Python does not have, and the error is to be the usual one
    found: list[object] = column.to_pylist()
    convert = _with_dicts(kind)
    if convert is not None:
        # In place, so that a large map is not there twice.
        for number, value in enumerate(found):
            found[number] = convert(value)
    return found


Conversions = Sequence[tuple[str, Callable[[Any], Any]]]
"""By the names of columns that have maps: what makes dicts of them."""


def python_rows(rows: pa.RecordBatch | pa.Table, conversions: Conversions | None = None) -> list[dict[str, Any]]:
    """Return rows as dicts of the same values as ``python_values`` has, but for instants.

    Args:
        rows: the rows.
        conversions: of their columns, where these are known: for a few rows it takes longer to find them than to read the rows.
    """
    found: list[dict[str, Any]] = rows.to_pylist()
    for name, convert in conversions_of(rows.schema) if conversions is None else conversions:
        for row in found:
            row[name] = convert(row[name])
    return found


def conversions_of(schema: pa.Schema) -> Conversions:
    """Return the conversions of the columns that have maps."""
    return [(field.name, convert) for field in schema if (convert := _with_dicts(field.type)) is not None]


@functools.lru_cache(maxsize=1_000)
def _with_dicts(kind: pa.DataType) -> Callable[[Any], Any] | None:
    """Return the function that makes dicts of the maps in a value of a type; None where there are none."""
    import pyarrow as pa

    if pa.types.is_map(kind):
        item = _with_dicts(kind.item_type)
        if not pa.types.is_nested(kind.key_type):
            return functools.partial(_dict, item)
        # Python cannot look up such keys.
        return None if item is None else functools.partial(_pairs, item)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        item = _with_dicts(kind.value_type)
        return None if item is None else functools.partial(_list, item)
    if pa.types.is_struct(kind):
        fields = [(field.name, convert) for field in kind if (convert := _with_dicts(field.type)) is not None]
        return functools.partial(_with_fields, fields) if fields else None
    return None


def _dict(item: Callable[[Any], Any] | None, pairs: list[tuple[Any, Any]] | None) -> dict[Any, Any] | None:
    if pairs is None:
        return None
    return dict(pairs) if item is None else {key: item(value) for key, value in pairs}


def _pairs(item: Callable[[Any], Any], pairs: list[tuple[Any, Any]] | None) -> list[tuple[Any, Any]] | None:
    return None if pairs is None else [(key, item(value)) for key, value in pairs]


def _list(item: Callable[[Any], Any], values: list[Any] | None) -> list[Any] | None:
    return None if values is None else list(map(item, values))


def _with_fields(fields: list[tuple[str, Callable[[Any], Any]]], value: dict[str, Any] | None) -> dict[str, Any] | None:
    return None if value is None else value | {name: convert(value[name]) for name, convert in fields}


def not_utf8(error: UnicodeDecodeError, *, uid: str | None = None, place: str | None = None) -> UserCodeError:
    """Return the error of a text that Python cannot read; Spark takes the bytes of a text file for text, whatever they are."""
    return UserCodeError(
        f"an element has a text that is not UTF-8: {error.object[:_SHOWN_BYTES]!r}",
        fix="filter such elements first: .filter('is_valid_utf8(value)', rejects_to=tm.OutputTag('no_text')); "
        "or have their bytes replaced: .with_columns(value='make_valid_utf8(value)')",
        uid=uid,
        place=place,
    )

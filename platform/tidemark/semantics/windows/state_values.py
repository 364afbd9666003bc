"""Values of triggers and window functions as JSON text: the allowed types, and their encoding. Never pickle.

JSON has no instants, decimals or bytes; these are written as ``{"$": type, "v": text}``. Every value is restored exactly; one that
would not be is refused when it is written.
"""

from __future__ import annotations

import json
import math
from base64 import b64decode, b64encode
from collections.abc import Callable
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Final

from tidemark.errors import CorruptStoreError, UserCodeError

_TAG: Final = "$"
_VALUE: Final = "v"
_MICROSECOND: Final = timedelta(microseconds=1)

_WRITTEN: Final[dict[type, tuple[str, Callable[[object], object]]]] = {
    datetime: ("timestamp", lambda value: value.isoformat()),  # type: ignore[attr-defined]
    date: ("date", lambda value: value.isoformat()),  # type: ignore[attr-defined]
    timedelta: ("interval", lambda value: value // _MICROSECOND),  # type: ignore[operator]
    Decimal: ("decimal", str),
    bytes: ("binary", lambda value: b64encode(value).decode("ascii")),  # type: ignore[arg-type]
}
_READ: Final[dict[str, Callable[[object], object]]] = {
    "timestamp": lambda text: datetime.fromisoformat(str(text)),
    "date": lambda text: date.fromisoformat(str(text)),
    "interval": lambda number: timedelta(microseconds=int(str(number))),
    "decimal": lambda text: Decimal(str(text)),
    "binary": lambda text: b64decode(str(text)),
    "float": lambda text: float(str(text)),
}


def to_json(value: object, what: str) -> object:
    """Return a value as plain JSON.

    Args:
        value: None, a bool, int, float, str, datetime, date, timedelta, Decimal or bytes; a list, a tuple, or a dict with texts as
            keys, of those.
        what: the owner of the value, for the error.

    Raises:
        UserCodeError: a value of another type, which would not be restored exactly.

    >>> to_json({"rows": [Decimal("1.50")]}, "state")
    {'rows': [{'$': 'decimal', 'v': '1.50'}]}
    """
    kind = type(value)
    if value is None or kind in {bool, int, str}:
        return value
    if isinstance(value, float) and kind is float:
        return value if math.isfinite(value) else {_TAG: "float", _VALUE: str(value)}
    if isinstance(value, list) and kind is list:
        return [to_json(item, what) for item in value]
    # An entry of a map, in a row that a trigger keeps.
    if isinstance(value, tuple) and kind is tuple:
        return {_TAG: "tuple", _VALUE: [to_json(item, what) for item in value]}
    if isinstance(value, dict) and kind is dict and all(type(key) is str for key in value):
        written = {key: to_json(item, what) for key, item in value.items()}
        return {_TAG: "dict", _VALUE: written} if _TAG in value else written
    if kind in _WRITTEN:
        name, write = _WRITTEN[kind]
        return {_TAG: name, _VALUE: write(value)}
    keys = " with keys that are no texts" if kind is dict else ""
    raise UserCodeError(
        f"{what} holds {value!r}, a {kind.__module__}.{kind.__qualname__}{keys}, which JSON cannot restore exactly",
        fix="keep plain values: numbers, texts, dates, decimals, bytes, lists, tuples, and dicts with texts as keys",
    )


def from_json(value: object) -> object:
    """Return the value that ``to_json`` encoded.

    Raises:
        CorruptStoreError: a type that this release does not know.
    """
    if isinstance(value, list):
        return [from_json(item) for item in value]
    if not isinstance(value, dict):
        return value
    if _TAG not in value:
        return {key: from_json(item) for key, item in value.items()}
    name, written = value[_TAG], value.get(_VALUE)
    if name == "dict" and isinstance(written, dict):
        return {key: from_json(item) for key, item in written.items()}
    if name == "tuple" and isinstance(written, list):
        return tuple(from_json(item) for item in written)
    if name not in _READ:
        raise CorruptStoreError(f"stored value of an unknown type {name!r}", fix="restore with the release that wrote it")
    return _READ[name](written)


def dump(value: object) -> str:
    """Return JSON text without spaces; dicts keep the order of their keys."""
    return json.dumps(value, separators=(",", ":"), allow_nan=False)

"""What a user's function is given and returned, as rows; and what it raised, as text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import date, datetime
from decimal import Decimal
from functools import partial
from types import GeneratorType, NoneType
from typing import Any, Final

from tidemark.errors import TidemarkError, UserCodeError
from tidemark.semantics.user_lines import raised_at

Row = Mapping[str, Any]

MAX_ROWS: Final = 1_000_000
"""A call that emits more rows is held for one that never ends."""


_PLAIN: Final = frozenset({int, float, str, bool, bytes, NoneType, datetime, date, Decimal})
"""Types of most values, which cannot be changed."""


def own_row(row: Row) -> dict[str, Any]:
    """Return a copy of a row that a function emitted, which may go on with its dict, and with lists and dicts in it.

    >>> path = [1]
    >>> row = own_row({"path": path})
    >>> path.append(2)
    >>> row
    {'path': [1]}
    """
    for value in row.values():
        if type(value) not in _PLAIN:
            return {name: copied(each) for name, each in row.items()}
    return dict(row)


def copied(value: Any) -> Any:  # noqa: ANN401
    """Return a row or another value with copies of all in it that can be changed.

    >>> element = {"zone": "N", "fares": [2.5]}
    >>> own = copied(element)
    >>> own["fares"].append(9.0)
    >>> element
    {'zone': 'N', 'fares': [2.5]}
    """
    if type(value) in _PLAIN:
        return value
    if isinstance(value, list):
        return [copied(item) for item in value]
    if type(value) is tuple:
        # An entry of a map, which is a list of keys and values.
        return tuple(copied(item) for item in value)
    if isinstance(value, dict):
        return {name: item if type(item) in _PLAIN else copied(item) for name, item in value.items()}
    # Of arrays of numpy, sets and bytes that can be changed.
    copy = getattr(value, "copy", None)
    return copy() if callable(copy) else value


def is_text(value: str) -> bool:
    r"""Return whether a text can be written: half of a surrogate pair, as JSON may have it, cannot.

    >>> is_text("ä"), is_text("\ud83d")
    (True, False)
    """
    if value.isascii():
        return True
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def name_of(function: object) -> str:
    """Return what users call a function, also one that is an object.

    >>> name_of(max)
    'max'
    """
    while isinstance(function, partial):
        function = function.func
    return str(getattr(function, "__name__", type(function).__name__))


def rows_of(returned: object, name: str) -> Iterator[Row]:
    """Yield the rows that a function returned, none for None; copies, since it may go on with the same dict.

    Raises:
        UserCodeError: it returned something else.

    >>> list(rows_of([{"a": 1}], "process"))
    [{'a': 1}]
    """
    for number, row in enumerate(parts_of(returned, name)):
        require_row(row, number, name)
        yield own_row(row)


def parts_of(returned: Any, name: str) -> Iterable[Any]:  # noqa: ANN401 - whatever the function returns
    """Return what a function returned as what can be iterated; none for None. Each part is still to be checked by ``require_row``.

    Raises:
        UserCodeError: it returned something else.
    """
    if returned is None:
        return ()
    if type(returned) is not GeneratorType and (not isinstance(returned, Iterable) or isinstance(returned, Mapping | str | bytes)):
        raise UserCodeError(f"{name} returned {returned!r}, not rows", fix="yield each row as a dict, or return a list of dicts, or None")
    found: Iterable[Any] = returned
    return found


def require_row(row: object, number: int, name: str) -> None:
    """Check a part that a function emitted as the ``number``-th, from 0.

    Raises:
        UserCodeError: it is no row, or one too many.
    """
    if number >= MAX_ROWS:
        raise UserCodeError(
            f"{name} emitted {MAX_ROWS:,} rows in one call, and has not ended",
            fix="have it end; with state, what takes longer can set a timer, and emit more when that fires",
        )
    if type(row) is not dict and not isinstance(row, Mapping):
        raise UserCodeError(f"{name} emitted {row!r} as a row", fix="yield each row as a dict of column names and values")


def one_row(returned: object, name: str) -> Row:
    """Return the one row that a function returned; a copy, as ``rows_of``.

    Raises:
        UserCodeError: it returned something else.
    """
    if not isinstance(returned, Mapping):
        raise UserCodeError(f"{name} returned {returned!r}, not a row", fix="return a dict of column names and values")
    return own_row(returned)


def end_call(returned: object) -> None:
    """End a call that failed, whose generator may wait: what it does at its end is a part of the call, and an error there hides none."""
    if type(returned) is GeneratorType:
        with suppress(Exception):
            returned.close()


def describe_failure(error: BaseException) -> str:
    """Return what a function raised, and the user's line."""
    what = error.what if isinstance(error, TidemarkError) else f"{type(error).__name__}: {error}"
    place = raised_at(error)
    shown = what if place is None else f"{what} (at {place})"
    # It is written as a text, and may show one that cannot be.
    return shown if is_text(shown) else shown.encode(errors="backslashreplace").decode()

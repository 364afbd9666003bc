"""What to write instead, for mistakes in a user's function that Python's own errors do not explain."""

from __future__ import annotations

import difflib
import logging
import re
import traceback
from collections.abc import Iterable, Mapping
from typing import Any, Final

from tidemark.clock import format_ms

logger = logging.getLogger("tidemark")

_OTHER_UNITS: Final = (("seconds", 1e-3), ("microseconds", 1e3), ("nanoseconds", 1e6))
_LONG_AGO: Final = 100_000_000_000
"""1973: tests have times before it, of which none looks like another unit."""
_CALLED: Final = ("timestamp", "current_key", "timer_name")
"""What contexts have as attributes, which Flink's have as methods."""


def fix_of(error: BaseException, line: str, row: Mapping[str, Any] | None) -> str | None:
    """Return what to write instead of a line that raised an error; None where only its author knows.

    Args:
        error: an exception of Python's.
        line: of the function's source, empty where that is not known.
        row: the element, None for a timer.

    >>> element = {"cart": 7}
    >>> try:
    ...     element["kart"]
    ... except KeyError as error:
    ...     fix_of(error, "element['kart']", element)
    "there is no column 'kart'; did you mean 'cart'? The element has: cart"
    """
    if isinstance(error, KeyError) and error.args and row is not None:
        return _column(error.args[0], row) if _is_read_of(error, line, row) else None
    if isinstance(error, AttributeError) and isinstance(error.obj, dict):
        return f"an element is a dict: write element[{error.name!r}]" if row is not None and error.name in row else None
    if isinstance(error, TypeError):
        return _called(str(error), line) or _of_none(str(error), line)
    return None


def fix_of_call(error: BaseException, line: str, row: Mapping[str, Any] | None) -> str:
    """Return what to do about a call that failed: as ``fix_of``, or what helps with any element."""
    return fix_of(error, line, row) or "correct the function, or take such elements aside: on_error=tm.OutputTag('failed')"


def near_name(name: str, known: Iterable[str], *, cutoff: float = 0.7) -> str | None:
    """Return the name that was meant: the same in another spelling, as ``getCurrentKey`` for ``current_key``, or the nearest one.

    >>> near_name("getCurrentKey", ["current_key", "timestamp"]), near_name("timestmp", ["timestamp"]), near_name("x", ["timestamp"])
    ('current_key', 'timestamp', None)
    """
    by_bare = {bare(each): each for each in known}
    wanted = bare(name)
    found = by_bare.get(wanted) or by_bare.get(wanted.removeprefix("get"))
    if found is None:
        near = difflib.get_close_matches(wanted, by_bare, n=1, cutoff=cutoff)
        found = by_bare[near[0]] if near else None
    return found


def bare(name: str) -> str:
    """Return a name without what spellings differ in."""
    return name.lower().replace("_", "")


def warn_of_unit(time: int, now: int) -> bool:
    """Warn of a timer whose time seems to be in another unit than milliseconds, given the time of the call; return whether it is one.

    >>> warn_of_unit(1_736_153_400_000, 1_736_153_300_000)
    False
    """
    for unit, factor in _OTHER_UNITS:
        if now > _LONG_AGO and 0.9 < time / (now * factor) < 1.1:
            logger.warning(
                "a timer is set at %d, which is %s, by a call of %s: times are milliseconds, and this looks like %s",
                time,
                format_ms(time),
                format_ms(now),
                unit,
            )
            return True
    return False


def _is_read_of(error: KeyError, line: str, row: Mapping[str, Any]) -> bool:
    """Return whether a line that raised reads a column of the element; other dicts are the function's own."""
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    read = re.findall(rf"(?<![\w.])(\w+)\[[\"']{re.escape(str(error.args[0]))}[\"']\]", line)
    found = [frame.f_locals.get(name) for frame in frames[-1:] for name in read]
    return any(isinstance(each, dict) and each.keys() == row.keys() for each in found)


def _column(name: object, row: Mapping[str, Any]) -> str | None:
    if not isinstance(name, str) or name in row:
        return None
    near = near_name(name, row)
    meant = f"; did you mean {near!r}?" if near else "."
    return f"there is no column {name!r}{meant} The element has: {', '.join(row)}"


def _called(text: str, line: str) -> str | None:
    if not text.endswith("object is not callable"):
        return None
    name = next((name for name in _CALLED if f".{name}(" in line), None)
    return None if name is None else f"write ctx.{name}, without ()"


def _of_none(text: str, line: str) -> str | None:
    if "'NoneType'" not in text or ".value()" not in line:
        return None
    return "value() is None before the first update(): declare a default, tm.value_state('BIGINT', default=0), or ask whether it is None"

"""Durations as users write them (``"5 minutes"``) and as the engine keeps them: integer milliseconds."""

from __future__ import annotations

import re
from datetime import timedelta

from tidemark.errors import DurationError

_UNITS = {
    "ms": 1,
    "millisecond": 1,
    "s": 1000,
    "sec": 1000,
    "second": 1000,
    "m": 60_000,
    "min": 60_000,
    "minute": 60_000,
    "h": 3_600_000,
    "hour": 3_600_000,
    "d": 86_400_000,
    "day": 86_400_000,
    "w": 604_800_000,
    "week": 604_800_000,
}
_FINE = ((86_400_000, 3_600_000), (3_600_000, 60_000), (10_000, 1000))
"""The finest unit in which ``short_duration`` shows a duration of at least this size: (size, unit)."""

_PART = re.compile(r"\s*([+-]?\d+)\s*([a-zA-Z]+)\s*")
_FIX = "write a whole number and a unit, such as '10 seconds', '5 minutes', '1 hour', '1 day 12 hours'"

Duration = str | timedelta
"""How users give a duration: ``"5 minutes"``, ``"1 day 12 hours"``, or a timedelta. A bare number has no unit and is refused."""


def to_ms(value: Duration, *, what: str, minimum: int = 0, place: str | None = None) -> int:
    """Return a duration in milliseconds.

    Args:
        value: text such as ``"90 seconds"`` or ``"1 hour 30 minutes"``, or a timedelta.
        what: name of the argument, for the error.
        minimum: least allowed value in milliseconds.
        place: file and line of the definition, for the error.

    Raises:
        DurationError: not a duration, a number without a unit, a fraction of a millisecond, or less than the minimum.

    >>> to_ms("1 hour 30 minutes", what="size")
    5400000
    """
    milliseconds = _parse(value, what, place)
    if milliseconds < minimum:
        least = "positive" if minimum == 1 else f"at least {format_duration(minimum)}"
        raise DurationError(f"{what}={value!r} must be {least}", fix=_FIX, place=place)
    if milliseconds > 2**53:
        raise DurationError(f"{what}={value!r} is beyond what a clock can count", fix=_FIX, place=place)
    return milliseconds


def _parse(value: object, what: str, place: str | None) -> int:
    if isinstance(value, timedelta):
        milliseconds, rest = divmod(value, timedelta(milliseconds=1))
        if rest:
            raise DurationError(f"{what}={value!r} is finer than a millisecond", fix=_FIX, place=place)
        return milliseconds
    if isinstance(value, int | float) and not isinstance(value, bool):
        # Seconds in some tools, milliseconds in others (Flink, Kafka): either reading would be silently wrong for half of the users.
        fix = f"say which: {what}='{value} seconds' or '{value} ms'; '1 hour' and timedelta(hours=1) are durations, too"
        raise DurationError(f"{what}={value!r} has no unit", fix=fix if isinstance(value, int) else _FIX, place=place)
    if not isinstance(value, str):
        raise DurationError(f"{what}={value!r} is not a duration", fix=_FIX, place=place)
    total, position = 0, 0
    while position < len(value):
        part = _PART.match(value, position)
        unit = part and part[2].lower()
        factor = _UNITS.get(unit or "") or _UNITS.get((unit or "").removesuffix("s"))
        if part is None or factor is None:
            raise DurationError(f"{what}={value!r} is not a duration", fix=_FIX, place=place)
        total += int(part[1]) * factor
        position = part.end()
    if not value.strip():
        raise DurationError(f"{what}={value!r} is empty", fix=_FIX, place=place)
    return total


def short_duration(milliseconds: int) -> str:
    """Return a measured duration for display: in its two greatest units, rounded down. JSON and metrics have exact values.

    >>> [short_duration(ms) for ms in (59_313_999_609, 3_599_000, 61_500, 12_345, 2_345, 0)]
    ['686d 12h', '59m 59s', '1m 1s', '12s', '2s 345ms', '0ms']
    """
    size = abs(milliseconds)
    step = next((fine for coarse, fine in _FINE if size >= coarse), 1)
    return format_duration((-1 if milliseconds < 0 else 1) * (size // step * step))


def format_duration(milliseconds: int) -> str:
    """Return a duration exactly, as users write it; ``short_duration`` shows measured ones.

    >>> format_duration(5_400_000)
    '1h 30m'
    """
    if milliseconds < 0:
        return "-" + format_duration(-milliseconds)
    parts = []
    rest = milliseconds
    for unit, size in (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000), ("ms", 1)):
        count, rest = divmod(rest, size)
        if count:
            parts.append(f"{count}{unit}")
    return " ".join(parts) or "0ms"

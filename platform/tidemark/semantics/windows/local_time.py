"""Local time of a zone as an axis for windows, in both directions.

Clocks are set back, so local times come twice, or forward, so some never come. Both directions here only go forward:

- ``reading(t)`` is the greatest local time that the zone's clocks have shown up to the instant ``t``. While an hour is repeated it stays
  just before the end of that hour.
- ``first_instant(x)`` is the first instant at which the clocks show the local time ``x`` or a later one. A time that is skipped has the
  instant of the change, and of a time that comes twice the first one counts.

They fit together: ``first_instant(x) <= t`` exactly if ``x <= reading(t)``. So a window of local times ``[a, b)`` has the elements whose
reading is in it, and as instants it is ``[first_instant(a), first_instant(b))``. Local times are milliseconds since 1970-01-01 00:00 of the
zone's clocks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache, lru_cache
from typing import Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError, available_timezones

from tidemark.errors import DefinitionError

_HOUR: Final = 3_600_000
_FARTHEST: Final = 16 * _HOUR
"""No zone's clocks differ more from UTC."""

_LONGEST: Final = 25 * _HOUR
"""Clocks are never set back by more: whole days, where a zone moved across the date line."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_FIRST_MS: Final = (datetime(1, 1, 3, tzinfo=UTC) - _EPOCH) // timedelta(milliseconds=1)
_LAST_MS: Final = (datetime(9999, 12, 29, tzinfo=UTC) - _EPOCH) // timedelta(milliseconds=1)
"""Before and after these, a zone's offset counts as that of the bound: Python's dates end there."""


@dataclass(frozen=True)
class LocalClock:
    """The clocks of a zone; ``offset`` gives the milliseconds that they are ahead of UTC at an instant.

    >>> clock = local_clock("Europe/Berlin")
    >>> day = [clock.first_instant(day * 86_400_000) for day in (20387, 20388)]
    >>> (day[1] - day[0]) // 3_600_000
    25
    """

    offset: Callable[[int], int]

    def reading(self, timestamp: int) -> int:
        """Return the greatest local time that the clocks have shown up to an instant."""
        before, now = self.offset(timestamp - _LONGEST), self.offset(timestamp)
        if before <= now:
            return timestamp + now
        change = self._first(timestamp - _LONGEST, timestamp, lambda at: self.offset(at) == now)
        return max(timestamp + now, change - 1 + before)

    def first_instant(self, local: int) -> int:
        """Return the first instant at which the clocks show a local time, or a later one."""
        low, high = local - _FARTHEST, local + _FARTHEST
        offset = self.offset(high)
        if self.offset(low - _LONGEST) == offset:
            return local - offset
        return self._first(low, high, lambda at: self.reading(at) >= local)

    @staticmethod
    def _first(low: int, high: int, holds: Callable[[int], bool]) -> int:
        """Return the first instant after ``low`` from which on a condition holds; it holds at ``high``."""
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if holds(middle) else (middle, high)
        return high


@lru_cache(maxsize=1024)
def local_clock(zone: str) -> LocalClock:
    """Return the clocks of a zone, by Python's database of time zones.

    Raises:
        DefinitionError: there is no such zone.
    """
    if not is_zone(zone):
        raise unknown_zone(zone)
    found = ZoneInfo(zone)

    def offset(timestamp: int) -> int:
        moment = _EPOCH + timedelta(milliseconds=min(max(timestamp, _FIRST_MS), _LAST_MS))
        ahead = moment.astimezone(found).utcoffset()
        return 0 if ahead is None else ahead // timedelta(milliseconds=1)

    return LocalClock(offset)


def is_zone(name: str) -> bool:
    """Return whether a name is one of a zone in the IANA database, as Python has it."""
    if name not in zone_names():
        return False
    try:
        ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return False
    return True


@cache
def zone_names() -> frozenset[str]:
    """Return the names of all zones, without those that only stand for the zone of a machine."""
    return frozenset(available_timezones() - {"Factory", "localtime"})


def no_database() -> DefinitionError:
    """Return the error where Python knows no zones at all."""
    return DefinitionError("no time-zone database: neither the system nor Python has one", fix="pip install tzdata")


def unknown_zone(name: object) -> DefinitionError:
    """Return the error for a name that is not one of a zone."""
    if not zone_names():
        return no_database()
    return DefinitionError(
        f"{name!r} is no time zone", fix="give the name of a zone in the IANA database, such as 'Europe/Berlin' or 'Asia/Tokyo'"
    )

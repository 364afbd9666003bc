"""The times of late and of corrected rows of an epoch, as progress lists them: few, and exact enough to find their time partitions."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from tidemark.spark.operators.base.windows import MAX_LISTED_WINDOWS

LATE_TIMES: Final = "late_times"
"""The times, or starts of windows, of late rows, in the observation of an input's rows."""

CORRECTED: Final = "corrected"
"""The times, or starts of windows, of results that come, or are corrected, after their time, in the observation of results."""

_MINUTE: Final = 60_000
_STEPS_MS: Final = (_MINUTE, 15 * _MINUTE, 60 * _MINUTE)


def touched_metric(condition: str, time: str, name: str) -> str:
    """Return the aggregate, as SQL, of the minutes in which rows have their times.

    Args:
        condition: SQL of which rows count.
        time: SQL of their times.
        name: of the aggregate.
    """
    return started_metric(condition, _minute_of(time), name)


def touched_metric_of_times(times: str, name: str) -> str:
    """Return the same aggregate of rows that each have the times of several elements; ``times`` is SQL of an array."""
    return f"collect_union(array_distinct(transform({times}, time -> {_minute_of('time')}))) AS {name}"


def _minute_of(time: str) -> str:
    return f"{time} - pmod({time}, {_MINUTE}L)"


def started_metric(condition: str, start: str, name: str) -> str:
    """Return the aggregate, as SQL, of the starts of windows that rows belong to."""
    return f"collect_set(CASE WHEN {condition} THEN {start} END) AS {name}"


def listed_times(minutes: Iterable[int] | None) -> tuple[int, ...]:
    """Return the minutes that ``touched_metric`` found; if they are too many the quarters or hours that they are in, the newest.

    >>> listed_times([120_000, 60_000]), len(listed_times(range(0, 200 * 60_000, 60_000)))
    ((60000, 120000), 14)
    """
    found: set[int] = set(minutes or ())
    for step in _STEPS_MS:
        found = {time - time % step for time in found}
        if len(found) <= MAX_LISTED_WINDOWS:
            break
    return listed_starts(found)


def listed_starts(starts: Iterable[int] | None) -> tuple[int, ...]:
    """Return the newest starts that ``started_metric`` found, in order."""
    return tuple(sorted(set(starts or ()))[-MAX_LISTED_WINDOWS:])

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
_DAY: Final = 24 * _STEPS_MS[-1]
_FAR: Final = 50_000
"""Of times that are so many steps behind, or more, the next greater step is listed, so that a driver never gets many more of them."""

_INPUT_ENDED: Final = 2**60
"""No time is so far behind, unless the input had ended, of which nothing is near."""


def touched_metric(condition: str, time: str, name: str) -> str:
    """Return the aggregate, as SQL, of the minutes in which rows have their times.

    Args:
        condition: SQL of which rows count.
        time: SQL of their times.
        name: of the aggregate.
    """
    return started_metric(condition, _minute_of(time), name)


def late_metric(late: str, time: str, behind: str, *, step: int | None = None) -> str:
    """Return the aggregate ``LATE_TIMES``, as SQL: of late rows the minutes, or the starts of windows; long ago only about when.

    Late rows may be of any time, and the driver gets each of their times. Of those that are very many steps behind it gets the minute,
    quarter, hour or day in which they are.

    Args:
        late: SQL of which rows are late.
        time: SQL of their times, or of the starts of their windows.
        behind: SQL of how far they are behind, milliseconds.
        step: the least distance of two starts of windows; None for times.
    """
    return started_metric(late, _listed_sql(time, behind, step), LATE_TIMES)


def late_metric_of_times(times: str, least: str) -> str:
    """Return the same aggregate of rows that each have the times of several late elements.

    Args:
        times: SQL of an array of times.
        least: SQL of ``least_kept``.
    """
    return f"collect_union(array_distinct(transform({times}, time -> {_listed_sql('time', f'({least} - time)', None)}))) AS {LATE_TIMES}"


def corrected_metric_of_times(times: str) -> str:
    """Return the aggregate ``CORRECTED``, as SQL, of rows that each have the times of several elements; ``times`` is SQL of an array."""
    return f"collect_union(array_distinct(transform({times}, time -> {_minute_of('time')}))) AS {CORRECTED}"


def _listed_sql(time: str, behind: str, step: int | None) -> str:
    least = step or _MINUTE
    steps = [least, *(longer for longer in (*_STEPS_MS, _DAY) if longer > least)]
    floors = [_MINUTE if step is None else 1, *steps[1:]]
    bounds = [*(_FAR * each for each in steps[:-1]), _INPUT_ENDED]
    floor = " ".join(f"WHEN {behind} < {bound}L THEN {floor}L" for bound, floor in zip(bounds, floors, strict=True))
    return f"{time} - pmod({time}, CASE {floor} ELSE {_STEPS_MS[-1]}L END)"


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


def _minute_of(time: str) -> str:
    return f"{time} - pmod({time}, {_MINUTE}L)"

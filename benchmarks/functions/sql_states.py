"""Fares by driver and hour as a state machine in SQL, on Tidemark.

It has no timers: an hour of a driver is out with the driver's first fare of a later one, so the last hour of each driver stays open.
A fare of an earlier hour than the driver's newest is late.
"""

from __future__ import annotations

from typing import Final

import tidemark as tm
from benchmarks.data.fares import HOUR_MS

_HOUR: Final = f"unix_millis(ts) div {HOUR_MS}L"
_EACH: Final = "CASE WHEN {hour} < hour THEN {so_far} WHEN {hour} = hour THEN {so_far} + {more} ELSE {more} END"


def hourly_fares(fares: tm.Stream) -> tuple[tm.Stream, tm.Stream]:
    """Return the hours that are over, and the late fares."""
    late = tm.OutputTag("late_fares")
    hours = fares.key_by("driver").process(
        tm.sql_state(
            {
                "hour": (f"greatest(hour, {_HOUR})", "BIGINT"),
                "total": (_EACH.format(hour=_HOUR, so_far="total", more="fare"), "DOUBLE"),
                "n": (_EACH.format(hour=_HOUR, so_far="n", more="1L"), "BIGINT"),
            },
            emit_when=f"{_HOUR} <> hour",
            returns={
                "driver": "driver",
                "ts": "ts",
                "fare": "fare",
                "in_time": f"{_HOUR} > hour",
                "window_start": f"timestamp_millis(hour * {HOUR_MS}L)",
                "window_end": f"timestamp_millis((hour + 1) * {HOUR_MS}L)",
                "total": "total",
                "n": "n",
            },
        )
    )
    over = hours.uid("fares-by-driver").filter("in_time", rejects_to=late)
    return over.select("driver", "window_start", "window_end", "total", "n"), over.side_output(late).select("driver", "ts", "fare")

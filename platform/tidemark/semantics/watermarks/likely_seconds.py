"""Finds event times that are probably in seconds, where milliseconds are meant. Pure."""

from __future__ import annotations

from typing import Final

from tidemark.clock import format_ms

_YEAR_1980: Final = 315_532_800_000
_YEAR_2000: Final = 946_684_800_000
_DAY_MS: Final = 86_400_000


def seconds_warning(source: str, watermark: int | None, now: int) -> str:
    """Return a warning if a source's event times are before 1980, and taken as seconds they are from 2000 until now; else nothing.

    They are not converted: an event time may really be so old.

    Args:
        source: its name, as it is shown.
        watermark: its watermark, milliseconds; it is behind the newest event time by the bound on out-of-orderness.
        now: processing time, milliseconds.
    """
    if watermark is None or watermark >= _YEAR_1980 or not _YEAR_2000 <= 1000 * watermark <= now + _DAY_MS:
        return ""
    meant = f"are about {format_ms(watermark)}, and would be {format_ms(1000 * watermark)} if their column were in seconds"
    fix = 'multiply it by 1000 in `timestamp`, such as timestamp="t * 1000"'
    return f"event times of source {source!r} {meant}: a BIGINT is read as milliseconds. Fix: {fix}"

"""The only place that reads the wall clock or sleeps; elsewhere time is an argument."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    """Processing time and waiting, replaceable in tests (``tidemark.testing.ManualClock``)."""

    def now_ms(self) -> int:
        """Return milliseconds since 1970-01-01 UTC."""
        ...

    def monotonic(self) -> float:
        """Return seconds that never go back, for measuring durations."""
        ...

    def sleep(self, seconds: float) -> None:
        """Wait for so many seconds."""
        ...


class SystemClock:
    """The machine's clock."""

    def now_ms(self) -> int:
        """Return milliseconds since 1970-01-01 UTC."""
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        """Return seconds that never go back, for measuring durations."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Wait for so many seconds."""
        time.sleep(seconds)


SYSTEM_CLOCK: Clock = SystemClock()


def format_ms(milliseconds: int | None) -> str:
    """Return an instant as ISO 8601 in UTC, ``-`` for none, ``end of time`` past the calendar.

    >>> format_ms(0)
    '1970-01-01T00:00:00.000Z'
    """
    if milliseconds is None:
        return "-"
    if milliseconds > 253_402_300_799_999:
        return "end of time"
    if milliseconds < -62_135_596_800_000:
        return "beginning of time"
    seconds, millis = divmod(milliseconds, 1000)
    stamp = datetime.fromtimestamp(0, UTC).timestamp() + seconds
    return f"{datetime.fromtimestamp(stamp, UTC):%Y-%m-%dT%H:%M:%S}.{millis:03d}Z"

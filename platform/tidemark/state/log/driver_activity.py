"""What a driver is doing, reported by its working threads to the one that writes the heartbeat."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tidemark.clock import SYSTEM_CLOCK, Clock


class DriverActivity:
    """Since when an epoch is running, and when Spark last polled for input; times are milliseconds, None for never.

    Each is set in one step, so readers in other threads need no lock.

    Args:
        clock: measures how long an epoch runs, unaffected by changes of the time of day.
    """

    def __init__(self, clock: Clock = SYSTEM_CLOCK) -> None:
        self._clock = clock
        self._busy_from: float | None = None
        self.busy_since: int | None = None
        self.polled_at: int | None = None

    @property
    def busy_ms(self) -> int | None:
        """How long the current epoch has been running, None between epochs."""
        begun = self._busy_from
        return None if begun is None else round((self._clock.monotonic() - begun) * 1000)

    @contextmanager
    def epoch(self, now_ms: int) -> Iterator[None]:
        """Report a running epoch while the block runs; its input is known, so Spark has polled."""
        self._busy_from = self._clock.monotonic()
        self.busy_since = self.polled_at = now_ms
        try:
            yield
        finally:
            self._busy_from = self.busy_since = None

    def polled(self, now_ms: int) -> None:
        """Report that Spark has polled for input and found none, or waits for its next trigger."""
        self.polled_at = now_ms

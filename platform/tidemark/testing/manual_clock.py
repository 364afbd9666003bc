"""A manual clock: processing time as a test sets it."""

from __future__ import annotations

import threading


class ManualClock:
    """Processing time set by hand; a ``tidemark.clock.Clock``. Safe to read from other threads.

    Args:
        now_ms: the initial time, milliseconds since 1970-01-01 UTC.

    >>> clock = ManualClock(1_000)
    >>> clock.advance(500)
    >>> clock.now_ms(), clock.monotonic()
    (1500, 0.5)
    """

    def __init__(self, now_ms: int = 0) -> None:
        self._lock = threading.Lock()
        self._now = now_ms
        self._passed = 0

    def now_ms(self) -> int:
        """Return milliseconds since 1970-01-01 UTC."""
        with self._lock:
            return self._now

    def monotonic(self) -> float:
        """Return the seconds that passed by ``advance`` and ``sleep``; ``set`` does not count, since it may go back."""
        with self._lock:
            return self._passed / 1000

    def sleep(self, seconds: float) -> None:
        """Advance the clock without waiting; fractions of a millisecond are dropped."""
        self.advance(int(seconds * 1000))

    def advance(self, milliseconds: int) -> None:
        """Advance the clock.

        Raises:
            ValueError: the time is negative.
        """
        if milliseconds < 0:
            raise ValueError(f"advance({milliseconds}) would turn the clock back; set() corrects a wrong clock")
        with self._lock:
            self._now += milliseconds
            self._passed += milliseconds

    def set(self, now_ms: int) -> None:
        """Set the clock to a time, also to an earlier one, as happens to real clocks."""
        with self._lock:
            self._now = now_ms

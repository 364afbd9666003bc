"""A clock that stands still until it is told to go on: processing time as a test wants it."""

from __future__ import annotations

import threading


class ManualClock:
    """Processing time set by hand; a ``tidemark.clock.Clock``. Safe to read from other threads.

    Args:
        now_ms: where it stands at first, milliseconds since 1970-01-01 UTC.

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
        """Return the seconds that ``advance`` and ``sleep`` let pass; ``set`` does not count, since it may go back."""
        with self._lock:
            return self._passed / 1000

    def sleep(self, seconds: float) -> None:
        """Let so much time pass at once, without waiting; fractions of a millisecond are dropped."""
        self.advance(int(seconds * 1000))

    def advance(self, milliseconds: int) -> None:
        """Let time pass.

        Raises:
            ValueError: the time is negative.
        """
        if milliseconds < 0:
            raise ValueError(f"advance({milliseconds}) would let time pass backwards; a clock that was wrong is put right with set()")
        with self._lock:
            self._now += milliseconds
            self._passed += milliseconds

    def set(self, now_ms: int) -> None:
        """Put the clock to a time, also to an earlier one, as happens to real clocks."""
        with self._lock:
            self._now = now_ms

"""The times of a process function's operator in one epoch, and of its calls."""

from __future__ import annotations

from dataclasses import dataclass

from tidemark.semantics.windows.windows import TimeDomain


@dataclass(frozen=True)
class EpochTimes:
    """The times of an operator in an epoch, milliseconds.

    ``before`` and ``watermark`` are W(n-1) and W(n), ``bound`` is the greatest out-of-orderness bound of its sources, ``processing_time``
    is PT(n).

    >>> times = EpochTimes(before=0, watermark=100, bound=10, processing_time=5)
    >>> [times.watermark_at(time) for time in (5, 50, 200)]
    [0, 39, 100]
    """

    before: int
    watermark: int
    bound: int
    processing_time: int

    def watermark_at(self, time: int) -> int:
        """Return the watermark at an element of a time: it goes on with the elements, from W(n-1) to W(n)."""
        found = time - self.bound - 1
        # This is called for each element, and built-in functions take longer.
        found = found if found < self.watermark else self.watermark  # noqa: FURB136
        return found if found > self.before else self.before  # noqa: FURB136


@dataclass
class Now:
    """The times at a call: the watermark, the epoch's processing time, and the time of the element or timer."""

    watermark: int
    processing_time: int
    timestamp: int = 0

    def of(self, domain: TimeDomain) -> int:
        """Return the time of a domain."""
        return self.watermark if domain == "event" else self.processing_time

"""The times of an operator in one epoch: its watermarks before and after it, in the domain of its windows, and processing time."""

from __future__ import annotations

from dataclasses import dataclass

from tidemark.semantics.watermarks.watermark_strategy import MAX_WATERMARK, MIN_WATERMARK
from tidemark.semantics.windows.windows import TimeDomain


@dataclass(frozen=True)
class OperatorClock:
    """The times of an operator in epoch ``epoch``, milliseconds.

    ``before`` is its watermark while it processes the epoch's elements, W(n-1); ``watermark`` the one that it fires by, W(n);
    ``processing_time`` is PT(n). In the domain of processing time the watermark is PT - 1. ``operator_clock`` makes it.
    """

    domain: TimeDomain
    epoch: int
    before: int
    watermark: int
    processing_time: int

    @property
    def timers_due_until(self) -> int:
        """The greatest time of processing-time timers that are due: PT, for windows of processing time at the end of input any."""
        if self.domain == "processing" and self.watermark == MAX_WATERMARK:
            return MAX_WATERMARK
        return self.processing_time

    def element_time(self, event_time: int) -> int:
        """Return an element's time in the domain of the windows."""
        return event_time if self.domain == "event" else self.processing_time


def operator_clock(
    domain: TimeDomain, *, epoch: int, before: int, watermark: int, processing_time: int, previous_processing_time: int | None
) -> OperatorClock:
    """Return the clock of an operator whose windows are of a domain.

    For windows of processing time the watermark is PT - 1, so that nothing is late and a window is due when PT reaches its end. From
    event time they take only the end of input, at which everything that waits for a time fires.

    Args:
        domain: of the windows.
        epoch: number of the epoch.
        before: the operator's event-time watermark after the epoch before, W(n-1).
        watermark: and after this one, W(n); the greatest at the end of input.
        processing_time: PT(n).
        previous_processing_time: PT(n-1), None for the first epoch.

    >>> clock = operator_clock("processing", epoch=3, before=7, watermark=8, processing_time=1_000, previous_processing_time=900)
    >>> clock.before, clock.watermark, clock.element_time(5)
    (899, 999, 1000)
    """
    if domain == "event":
        return OperatorClock(domain, epoch, before, watermark, processing_time)
    earlier = MIN_WATERMARK if previous_processing_time is None else previous_processing_time - 1
    return OperatorClock(
        domain,
        epoch,
        before=MAX_WATERMARK if before == MAX_WATERMARK else earlier,
        watermark=MAX_WATERMARK if watermark == MAX_WATERMARK else processing_time - 1,
        processing_time=processing_time,
    )

"""Event time and processing time: their units, their range, and which event times are malformed."""

from __future__ import annotations

from typing import Final

MIN_EVENT_TIME: Final = -62_135_596_800_000
"""0001-01-01T00:00:00.000Z; earlier instants have no place in the calendar of SQL timestamps."""

MAX_EVENT_TIME: Final = 253_402_300_799_999
"""9999-12-31T23:59:59.999Z, the last instant of that calendar."""

NULL_EVENT_TIME: Final = "event time is null"
OUT_OF_RANGE: Final = "event time is out of range"
TOO_FAR_AHEAD: Final = "event time is more than max_future_skew ahead of processing time"


def named_reason(reason: str, timestamp: str | None) -> str:
    """Return one of the three reasons with the column or expression of the event time, unchanged if it has no name.

    >>> named_reason(NULL_EVENT_TIME, "pickup_at")
    "event time 'pickup_at' is null"
    """
    return reason if timestamp is None else f"event time '{timestamp}'{reason.removeprefix('event time')}"


def malformed_reason(event_time: int | None, processing_time: int, max_future_skew_ms: int | None) -> str | None:
    """Return why an element's event time is malformed, None for a valid one.

    The three reasons are constants of this module and stable: they are written to malformed outputs. An element exactly
    ``max_future_skew_ms`` ahead is good.

    Args:
        event_time: milliseconds since 1970-01-01 UTC, None if the record has none.
        processing_time: of the epoch that reads the element.
        max_future_skew_ms: how far ahead of processing time an event time may be; None turns the guard off.

    >>> malformed_reason(2_001, processing_time=1_000, max_future_skew_ms=1_000)
    'event time is more than max_future_skew ahead of processing time'
    """
    if event_time is None:
        return NULL_EVENT_TIME
    if not MIN_EVENT_TIME <= event_time <= MAX_EVENT_TIME:
        return OUT_OF_RANGE
    if max_future_skew_ms is not None and event_time > processing_time + max_future_skew_ms:
        return TOO_FAR_AHEAD
    return None


def epoch_processing_time(previous: int | None, now: int) -> int:
    """Return the processing time of an epoch, fixed when the epoch is first planned: the clock's, but never before the last epoch's.

    Args:
        previous: processing time of the epoch before, None for the first.
        now: the clock's time, milliseconds.

    >>> epoch_processing_time(1_000, now=900)
    1000
    """
    return now if previous is None else max(previous, now)


def floor_to_millis(microseconds: int) -> int:
    """Return an instant in milliseconds: finer input is floored, towards the past before 1970 too.

    >>> floor_to_millis(-1)
    -1
    """
    return microseconds // 1000

"""Watermarks and event times that are instants, as opposed to the beginning and the end of time."""

from __future__ import annotations

from tidemark.semantics import MAX_WATERMARK, MIN_WATERMARK
from tidemark.state import EpochProgress, SourceProgress


def instant_or_none(time: int | None) -> int | None:
    """Return a watermark that is an instant; None before the first and at the end of input.

    >>> instant_or_none(1_000)
    1000
    >>> instant_or_none(2**63 - 1) is None
    True
    """
    return None if time is None or time <= MIN_WATERMARK or time >= MAX_WATERMARK else time


def newest_event(source: SourceProgress) -> int | None:
    """Return the latest event time that a source has read."""
    return max((split.max_event_time for split in source.splits.values() if split.max_event_time is not None), default=None)


def newest_event_of_all(progress: EpochProgress) -> int | None:
    """Return the latest event time that any source has read."""
    return max((time for source in progress.sources.values() if (time := newest_event(source)) is not None), default=None)

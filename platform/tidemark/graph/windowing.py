"""Window assigners as users declare them."""

from __future__ import annotations

from tidemark.durations import to_ms
from tidemark.graph.places import placed, user_place
from tidemark.graph.strategies import Duration
from tidemark.semantics.assigners import Tumbling


def tumbling(size: Duration, *, offset: Duration = 0) -> Tumbling:
    """Return windows of one size, side by side, aligned to 1970-01-01 UTC plus the offset.

    Args:
        size: length of a window, more than 0.
        offset: shifts all windows; less than ``size`` either way. ``tumbling("1 day", offset="-8 hours")`` are days in UTC+8.

    Raises:
        DurationError: a duration cannot be read or is out of range.

    >>> tumbling("1 hour").size_ms
    3600000
    """
    place = user_place()
    with placed(place):
        return Tumbling(
            to_ms(size, what="size", minimum=1, place=place),
            to_ms(offset, what="offset", minimum=-(2**53), place=place),
        )

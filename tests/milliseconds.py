"""Durations that a test works out or draws, as milliseconds."""

from __future__ import annotations

from datetime import timedelta


def ms(count: int) -> timedelta:
    """Return so many milliseconds as a duration; a bare number is none."""
    return timedelta(milliseconds=count)

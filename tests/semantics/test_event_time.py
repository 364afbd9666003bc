from __future__ import annotations

from datetime import UTC, datetime

import pytest

from tidemark.semantics.watermarks.event_time import (
    MAX_EVENT_TIME,
    MIN_EVENT_TIME,
    NULL_EVENT_TIME,
    OUT_OF_RANGE,
    TOO_FAR_AHEAD,
    epoch_processing_time,
    floor_to_millis,
    malformed_reason,
)
from tidemark.semantics.watermarks.watermarks import DEFAULT_FUTURE_SKEW_MS

DAY = 86_400_000


def test_range_is_the_calendar_of_sql_timestamps() -> None:
    assert datetime.min.replace(tzinfo=UTC).timestamp() * 1000 == MIN_EVENT_TIME
    assert datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC).timestamp() * 1000 + 999 == MAX_EVENT_TIME


@pytest.mark.parametrize(
    ("event_time", "reason"),
    [
        (None, NULL_EVENT_TIME),
        (MIN_EVENT_TIME, None),
        (MIN_EVENT_TIME - 1, OUT_OF_RANGE),
        (MAX_EVENT_TIME + 1, OUT_OF_RANGE),
        (-(2**63), OUT_OF_RANGE),
        (2**63 - 1, OUT_OF_RANGE),
        (0, None),
        (-1, None),
        (1_000 + DAY, None),
        (1_001 + DAY, TOO_FAR_AHEAD),
    ],
)
def test_reasons_and_their_edges(event_time: int | None, reason: str | None) -> None:
    assert malformed_reason(event_time, 1_000, DAY) == reason


def test_guard_against_the_future_can_be_off_but_the_range_stays() -> None:
    assert malformed_reason(MAX_EVENT_TIME, 0, None) is None
    assert malformed_reason(MAX_EVENT_TIME + 1, 0, None) == OUT_OF_RANGE


def test_no_skew_allows_the_present_only() -> None:
    assert malformed_reason(5, 5, 0) is None
    assert malformed_reason(6, 5, 0) == TOO_FAR_AHEAD


def test_default_skew_is_a_day() -> None:
    assert DEFAULT_FUTURE_SKEW_MS == DAY


def test_reasons_are_stable_because_they_are_written_to_outputs() -> None:
    assert (NULL_EVENT_TIME, OUT_OF_RANGE, TOO_FAR_AHEAD) == (
        "event time is null",
        "event time is out of range",
        "event time is more than max_future_skew ahead of processing time",
    )


@pytest.mark.parametrize(("previous", "now", "expected"), [(None, -5, -5), (10, 11, 11), (10, 10, 10), (10, 3, 10)])
def test_processing_time_never_goes_back(previous: int | None, now: int, expected: int) -> None:
    assert epoch_processing_time(previous, now) == expected


@pytest.mark.parametrize(("micros", "millis"), [(0, 0), (999, 0), (1_000, 1), (-1, -1), (-1_000, -1), (-1_001, -2)])
def test_finer_input_is_floored(micros: int, millis: int) -> None:
    assert floor_to_millis(micros) == millis

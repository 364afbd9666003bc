"""Times of elements that are given in the program: what is no time is refused, with its column, its value and what to give."""

from __future__ import annotations

from datetime import UTC, date, datetime

import pytest

import tidemark as tm
from tidemark.errors import DefinitionError


@pytest.mark.parametrize(
    ("type_", "value", "fix"),
    [
        ("TIMESTAMP", 1735689600000, "datetime.fromtimestamp(ms / 1000, UTC)"),
        ("TIMESTAMP", "2025-01-01", "tzinfo=UTC"),
        ("TIMESTAMP", date(2025, 1, 1), "tzinfo=UTC"),
        ("TIMESTAMP_LTZ", 1735689600000, "tzinfo=UTC"),
        ("TIMESTAMP_NTZ", 5, "without a zone"),
        ("DATE", 5, "date(2025, 1, 1)"),
        ("DATE", "2025-01-01", "date(2025, 1, 1)"),
    ],
)
def test_what_is_no_time_is_refused(type_: str, value: object, fix: str) -> None:
    with pytest.raises(DefinitionError) as raised:
        tm.from_elements(epochs=[[(1, None)], [(1, value)]], schema=f"zone INT, seen {type_}")
    assert raised.value.what == f"from_elements(...): {value!r} of the column 'seen' is no {type_}"
    assert fix in raised.value.fix


def test_times_are_taken() -> None:
    row = (datetime(2025, 1, 1, tzinfo=UTC), datetime.fromisoformat("2025-01-01"), date(2025, 1, 1))
    given = tm.from_elements([row, (None, None, None)], schema="a TIMESTAMP, b TIMESTAMP_NTZ, c DATE")
    assert given.batches == ((row, (None, None, None)),)

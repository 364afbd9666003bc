"""Columns of results that Arrow takes as they are hold what Arrow makes of each value alone; others are refused as before."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemark.spark.columns.user_values import MisfitError, coerce_batch

ZONES = [UTC, ZoneInfo("UTC"), ZoneInfo("America/New_York"), ZoneInfo("Asia/Kathmandu"), timezone(timedelta(hours=3, seconds=7))]
INSTANTS = st.datetimes(datetime(2, 1, 1), datetime(9998, 12, 31), timezones=st.sampled_from(ZONES))  # noqa: DTZ001 - the zone is drawn
UTC_TIME, NAIVE_TIME = pa.timestamp("us", "UTC"), pa.timestamp("us")


@given(st.lists(INSTANTS | st.none() | st.datetimes(), max_size=4), st.sampled_from([UTC_TIME, NAIVE_TIME]))
def test_instants(values: list[datetime | None], kind: pa.DataType) -> None:
    made = coerce_batch([{"v": value} for value in values], pa.schema([("v", kind)]))
    assert made.column(0).equals(pa.array(values, kind))


def test_an_hour_that_comes_twice() -> None:
    hours = [datetime(2024, 11, 3, 1, 30, tzinfo=ZONES[2], fold=fold) for fold in (0, 1)]
    (column,) = coerce_batch([{"v": hour} for hour in hours], pa.schema([("v", UTC_TIME)])).columns
    assert column.to_pylist()[1] - column.to_pylist()[0] == timedelta(hours=1)


@pytest.mark.parametrize(
    ("kind", "values", "said"),
    [
        (pa.int32(), [1, 2**31], "2147483648 (int) as 'v', which does not fit INT"),
        (pa.int64(), [1, 2**63], "9223372036854775808 (int) as 'v', which does not fit BIGINT"),
        (pa.int64(), [1, True], "True (bool) as 'v', which does not fit BIGINT"),
        (UTC_TIME, [datetime(2024, 1, 1, tzinfo=UTC), "now"], "'now' (str) as 'v', which does not fit TIMESTAMP"),
        (pa.string(), ["a", 1], "1 (int) as 'v', which does not fit STRING"),
    ],
)
def test_a_value_that_does_not_fit(kind: pa.DataType, values: list[Any], said: str) -> None:
    with pytest.raises(MisfitError) as raised:
        coerce_batch([{"v": value} for value in values], pa.schema([("v", kind)]))
    assert str(raised.value) == said

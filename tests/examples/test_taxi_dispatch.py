"""The dispatcher's job of the example: each function in the harness, and the whole on generated rides."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

import tidemark as tm
from examples.taxi.dispatch import HOUR_MS, MINUTE_MS, UNMATCHED, build_dispatch
from examples.taxi.dispatch_events import AIRPORTS, count_dispatch, limits_at, write_events
from examples.taxi.generator import TripPlan
from examples.taxi.report import same_tips
from tidemark.testing import OperatorHarness

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PLAN = TripPlan(trips_per_day=30_000)
WAVES = 3


def harness_of(output: str) -> OperatorHarness:
    """Return a harness of the operator whose results an output has."""
    node: Any = build_dispatch("events", "warehouse").outputs[output].node
    while not hasattr(node, "function"):
        node = node.input
    return OperatorHarness(tm.Stream(node))


def start(ride: int, at: int, *, driver: int = 7) -> dict[str, object]:
    return {"ride_id": ride, "driver_id": driver, "zone": 132, "event": "start", "at": datetime.fromtimestamp(at / 1000, UTC)}


def fare(ride: int, *, tip: float = 1.0, total: float = 10.0, zone: int = 132, driver: int = 7) -> dict[str, object]:
    return {"ride_id": ride, "driver_id": driver, "zone": zone, "paid_at": None, "tip": tip, "total": total}


def test_rides_meet_their_fares_in_either_order_and_wait_six_hours() -> None:
    harness = harness_of("rides_with_fares")
    harness.process(start(1, 0), at=0, port="first")
    harness.process(start(2, 0), at=0, port="first")
    harness.process(fare(3), at=0, port="second")
    assert harness.advance_watermark(MINUTE_MS) == []
    harness.process(fare(1, total=30.0), at=MINUTE_MS, port="second")
    harness.process(start(3, MINUTE_MS), at=MINUTE_MS, port="first")
    rows = harness.advance_watermark(2 * MINUTE_MS)
    assert {row["ride_id"]: row["total"] for row in rows} == {1: 30.0, 3: 10.0}
    harness.process(fare(4), at=MINUTE_MS, port="second")
    harness.advance_watermark(6 * HOUR_MS)
    assert harness.side_output(UNMATCHED) == [{"ride_id": 2, "lacks": "fare"}]
    harness.end_input()
    assert harness.side_output(UNMATCHED)[1:] == [{"ride_id": 4, "lacks": "ride"}]
    assert harness.state() == harness.timers() == []


def test_a_long_ride_is_reported_once() -> None:
    harness = harness_of("long_rides")
    ends = {1: 119 * MINUTE_MS, 2: 121 * MINUTE_MS, 3: 150 * MINUTE_MS}
    for ride in (1, 2, 3, 4):
        harness.process(start(ride, 0), at=0)
    for ride in (1, 2):
        harness.process({**start(ride, 0), "event": "end"}, at=ends[ride])
    # Between two hours and the bound of the watermark only the end itself tells.
    assert [row["ride_id"] for row in harness.advance_watermark(116 * MINUTE_MS)] == [2]
    assert sorted(str(row["ride_id"]) for row in harness.advance_watermark(2 * HOUR_MS)) == ["3", "4"]
    harness.process({**start(3, 0), "event": "end"}, at=ends[3])
    harness.process({**start(5, 0), "event": "end"}, at=ends[3])
    assert harness.advance_watermark(3 * HOUR_MS) == []
    harness.advance_watermark(27 * HOUR_MS)
    assert harness.state() == harness.timers() == []


def test_tips_of_an_hour_come_when_it_is_over() -> None:
    harness = harness_of("driver_tips")
    for minute, tip in ((10, 1.5), (59, 2.0), (61, 4.0)):
        harness.process(fare(minute, tip=tip), at=minute * MINUTE_MS)
    assert harness.advance_watermark(HOUR_MS - 2) == []
    assert harness.advance_watermark(HOUR_MS - 1) == [{"driver_id": 7, "hour": 0, "tips": 3.5}]
    harness.process(fare(9, tip=8.0), at=MINUTE_MS)
    assert harness.end_input() == [{"driver_id": 7, "hour": HOUR_MS, "tips": 4.0}]
    assert harness.state() == []


def test_limits_change_while_it_runs() -> None:
    harness = harness_of("high_fares")
    for dollars, gone in ((20.0, False), (40.0, False), (None, True)):
        harness.process({"zone": 132, "at": None, "dollars": dollars, "gone": gone}, at=0, port="broadcast")
        harness.process(fare(1, total=30.0), at=0, port="elements")
        harness.process(fare(2, total=30.0, zone=1), at=0, port="elements")
        harness.advance_watermark(0)
    assert [(each.row["ride_id"], each.row["dollars"], each.row["times"]) for each in harness.emitted] == [(1, 20.0, 1)]
    harness.process({"zone": 132, "at": None, "dollars": 5.0, "gone": False}, at=0, port="broadcast")
    harness.process(fare(3), at=0, port="elements")
    assert [(row["ride_id"], row["times"]) for row in harness.advance_watermark(0)] == [(3, 2)]


def test_the_generated_limits_change_and_go() -> None:
    jfk, la_guardia = AIRPORTS
    assert [set(limits_at(wave)) for wave in range(4)] == [{jfk, la_guardia}, {jfk, la_guardia}, {jfk}, {jfk}]
    assert len({limits_at(wave)[jfk] for wave in range(3)}) == 3


@pytest.mark.spark
def test_the_job_makes_of_generated_rides_what_the_generator_says(spark: SparkSession, tmp_path: Path) -> None:
    job = build_dispatch(tmp_path / "events", tmp_path / "tables", store=tmp_path / "store")
    for wave in range(WAVES):
        write_events(tmp_path / "events", wave, plan=PLAN)
        tm.run(job, spark=spark, handle_signals=False)
    tables = {output: DeltaTable(str(tmp_path / "tables" / output)).to_pyarrow_table() for output in job.outputs}
    expected = count_dispatch(WAVES, plan=PLAN)
    found = {output: table.num_rows for output, table in tables.items()}
    assert found["rides_with_fares"] == expected.rides_with_fares > 1_000
    assert found["unmatched"] == expected.unmatched > 5
    assert found["long_rides"] == expected.long_rides > 3
    assert found["high_fares"] == expected.high_fares > 3
    assert found["driver_tips"] == found["driver_tips_by_window"] > 1_000
    assert same_tips(tables["driver_tips"], tables["driver_tips_by_window"])
    high = tables["high_fares"].to_pylist()
    assert all(row["total"] > row["dollars"] for row in high)
    assert len({row["dollars"] for row in high}) > 1
    long = tables["long_rides"]
    assert len(set(long["ride_id"].to_pylist())) == long.num_rows


def test_tips_that_differ_are_seen() -> None:
    at = datetime(2024, 3, 4, tzinfo=UTC)
    function = pa.table({"driver_id": [1, 2], "hour": [at, at], "tips": [1.0, 0.1 + 0.2]})
    window = pa.table({"driver_id": [2, 1], "window_start": [at, at], "tips": [0.3, 1.0]})
    assert same_tips(function, window)
    assert not same_tips(function, window.set_column(2, "tips", [[0.3, 1.01]]))
    assert not same_tips(function, window.slice(1))

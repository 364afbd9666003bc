"""Windows of processing time, and triggers that go by it: the clock alone fires them, and a replay gives what was first there."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import tidemark as tm
from tests.engine.lab import NOW, elements, run_on

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

MINUTE = 60_000
HOUR = 60 * MINUTE
TO_THE_HOUR = HOUR - NOW % HOUR


def rows(folder: Path, name: str = "job") -> list[dict[str, Any]]:
    table = tm.memory_table(f"{folder}/{name}")
    found = [] if table is None else table.to_pylist()
    return sorted(found, key=lambda row: (str(row["window_end"]), row["pane_index"]))


def bounds(row: dict[str, Any]) -> tuple[int, int]:
    return round(row["window_start"].timestamp() * 1000), round(row["window_end"].timestamp() * 1000)


def test_a_tumbling_window_closes_when_the_clock_has_come_to_its_end(spark: SparkSession, tmp_path: Path) -> None:
    # Event times are of no account: these are years apart, and the second is far behind the first.
    source = elements([(NOW,)], [(5,)], schema="t BIGINT")
    panes = source.window_all(tm.tumbling("1 hour", time="processing")).aggregate(n=tm.count()).uid("w")
    first, second, closed = run_on(panes, spark, tmp_path, waits=[TO_THE_HOUR - 1, 1])
    assert [epoch.rows_out for epoch in (first, second, closed)] == [0, 0, 1]
    assert closed.processing_time == NOW + TO_THE_HOUR
    assert closed.operators["w"].watermark == NOW + TO_THE_HOUR - 1
    assert sum(epoch.operators["w"].rows_late for epoch in (first, second, closed)) == 0
    (row,) = rows(tmp_path)
    assert (row["n"], row["pane_timing"], row["pane_index"]) == (2, "ON_TIME", 0)
    assert bounds(row) == (NOW + TO_THE_HOUR - HOUR, NOW + TO_THE_HOUR)


def test_sliding_windows_of_processing_time(spark: SparkSession, tmp_path: Path) -> None:
    source = elements([(1,)], [(2,)], schema="t BIGINT")
    panes = source.window_all(tm.sliding("2 hours", "1 hour", time="processing")).aggregate(n=tm.count()).uid("w")
    seen = run_on(panes, spark, tmp_path, waits=[1, TO_THE_HOUR, HOUR])
    assert [epoch.rows_out for epoch in seen] == [0, 0, 1, 1]
    end = NOW + TO_THE_HOUR
    assert [(row["n"], *bounds(row)) for row in rows(tmp_path)] == [(2, end - 2 * HOUR, end), (2, end - HOUR, end + HOUR)]


def test_steps_of_processing_time_fire_windows_of_event_time(spark: SparkSession, tmp_path: Path) -> None:
    source = elements([(1,)], schema="t BIGINT")
    windowed = source.window_all(tm.tumbling("1 hour")).trigger(tm.continuous_processing_time_trigger("1 minute"))
    to_the_minute = MINUTE - NOW % MINUTE
    seen = run_on(windowed.aggregate(n=tm.count()).uid("w"), spark, tmp_path, waits=[to_the_minute, MINUTE])
    assert [epoch.rows_out for epoch in seen] == [0, 1, 1]
    assert [epoch.operators["w"].panes_early for epoch in seen] == [0, 1, 1]
    assert [(row["n"], row["pane_timing"], row["pane_index"]) for row in rows(tmp_path)] == [(1, "EARLY", 0), (1, "EARLY", 1)]


def test_a_window_of_event_time_fires_once_when_the_clock_comes_to_its_end(spark: SparkSession, tmp_path: Path) -> None:
    source = elements([(NOW,)], schema="t BIGINT")
    windowed = source.window_all(tm.tumbling("1 hour")).trigger(tm.processing_time_trigger())
    seen = run_on(windowed.aggregate(n=tm.count()).uid("w"), spark, tmp_path, waits=[TO_THE_HOUR])
    assert [epoch.rows_out for epoch in seen] == [0, 1]
    assert seen[-1].processing_time == NOW + TO_THE_HOUR
    assert [row["pane_timing"] for row in rows(tmp_path)] == ["EARLY"]

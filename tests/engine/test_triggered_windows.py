"""Windows with triggers that keep partial results: what comes after the end of input, and when an epoch without input is due."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import tidemark as tm
from tests.engine.lab import Lab, elements
from tidemark.graph.operators.window.node import WindowNode
from tidemark.spark.operators.window.runtimes import window_runtime_of
from tidemark.state.log.records import OperatorState, StateFile

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tidemark.semantics.triggers.triggers import Trigger

SCHEMA = "k STRING, t BIGINT, v INT"
HOUR = 3_600_000


@pytest.mark.spark
@pytest.mark.parametrize("trigger", [tm.count_trigger(2), tm.purging_trigger(tm.each_epoch_trigger())])
def test_global_windows_take_nothing_after_the_end_of_input(trigger: Trigger, spark: SparkSession, tmp_path: Path) -> None:
    lab = Lab(spark, tmp_path)
    epochs = [[("a", 1, 1), ("a", 2, 2), ("a", 3, 3)], [("a", 4, 4), ("b", 5, 5)]]

    def streams(count: int) -> dict[str, tm.Stream]:
        windows = elements(*epochs[:count], schema=SCHEMA).key_by("k").window(tm.global_window())
        return {"panes": windows.trigger(trigger).aggregate(n=tm.count()).uid("g")}

    assert lab.run(streams(1)).rows["panes"]
    after = lab.run(streams(2))
    assert after.rows["panes"] == []
    counts = [(epoch.operators["g"].rows_accepted, epoch.operators["g"].rows_late) for epoch in after.epochs if epoch.rows_in]
    assert counts == [(0, 2)]


def test_processing_time_that_fires_windows_of_event_time_is_waited_for_once() -> None:
    stream = elements([], schema=SCHEMA).key_by("k").window(tm.tumbling("1 hour")).allowed_lateness("1 day")
    node = stream.trigger(tm.processing_time_trigger()).aggregate(n=tm.count()).uid("w").node
    assert isinstance(node, WindowNode)
    files = (StateFile("a.parquet", rows=2, bytes=1, min_time=10 * HOUR, max_time=11 * HOUR, epoch=0),)
    for clock, due in (
        (9 * HOUR, 10 * HOUR),
        (10 * HOUR - 1, 10 * HOUR),
        (10 * HOUR, 11 * HOUR),
        (10 * HOUR + 1, 11 * HOUR),
        (11 * HOUR, None),
    ):
        state = OperatorState({}, files, watermark=9 * HOUR, counters={"processing_time": clock})
        assert window_runtime_of(node).next_processing_time(state) == due


def test_steps_of_the_clock_are_not_waited_for_once_windows_are_due() -> None:
    stream = elements([], schema=SCHEMA).key_by("k").window(tm.tumbling("1 hour")).allowed_lateness("1 day")
    early = tm.event_time_trigger(early=tm.continuous_processing_time_trigger("1 minute"))
    node = stream.trigger(early).aggregate(n=tm.count()).uid("w").node
    assert isinstance(node, WindowNode)
    files = (StateFile("a.parquet", rows=2, bytes=1, min_time=HOUR, max_time=2 * HOUR, epoch=0),)
    for watermark, due in ((2 * HOUR - 2, 60_000), (2 * HOUR - 1, None)):
        state = OperatorState({}, files, watermark=watermark, counters={"processing_time": 0})
        assert window_runtime_of(node).next_processing_time(state) == due

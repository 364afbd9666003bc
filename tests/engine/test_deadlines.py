"""Epochs that nothing arrived for: the clock alone ends a silence, and a window with it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import tidemark as tm
from tests.engine.lab import NOW, elements, run_on
from tidemark.graph.operators.window.node import WindowNode
from tidemark.semantics.watermarks.watermarks import SourceState, SplitState
from tidemark.spark.epoch.topology import build_topology
from tidemark.spark.loop.deadlines import next_deadline
from tidemark.spark.operators.aligned.tumbling import TumblingRuntime
from tidemark.spark.operators.registry.runtimes import runtime_of
from tidemark.state.log.progress import EpochProgress
from tidemark.state.log.records import EpochRecord, OperatorState, StateFile

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

MINUTE = 60_000
HOUR = 60 * MINUTE
HOUR_OF_NOW = NOW - NOW % HOUR


def totals(folder: Path, name: str = "job") -> list[object]:
    table = tm.memory_table(f"{folder}/{name}")
    return [] if table is None else sorted(table.column("n").to_pylist())


def counted(source: tm.Stream) -> tm.Stream:
    return source.window_all(tm.tumbling("1 hour")).aggregate(n=tm.count()).uid("w")


def test_ingestion_time_closes_windows_without_input(spark: SparkSession, tmp_path: Path) -> None:
    source = elements([("a",), ("b",)], schema="k STRING", watermarks=tm.ingestion_time())
    read, closed = run_on(counted(source), spark, tmp_path, waits=[HOUR])
    assert (read.rows_in, read.rows_out) == (2, 0)
    assert (closed.rows_in, closed.rows_out) == (0, 1)
    assert closed.processing_time == NOW + HOUR
    assert closed.operators["w"].watermark == NOW + HOUR - 1
    assert totals(tmp_path) == [2]


def test_a_silent_source_goes_on_by_the_clock_where_it_may(spark: SparkSession, tmp_path: Path) -> None:
    def source(*, advance: bool) -> tm.Stream:
        strategy = tm.bounded_out_of_orderness("1 minute", timestamp="t", idle_after="5 minutes", advance_when_idle=advance)
        return elements([(HOUR_OF_NOW,), (NOW,)], schema="t BIGINT", watermarks=strategy)

    read, silent, closed = run_on(counted(source(advance=True)), spark, tmp_path, waits=[5 * MINUTE, HOUR])
    assert read.sources["e"].watermark == NOW - MINUTE - 1
    assert not read.sources["e"].splits[""].idle
    assert silent.sources["e"].splits[""].idle
    assert silent.sources["e"].watermark == NOW + 4 * MINUTE - 1
    assert closed.sources["e"].watermark == NOW + HOUR + 4 * MINUTE - 1
    assert [epoch.rows_out for epoch in (read, silent, closed)] == [0, 0, 1]
    assert totals(tmp_path) == [2]

    read, silent = run_on(counted(source(advance=False)), spark, tmp_path, waits=[5 * MINUTE], name="patient")
    assert silent.sources["e"].splits[""].idle
    assert silent.sources["e"].watermark == read.sources["e"].watermark
    assert totals(tmp_path, "patient") == []


def test_an_idle_input_lets_the_other_go_on(spark: SparkSession, tmp_path: Path) -> None:
    busy = elements([(3 * HOUR,)], [(5 * HOUR,)], [(7 * HOUR,)], [(9 * HOUR,)], schema="t BIGINT", name="busy")
    strategy = tm.bounded_out_of_orderness("0 ms", timestamp="t", idle_after="5 minutes")
    quiet = elements([(HOUR,)], schema="t BIGINT", name="quiet", watermarks=strategy)
    seen = run_on(counted(busy.union(quiet)), spark, tmp_path, waits=[5 * MINUTE - 1, 1, 0])
    assert [epoch.sources["quiet"].splits[""].idle for epoch in seen] == [False, False, True, True]
    assert [epoch.operators["w"].watermark for epoch in seen] == [HOUR - 1, HOUR - 1, 7 * HOUR - 1, 9 * HOUR - 1]
    assert totals(tmp_path) == [1, 1, 1, 1]


def test_a_deadline_is_that_of_a_whole_window(tmp_path: Path) -> None:
    # A state file spans windows that have fired and open ones; the next deadline is the end of an open one, not the next millisecond.
    strategy = tm.bounded_out_of_orderness("0 ms", timestamp="t", idle_after="5 minutes", advance_when_idle=True)
    panes = counted(elements([(0,)], schema="t BIGINT", watermarks=strategy))
    topology = build_topology(tm.Job("job", outputs={"panes": tm.memory(panes, "t")}, store=str(tmp_path)).outputs)
    (node,) = topology.operators
    assert isinstance(node, WindowNode)
    watermark = 2 * HOUR + 17
    silent = SourceState({"": SplitState(watermark, watermark + 1, NOW, idle=True, rows=9)}, watermark, advancing=True)

    def deadline(first: int, last: int, source: SourceState = silent) -> int | None:
        file = StateFile("state/w/1.parquet", 9, 1, first, last, 0)
        state = OperatorState({}, (file,), watermark)
        progress = EpochProgress("job", "l", 0, NOW, 0, 0, 0)
        record = EpochRecord("job", "l", None, 1, 0, NOW, "", progress, sources={"e": source}, operators={"w": state})
        return next_deadline(topology, {id(node): TumblingRuntime(node)}, record)

    to_the_end = 3 * HOUR - 1 - watermark
    assert deadline(0, 5 * HOUR) == NOW + to_the_end
    assert deadline(2 * HOUR, 2 * HOUR) == NOW + to_the_end
    assert deadline(4 * HOUR, 5 * HOUR) == NOW + to_the_end + 2 * HOUR
    assert deadline(0, HOUR) is None
    waking = SourceState({"": SplitState(watermark, watermark + 1, NOW, idle=False, rows=9)}, watermark)
    assert deadline(0, 5 * HOUR, waking) == NOW + 5 * MINUTE


def test_what_waits_for_one_source_does_not_hide_what_waits_for_another(tmp_path: Path) -> None:
    """The window of the source that lags is due before that of the other one, and its source does not go on by the clock."""
    quiet = elements([(0,)], schema="t BIGINT", name="quiet")
    live = elements([(0,)], schema="t BIGINT", name="live", watermarks=tm.ingestion_time())
    panes = {
        name: source.window_all(tm.tumbling("1 hour")).aggregate(n=tm.count()).uid(f"of-{name}")
        for name, source in (("quiet", quiet), ("live", live))
    }
    outputs = {name: tm.memory(stream, f"hidden-{name}") for name, stream in panes.items()}
    topology = build_topology(tm.Job("job", outputs=outputs, store=str(tmp_path)).outputs)
    at = {"quiet": HOUR + 17, "live": 5 * HOUR + 17}
    sources = {name: SourceState({"": SplitState(w, w + 1, NOW, rows=1)}, w) for name, w in at.items()}
    files = {name: StateFile(f"state/{name}/1.parquet", 1, 1, w - 17, w - 17, 0) for name, w in at.items()}
    operators = {f"of-{name}": OperatorState({}, (files[name],), w) for name, w in at.items()}
    progress = EpochProgress("job", "l", 0, NOW, 0, 0, 0)
    record = EpochRecord("job", "l", None, 1, 0, NOW, "", progress, sources=sources, operators=operators)
    assert next_deadline(topology, {id(node): runtime_of(node) for node in topology.operators}, record) == 6 * HOUR

"""Measurements of jobs that run on: what arrived, when results were visible, and what the documents say of it."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from deltalake import write_deltalake

from benchmarks.__main__ import PAGE, RESULTS, beside_earlier, chosen, write_documents
from benchmarks.latency import LatencyWorkload, latency_workloads, measure_latency
from benchmarks.live_fares import DRIVERS, Cells, arriving, cells_of
from benchmarks.records import Latency, Percentiles, Record, Spread, read_records
from benchmarks.report import headline
from benchmarks.verdicts import DisagreementError
from benchmarks.visible import percentiles, visible
from benchmarks.workloads import standard_workloads
from tests.seeds import only_long
from tidemark.errors import DefinitionError

FIRST = 1_704_067_201_000
FAST = Latency(1_000, 50_000, 300, Percentiles(400.2, 900, 950), Percentiles(2_500.6, 4_000, 4_100), Percentiles(2_000, 3_500, 3_600))
LIVE = Record(
    workload="latency-1s",
    engine="tidemark",
    title="fares that arrive",
    rows=1_000,
    runs=1,
    events_per_second=None,
    epoch_ms=None,
    peak_memory_bytes=2**30,
    late_kept=0,
    late_lost=0,
    cells_checked=300_000,
    cores=2,
    driver_memory="6g",
    versions={"python": "3.11.7"},
    latency=FAST,
)
SLOW = replace(LIVE, engine="spark-rocksdb", latency=replace(FAST, event_ms=Percentiles(5_001.2, 9_000, 9_100)))
START = replace(LIVE, workload="start", runs=5, cells_checked=0, latency=None, start_ms=Spread(9_000, 8_500, 12_000))


def test_what_arrives_is_counted_by_window_and_driver(tmp_path: Path) -> None:
    with arriving(tmp_path / "in", rows_per_second=2_000, seconds=1.0, log=tmp_path / "log") as process:
        assert process.wait(60) == 0, (tmp_path / "log").read_text()
    cells = cells_of(tmp_path / "in")
    assert cells.rows.sum() == 2_000
    assert cells.rows.shape[1] == DRIVERS
    ends = cells.first_end_ms + np.arange(len(cells.rows)) * 1_000
    assert cells.first_end_ms % 1_000 == 0
    assert (cells.between(int(ends[0]), int(ends[-1])) == cells.rows[1:]).all()


def table_of(folder: Path, *versions: tuple[int, list[tuple[int, int, int]]]) -> Path:
    """Write a version for each moment, with rows of driver, number of the window, and count."""
    for number, (at_ms, rows) in enumerate(versions):
        columns = {
            "driver": pa.array([driver for driver, _, _ in rows], pa.int64()),
            "window_end": pa.array([(FIRST + 1_000 * window) * 1_000 for _, window, _ in rows], pa.timestamp("us", tz="UTC")),
            "n": pa.array([count for _, _, count in rows], pa.int64()),
        }
        write_deltalake(str(folder), pa.table(columns), mode="append")
        os.utime(folder / "_delta_log" / f"{number:020}.json", (at_ms / 1000, at_ms / 1000))
    return folder


def cells(*rows: tuple[int, int, int]) -> Cells:
    found = np.zeros((4, DRIVERS), dtype=np.int64)
    for driver, window, count in rows:
        found[window, driver] = count
    return Cells(FIRST, found)


ROWS = [(0, 0, 5), (0, 1, 1), (1, 1, 3), (7, 2, 4)]


def test_results_are_visible_when_their_commit_is_there(tmp_path: Path) -> None:
    table = table_of(tmp_path, (FIRST + 500, ROWS[:1]), (FIRST + 1_200, ROWS[1:2]), (FIRST + 3_000, ROWS[2:]))
    found = visible("x", table, cells(*ROWS), after_ms=FIRST, until_ms=FIRST + 2_000)
    # One row waited for 200 ms from its window's end, three for 2 s, four for 1 s; the first window is the warm-up's.
    assert found.window_ms == Percentiles(1_000.0, 2_000.0, 2_000.0)
    assert found.event_ms.most == 2_975.0, "and an event at its window's start almost a second more"
    assert found.compared == 2 * DRIVERS


@pytest.mark.parametrize("wrong", [ROWS[:-1], [*ROWS, ROWS[-1]], [*ROWS[:-1], (7, 2, 5)]], ids=["missing", "twice", "other count"])
def test_results_that_are_not_what_arrived_are_no_measurement(tmp_path: Path, wrong: list[tuple[int, int, int]]) -> None:
    table = table_of(tmp_path, (FIRST + 3_000, wrong))
    with pytest.raises(DisagreementError, match="x has other counts in 1 of 2,000 windows"):
        visible("x", table, cells(*ROWS), after_ms=FIRST, until_ms=FIRST + 2_000)


def test_percentiles_count_each_value_as_often_as_it_is_there() -> None:
    values, weights = np.array([3.0, 1.0, 2.0]), np.array([1, 98, 1])
    assert percentiles(values, weights) == Percentiles(1.0, 2.0, 3.0)
    assert percentiles(np.repeat(values, weights)) == Percentiles(1.0, 2.0, 3.0)


def test_the_documents_have_them_beside_the_others(tmp_path: Path) -> None:
    write_documents((LIVE, SLOW, START), tmp_path)
    assert read_records(tmp_path / RESULTS) == (LIVE, SLOW, START)
    page = (tmp_path / PAGE).read_text(encoding="utf-8")
    assert "| `tidemark` | 2,501 | 4,000 | 2,000 | 3,500 | 400 | 900 | 300 | 1.0 GiB |" in page
    assert "| `tidemark` | 9,000 | 8,500 to 12,000 |" in page
    assert headline((LIVE, SLOW, START)) == ("latency-1s: 2.00 x spark-rocksdb", "start: alone")
    again = replace(START, start_ms=Spread(1, 1, 1))
    assert beside_earlier([again], tmp_path) == (LIVE, SLOW, again)


def test_they_are_measured_only_when_asked_for() -> None:
    drained, live = standard_workloads(20_000), latency_workloads(5)
    assert chosen(drained, live, None) == (drained, ())
    assert chosen(drained, live, ["latency"]) == ((), live)
    assert chosen(drained, live, ["latency-10s", "start", "latency-10s", "small-epochs"])[1] == (live[1], None)
    with pytest.raises(DefinitionError, match=r"no workload latency-2s.*many-epochs, latency, latency-1s"):
        chosen(drained, live, ["latency-2s"])


@only_long
@pytest.mark.spark
@pytest.mark.slow
def test_a_job_runs_on_and_is_measured(tmp_path: Path) -> None:
    workload = LatencyWorkload(1_000, rows_per_second=2_000, seconds=12)
    record = measure_latency(workload, "tidemark", tmp_path, memory="1g")
    assert record.latency is not None
    assert record.latency.epochs >= 1
    assert 1_000 < record.latency.window_ms.p50 < 30_000
    assert record.cells_checked == 12 * DRIVERS
    assert list(tmp_path.iterdir()) == []

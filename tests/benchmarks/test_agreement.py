"""The check of results must find each kind of wrong result; a check that passes everything would make the figures worthless."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from benchmarks.agreement import BOUND_MS, DisagreementError, Truth, judge, truth_of
from benchmarks.fares import HOUR_MS, FaresPlan, ensure_fares, read_fares

PLAN = FaresPlan(rows=40_000, drivers=20, files=8)

Results = dict[tuple[int, int], tuple[int, float]]


@dataclass
class World:
    """The input, right results by driver and window start, and where results are written."""

    truth: Truth
    results: Results
    folder: Path

    def write(self, results: Results, *, late: list[tuple[int, int, float]] | None = None) -> Path:
        keys = list(results)
        columns = {
            "driver": pa.array([driver for driver, _ in keys], pa.int64()),
            "window_start": pa.array([start for _, start in keys], pa.timestamp("ms", tz="UTC")),
            "n": pa.array([results[key][0] for key in keys], pa.int64()),
            "total": pa.array([results[key][1] for key in keys], pa.float64()),
        }
        (self.folder / "results").mkdir(parents=True)
        pq.write_table(pa.table(columns), self.folder / "results" / "part.parquet")
        if late is not None:
            (self.folder / "late").mkdir()
            drivers, times, fares = (list(column) for column in zip(*late, strict=True))
            rows = {"driver": drivers, "ts": pa.array(times, pa.timestamp("ms", tz="UTC")), "fare": fares}
            pq.write_table(pa.table(rows), self.folder / "late" / "part.parquet")
        return self.folder


@pytest.fixture
def world(tmp_path: Path) -> World:
    files = ensure_fares(PLAN, tmp_path)
    results: Results = {}
    newest = 0
    for rows in read_fares(PLAN, files):
        newest = max(newest, int(rows.times_ms.max()))
        for driver, time, fare in zip(rows.drivers.tolist(), rows.times_ms.tolist(), rows.fares.tolist(), strict=True):
            key = (driver, time // HOUR_MS * HOUR_MS)
            count, total = results.get(key, (0, 0.0))
            results[key] = (count + 1, total + fare)
    closed = {key: value for key, value in results.items() if key[1] + HOUR_MS <= newest - BOUND_MS}
    return World(truth_of(PLAN, files), closed, tmp_path / "out")


def late_row(tmp_path: Path) -> tuple[int, int, float]:
    rows = next(file for file in read_fares(PLAN, tmp_path / PLAN.name / "files") if file.late.any())
    place = int(np.flatnonzero(rows.late)[0])
    return int(rows.drivers[place]), int(rows.times_ms[place]), float(rows.fares[place])


def without_row(world: World, row: tuple[int, int, float]) -> Results:
    driver, time, fare = row
    key = (driver, time // HOUR_MS * HOUR_MS)
    count, total = world.results[key]
    return world.results | {key: (count - 1, total - fare)}


def untouched(world: World, tmp_path: Path) -> tuple[int, int]:
    """A driver and window in which nothing is late."""
    late = {
        (driver, time // HOUR_MS * HOUR_MS)
        for rows in read_fares(PLAN, tmp_path / PLAN.name / "files")
        for driver, time in zip(rows.drivers[rows.late].tolist(), rows.times_ms[rows.late].tolist(), strict=True)
    }
    return next(key for key in world.results if key not in late)


def test_right_results_pass(world: World) -> None:
    verdict = judge("some", world.truth, world.write(world.results))
    assert verdict.late_kept == verdict.late_lost == 0
    assert len(world.results) * 0.9 < verdict.cells < len(world.results)


def test_a_late_row_is_kept_or_lost(world: World, tmp_path: Path) -> None:
    row = late_row(tmp_path)
    kept = judge("some", world.truth, world.write(without_row(world, row), late=[row]))
    assert (kept.late_kept, kept.late_lost) == (1, 0)
    world.folder = tmp_path / "stock"
    lost = judge("some", world.truth, world.write(without_row(world, row)))
    assert (lost.late_kept, lost.late_lost) == (0, 1)


@pytest.mark.parametrize(
    ("change", "says"),
    [((1, 0.0), "another count"), ((-1, 0.0), "another count"), ((0, 1e-5), "another sum")],
)
def test_a_wrong_result_fails(world: World, tmp_path: Path, change: tuple[int, float], says: str) -> None:
    key = untouched(world, tmp_path)
    count, total = world.results[key]
    with pytest.raises(DisagreementError, match=says):
        judge("some", world.truth, world.write(world.results | {key: (count + change[0], total + change[1])}))


def test_a_missing_window_fails(world: World) -> None:
    last = max(start for _, start in world.results)
    with pytest.raises(DisagreementError, match="has results of"):
        judge("some", world.truth, world.write({key: value for key, value in world.results.items() if key[1] != last}))


def test_a_result_that_is_out_twice_fails(world: World) -> None:
    folder = world.write(world.results)
    part = folder / "results" / "part.parquet"
    pq.write_table(pq.read_table(part).slice(0, 1), folder / "results" / "again.parquet")
    with pytest.raises(DisagreementError, match="two results"):
        judge("some", world.truth, folder)


def test_a_late_row_that_is_counted_as_well_fails(world: World, tmp_path: Path) -> None:
    with pytest.raises(DisagreementError, match="counts rows twice"):
        judge("some", world.truth, world.write(world.results, late=[late_row(tmp_path)]))


def test_an_engine_that_keeps_late_rows_may_lose_none(world: World, tmp_path: Path) -> None:
    row = late_row(tmp_path)
    folder = world.write(without_row(world, row), late=[row])
    pq.write_table(pq.read_table(folder / "late" / "part.parquet").slice(0, 0), folder / "late" / "part.parquet")
    with pytest.raises(DisagreementError, match="neither counts nor keeps"):
        judge("some", world.truth, folder)

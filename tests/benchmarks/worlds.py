"""Small inputs of the benchmarks, the results that are right for them found row by row, and a place to write results to."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.checks.agreement import BOUND_MS, Truth, truth_of
from benchmarks.data.fares import Plan, ensure_fares, read_fares
from benchmarks.harness.shapes import Shape
from tidemark.semantics.windows.assigners import Session, Sliding, Tumbling
from tidemark.semantics.windows.windows import Window, WindowAssigner, merge_touching

Row = tuple[int, int, float]
"""Driver, event time in milliseconds, fare."""

Results = dict[tuple[int, Window], tuple[int, float]]
"""Count and sum by driver and window."""


@dataclass
class World:
    """The input, right results over all its rows, the rows that were made late, and where results are written."""

    truth: Truth
    rows: list[Row]
    late: list[Row]
    results: Results
    shape: Shape
    folder: Path

    def write(self, results: Results, *, late: list[Row] | None = None) -> Path:
        keys = list(results)
        columns = {
            "driver": pa.array([driver for driver, _ in keys], pa.int64()),
            "window_start": pa.array([window.start for _, window in keys], pa.timestamp("ms", tz="UTC")),
            "window_end": pa.array([window.end for _, window in keys], pa.timestamp("ms", tz="UTC")),
            "n": pa.array([results[key][0] for key in keys], pa.int64()),
            "total": pa.array([results[key][1] for key in keys], pa.float64()),
        }
        (self.folder / "results").mkdir(parents=True)
        pq.write_table(pa.table(columns), self.folder / "results" / "part.parquet")
        if late is not None:
            (self.folder / "late").mkdir()
            rows = {
                "driver": pa.array([driver for driver, _, _ in late], pa.int64()),
                "ts": pa.array([time for _, time, _ in late], pa.timestamp("ms", tz="UTC")),
                "fare": pa.array([fare for _, _, fare in late], pa.float64()),
            }
            pq.write_table(pa.table(rows), self.folder / "late" / "part.parquet")
        return self.folder

    def without(self, *rows: Row) -> Results:
        """Right results of an engine that takes all rows but some; windows that end behind the last watermark stay open."""
        gone, drivers = set(rows), {driver for driver, _, _ in rows}
        others = {key: value for key, value in self.results.items() if key[0] not in drivers}
        return others | results_of(self.shape, [row for row in self.rows if row[0] in drivers and row not in gone], self.newest)

    @property
    def newest(self) -> int:
        return max(time for _, time, _ in self.rows)

    def untouched(self) -> tuple[int, Window]:
        """A driver and window near which nothing is late."""
        reach = 2 * self.shape.size_ms
        return next(
            (driver, window)
            for driver, window in self.results
            if not any(other == driver and window.start - reach <= time < window.end + reach for other, time, _ in self.late)
        )


def make_world(plan: Plan, shape: Shape, folder: Path) -> World:
    files = ensure_fares(plan, folder)
    rows: list[Row] = []
    late: list[Row] = []
    for file in read_fares(plan, files):
        read = list(zip(file.drivers.tolist(), file.times_ms.tolist(), file.fares.tolist(), strict=True))
        rows += read
        late += [row for row, is_late in zip(read, file.late.tolist(), strict=True) if is_late]
    results = results_of(shape, rows, max(time for _, time, _ in rows))
    return World(truth_of(plan, files, shape), rows, late, results, shape, folder / "out")


def results_of(shape: Shape, rows: list[Row], newest: int) -> Results:
    """Results of windows that end up to the bound before the newest time, one row after the other by the rules of the contract."""
    assigner = assigner_of(shape)
    by_driver: dict[int, list[tuple[Window, float]]] = {}
    for driver, time, fare in rows:
        by_driver.setdefault(driver, []).extend((window, fare) for window in assigner.assign(time))
    results: Results = {}
    for driver, assigned in by_driver.items():
        merged = {window: window for window, _ in assigned}
        if shape.kind == "session":
            merged = {part: whole.window for whole in merge_touching(merged) for part in whole.parts}
        for window, fare in assigned:
            key = (driver, merged[window])
            count, total = results.get(key, (0, 0.0))
            results[key] = (count + 1, total + fare)
    return {key: value for key, value in results.items() if key[1].end <= newest - BOUND_MS}


def assigner_of(shape: Shape) -> WindowAssigner:
    if shape.kind == "session":
        return Session(shape.size_ms)
    return Sliding(shape.size_ms, shape.slide_ms) if shape.kind == "sliding" else Tumbling(shape.size_ms)

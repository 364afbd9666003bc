"""Checks every engine's results against sums made straight from the input, and counts the late rows it kept and lost.

All is held in arrays with one place per driver and hour (a *cell*).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.engines import LATE, RESULTS
from benchmarks.fares import FIRST_TIME_MS, HOUR_MS, Doubles, FaresPlan, Longs, read_fares
from tidemark.errors import TidemarkError

BOUND_MS: Final = 300_000
RELATIVE: Final = 1e-9
"""Floating-point sums depend on the order of their terms."""


class DisagreementError(TidemarkError):
    """An engine's results are not what the input says; its speed means nothing."""

    code: ClassVar[str] = "TM900"


@dataclass(frozen=True)
class Cells:
    """Rows and fares per cell, and the number of result rows that were added to it."""

    rows: Longs
    fares: Doubles
    entries: Longs


@dataclass(frozen=True)
class Truth:
    """What the input says.

    Args:
        plan: of the input.
        cells: rows and fares of every cell.
        late: cells that a row made late belongs to: there engines may differ.
        closed: hours (as ``Grid`` numbers them) that the last watermark closes.
    """

    plan: FaresPlan
    cells: Cells
    late: npt.NDArray[np.bool_]
    closed: Longs


@dataclass(frozen=True)
class Verdict:
    """Of an engine's results that passed: cells compared, and late rows kept in an output and lost."""

    cells: int
    late_kept: int
    late_lost: int


class Grid:
    """Numbers the cells of a plan; the hour before the first belongs to rows that jitter moved before the first time."""

    def __init__(self, plan: FaresPlan) -> None:
        self._drivers = plan.drivers
        self.hours = int(np.ceil(plan.hours)) + 3
        self.size = self.hours * plan.drivers
        self._first = FIRST_TIME_MS - HOUR_MS

    def hour_of(self, times_ms: Longs) -> Longs:
        """Return the hours of event times."""
        return (times_ms - self._first) // HOUR_MS

    def cells_of(self, drivers: Longs, times_ms: Longs) -> Longs:
        """Return the cells of rows."""
        cells: Longs = self.hour_of(times_ms) * self._drivers + drivers
        return cells

    def in_hours(self, hours: Longs) -> npt.NDArray[np.bool_]:
        """Return which cells lie in some hours."""
        chosen = np.zeros(self.hours, dtype=np.bool_)
        chosen[hours] = True
        return np.repeat(chosen, self._drivers)


def truth_of(plan: FaresPlan, files: Path) -> Truth:
    """Return what the input says."""
    grid = Grid(plan)
    cells = _no_cells(grid.size)
    late = np.zeros(grid.size, dtype=np.bool_)
    newest = FIRST_TIME_MS
    for rows in read_fares(plan, files):
        numbers = grid.cells_of(rows.drivers, rows.times_ms)
        _add(cells, numbers, np.ones(len(numbers), dtype=np.int64), rows.fares)
        late[numbers[rows.late]] = True
        newest = max(newest, int(rows.times_ms.max()))
    # The watermark is the newest time - bound - 1 ms, and closes windows whose last millisecond it reaches.
    last = int(grid.hour_of(np.array([newest - BOUND_MS], dtype=np.int64))[0])
    occupied = np.flatnonzero(np.add.reduceat(cells.rows, np.arange(0, grid.size, plan.drivers)))
    return Truth(plan, cells, late, occupied[occupied < last])


def judge(engine: str, truth: Truth, folder: Path) -> Verdict:
    """Compare an engine's results with the input.

    In cells without late rows counts must be equal and sums too, within 1e-9. In the others no row may be counted twice, and an
    engine that has a late output must account for each: in the result or in that output.

    Raises:
        DisagreementError: they differ; the first cell that does is named.
    """
    grid = Grid(truth.plan)
    results, hours = _read_results(grid, folder / RESULTS)
    keeps_late = (folder / LATE).is_dir()
    late = _read_late(grid, folder / LATE) if keeps_late else _no_cells(grid.size)
    inside = grid.in_hours(truth.closed)
    _require(engine, np.array_equal(hours, truth.closed), f"has results of {len(hours)} hours, the input of {len(truth.closed)}")
    _require(engine, len(hours) > 0, "closed no window: nothing can be compared")
    _none(engine, truth, results.entries > 1, "has two results for one driver and hour", results)
    _none(engine, truth, inside & ~truth.late & ((results.rows != truth.cells.rows) | (late.rows > 0)), "has another count", results)
    _none(engine, truth, inside & ~truth.late & _differ(results.fares, truth.cells.fares), "has another sum", results)
    missing = np.where(inside, truth.cells.rows - results.rows - late.rows, 0)
    _none(engine, truth, missing < 0, "counts rows twice", results)
    if keeps_late:
        _none(engine, truth, missing > 0, "neither counts nor keeps some rows", results)
        _none(engine, truth, inside & _differ(results.fares + late.fares, truth.cells.fares), "has another sum with its late rows", results)
    compared = int(np.count_nonzero(inside & ~truth.late & (truth.cells.rows > 0)))
    return Verdict(compared, int(late.rows.sum()), int(missing.sum()))


def _read_results(grid: Grid, folder: Path) -> tuple[Cells, Longs]:
    cells = _no_cells(grid.size)
    hours: set[int] = set()
    for table in _tables(folder, ["driver", "window_start", "n", "total"]):
        starts = _milliseconds(table["window_start"])
        hours.update(np.unique(grid.hour_of(starts)).tolist())
        _add(cells, grid.cells_of(table["driver"].to_numpy(), starts), table["n"].to_numpy(), table["total"].to_numpy())
    return cells, np.array(sorted(hours), dtype=np.int64)


def _read_late(grid: Grid, folder: Path) -> Cells:
    cells = _no_cells(grid.size)
    for table in _tables(folder, ["driver", "ts", "fare"]):
        numbers = grid.cells_of(table["driver"].to_numpy(), _milliseconds(table["ts"]))
        _add(cells, numbers, np.ones(len(numbers), dtype=np.int64), table["fare"].to_numpy())
    return cells


def _tables(folder: Path, columns: Sequence[str]) -> Iterator[pa.Table]:
    """Yield the published files of a folder; names that begin with ``_`` or ``.`` are the engine's own."""
    for path in sorted(folder.glob("[!_.]*.parquet")):
        yield pq.read_table(path, columns=list(columns), partitioning=None)


def _milliseconds(column: pa.ChunkedArray) -> Longs:
    times: Longs = column.cast(pa.timestamp("ms", tz="UTC")).cast(pa.int64()).to_numpy()
    return times


def _no_cells(size: int) -> Cells:
    return Cells(np.zeros(size, dtype=np.int64), np.zeros(size, dtype=np.float64), np.zeros(size, dtype=np.int64))


def _add(cells: Cells, numbers: Longs, rows: Longs, fares: Doubles) -> None:
    np.add.at(cells.rows, numbers, rows)
    np.add.at(cells.fares, numbers, fares)
    np.add.at(cells.entries, numbers, 1)


def _differ(some: Doubles, others: Doubles) -> npt.NDArray[np.bool_]:
    differ: npt.NDArray[np.bool_] = np.abs(some - others) > RELATIVE * np.maximum(np.abs(some), np.abs(others))
    return differ


def _none(engine: str, truth: Truth, wrong: npt.NDArray[np.bool_], says: str, found: Cells) -> None:
    places = np.flatnonzero(wrong)
    if len(places):
        hour, driver = divmod(int(places[0]), truth.plan.drivers)
        said = f"{found.rows[places[0]]} rows, {found.fares[places[0]]!r}"
        known = f"{truth.cells.rows[places[0]]} rows, {truth.cells.fares[places[0]]!r}"
        _require(engine, False, f"{says} in {len(places):,} places, first driver {driver} hour {hour - 1}: {said} against {known}")


def _require(engine: str, holds: bool, says: str) -> None:  # noqa: FBT001
    if not holds:
        raise DisagreementError(
            f"{engine} {says}", fix="find out which is wrong before comparing speed: run the workload on fewer rows", uid=engine
        )

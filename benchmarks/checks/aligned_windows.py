"""What the input says of tumbling and sliding windows, from sums by driver and slice.

A window is a row of slices, each as long as the slide: sums over it are differences of running sums, in whole cents and so exact. All
is held by driver and slice, and compared for a block of drivers at a time, since drivers times windows may be many millions.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from benchmarks.checks.outputs import LateRows, join, read_late, read_results, time_bounds
from benchmarks.checks.verdicts import Bounds, Flags, Found, Verdict, hold, require, to_cents
from benchmarks.data.fares import Doubles, Longs, Plan, read_fares
from benchmarks.harness.shapes import Shape
from tidemark.clock import format_ms

_BLOCK_PLACES: Final = 1_000_000


@dataclass(frozen=True)
class Grid:
    """Numbers slices and windows: window ``w`` ends with slice ``w``, and has ``per_window`` of them.

    Args:
        drivers: number of drivers.
        slice_ms: length of a slice.
        per_window: slices of a window.
        first: number, since 1970, of the first slice that has rows.
        slices: number of slices.
    """

    drivers: int
    slice_ms: int
    per_window: int
    first: int
    slices: int

    @property
    def windows(self) -> int:
        """Number of windows: also those that begin before the first slice, or end behind the last."""
        return self.slices + self.per_window - 1

    def cells_of(self, drivers: Longs, times_ms: Longs) -> Longs:
        """Return the cells (driver and slice) of rows."""
        cells: Longs = drivers * self.slices + (times_ms // self.slice_ms - self.first)
        return cells

    def end_ms(self, windows: Longs) -> Longs:
        """Return the ends of windows."""
        ends: Longs = (windows + self.first + 1) * self.slice_ms
        return ends

    def over_windows(self, by_slice: Longs) -> Longs:
        """Return sums by driver and window, from sums by driver and slice."""
        running = np.zeros((by_slice.shape[0], self.slices + 1), dtype=np.int64)
        np.cumsum(by_slice, axis=1, out=running[:, 1:])
        last = np.arange(self.windows)
        sums: Longs = running[:, np.minimum(last + 1, self.slices)] - running[:, np.maximum(last + 1 - self.per_window, 0)]
        return sums

    def newest_only(self, by_slice: Longs) -> Longs:
        """Return sums by driver and window where a slice counts for one window only, that which ends last."""
        placed = np.zeros((by_slice.shape[0], self.windows), dtype=np.int64)
        placed[:, self.per_window - 1 :] = by_slice
        return placed


class SparseRows:
    """Rows by cell, of which there are few: those made late, and those an engine keeps."""

    def __init__(self, grid: Grid, cells: Longs, cents: Longs) -> None:
        order = np.argsort(cells)
        self._grid, self._cells, self._cents = grid, cells[order], cents[order]

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self._cells)

    def by_slice(self, low: int, high: int) -> tuple[Longs, Longs]:
        """Return rows and cents by slice of the drivers from ``low`` to the one before ``high``."""
        begin, end = np.searchsorted(self._cells, [low * self._grid.slices, high * self._grid.slices])
        rows, cents = (np.zeros((high - low, self._grid.slices), dtype=np.int64) for _ in range(2))
        places = self._cells[begin:end] - low * self._grid.slices
        np.add.at(rows.reshape(-1), places, 1)
        np.add.at(cents.reshape(-1), places, self._cents[begin:end])
        return rows, cents


@dataclass(frozen=True)
class AlignedTruth:
    """What the input says.

    Args:
        grid: that numbers slices and windows.
        rows: by driver and slice.
        cents: by driver and slice.
        late: rows that were made late: in their windows engines may differ.
        occupied: windows that a row on time belongs to.
        closed: windows that the last watermark closes.
    """

    grid: Grid
    rows: npt.NDArray[np.int32]
    cents: Longs
    late: SparseRows
    occupied: Flags
    closed: Flags

    def judge(self, engine: str, folder: Path) -> Verdict:
        """Compare the results below an engine's folder with the input.

        Raises:
            DisagreementError: they differ.
        """
        grid = self.grid
        results = _results(engine, grid, folder)
        self._require_windows(engine, results.windows)
        kept_rows = read_late(folder)
        kept = _sparse(grid, kept_rows or LateRows(join([]), join([]), join([])))
        compared = lost = 0
        for low, high in _blocks(grid):
            bounds = self._bounds(engine, kept, low, high, keeps_late=kept_rows is not None)
            inside = np.tile(self.closed, high - low)
            held, found = bounds.within(inside), results.of_drivers(low, high).within(inside)
            places = np.flatnonzero(inside)

            def name(place: int, low: int = low, places: Longs = places) -> str:
                driver, window = divmod(int(places[place]), grid.windows)
                return f"driver {low + driver}, window that ends {format_ms(int(grid.end_ms(np.array([window]))[0]))}"

            lost += hold(engine, held, found, keeps_late=kept_rows is not None, name=name)
            compared += int(np.count_nonzero(held.certain & (held.most > 0)))
        return Verdict(compared, len(kept), lost)

    def _require_windows(self, engine: str, seen: Flags) -> None:
        known = self.closed & self.occupied
        said, knows = np.count_nonzero(seen), np.count_nonzero(known)
        holds = bool(np.all(seen[known]) and not np.any(seen & ~self.closed))
        require(engine, holds=holds, says=f"has results of {said} windows, the input of {knows} that are closed")
        require(engine, holds=bool(knows > 0), says="closed no window: nothing can be compared")

    def _bounds(self, engine: str, kept: SparseRows, low: int, high: int, *, keeps_late: bool) -> Bounds:
        """Return what results of some drivers may say.

        A row that any of its windows took was taken by the newest of them. So a late row that was not kept must be counted there, if the
        engine keeps all that it does not count; of other windows, and of engines that lose late rows, nothing is known.
        """
        over = self.grid.over_windows
        late_rows, late_cents = self.late.by_slice(low, high)
        kept_rows, kept_cents = kept.by_slice(low, high)
        require(engine, holds=bool(np.all(kept_rows <= late_rows)), says="keeps rows as late that are on time")
        rows, cents = self.rows[low:high], self.cents[low:high]
        least, least_cents = over(rows - late_rows), over(cents - late_cents)
        if keeps_late:
            least += self.grid.newest_only(late_rows - kept_rows)
            least_cents += self.grid.newest_only(late_cents - kept_cents)
        most, most_cents = over(rows - kept_rows), over(cents - kept_cents)
        certain: Flags = over(late_rows).reshape(-1) == 0
        return Bounds(least.reshape(-1), most.reshape(-1), least_cents.reshape(-1), most_cents.reshape(-1), certain)


@dataclass(frozen=True)
class _Sorted:
    """Result rows in order of driver and window."""

    grid: Grid
    places: Longs
    rows: Longs
    fares: Doubles

    @property
    def windows(self) -> Flags:
        """Windows that have results, whatever the driver."""
        seen: Flags = np.bincount(self.places % self.grid.windows, minlength=self.grid.windows) > 0
        return seen

    def of_drivers(self, low: int, high: int) -> Found:
        begin, end = np.searchsorted(self.places, [low * self.grid.windows, high * self.grid.windows])
        size = (high - low) * self.grid.windows
        found = Found(np.zeros(size, dtype=np.int64), np.zeros(size), np.zeros(size, dtype=np.bool_))
        places = self.places[begin:end] - low * self.grid.windows
        found.rows[places], found.fares[places], found.there[places] = self.rows[begin:end], self.fares[begin:end], True
        return found


def aligned_truth(plan: Plan, files: Path, shape: Shape, *, bound_ms: int) -> AlignedTruth:
    """Return what the input says of tumbling or sliding windows, under watermarks that are ``bound_ms`` behind."""
    least, newest = time_bounds(files)
    first, last = least // shape.slide_ms, newest // shape.slide_ms
    grid = Grid(plan.drivers, shape.slide_ms, shape.size_ms // shape.slide_ms, first, last - first + 1)
    rows = np.zeros(grid.drivers * grid.slices, dtype=np.int32)
    cents = np.zeros(grid.drivers * grid.slices, dtype=np.int64)
    late: list[tuple[Longs, Longs]] = []
    for file in read_fares(plan, files):
        cells, fares = grid.cells_of(file.drivers, file.times_ms), to_cents(file.fares)
        np.add.at(rows, cells, 1)
        np.add.at(cents, cells, fares)
        late.append((cells[file.late], fares[file.late]))
    made_late = SparseRows(grid, join([cells for cells, _ in late]), join([fares for _, fares in late]))
    shaped = rows.reshape(grid.drivers, grid.slices)
    on_time = shaped.sum(axis=0, dtype=np.int64)
    for low, high in _blocks(grid):
        on_time -= made_late.by_slice(low, high)[0].sum(axis=0)
    # The watermark is the newest time - bound - 1 ms, and closes windows whose last millisecond it reaches.
    closed: Flags = grid.end_ms(np.arange(grid.windows)) <= newest - bound_ms
    occupied: Flags = grid.over_windows(on_time.reshape(1, -1))[0] > 0
    return AlignedTruth(grid, shaped, cents.reshape(shaped.shape), made_late, occupied, closed)


def _results(engine: str, grid: Grid, folder: Path) -> _Sorted:
    places: list[Longs] = []
    rows: list[Longs] = []
    fares: list[Doubles] = []
    for part in read_results(folder):
        windows = part.ends_ms // grid.slice_ms - 1 - grid.first
        fits = (part.ends_ms - part.starts_ms == grid.slice_ms * grid.per_window) & (part.ends_ms % grid.slice_ms == 0)
        known = (part.drivers >= 0) & (part.drivers < grid.drivers) & (windows >= 0) & (windows < grid.windows)
        require(engine, holds=bool(np.all(fits & known)), says="has results of windows or drivers that the input does not have")
        places.append(part.drivers * grid.windows + windows)
        rows.append(part.rows)
        fares.append(part.fares)
    found = join(places)
    order = np.argsort(found)
    found = found[order]
    again = np.flatnonzero(found[1:] == found[:-1])
    require(engine, holds=not len(again), says=f"has two results for one driver and window, {len(again):,} times")
    totals = np.concatenate(fares) if fares else np.zeros(0)
    return _Sorted(grid, found, join(rows)[order], totals[order])


def _sparse(grid: Grid, rows: LateRows) -> SparseRows:
    return SparseRows(grid, grid.cells_of(rows.drivers, rows.times_ms), rows.cents)


def _blocks(grid: Grid) -> Iterator[tuple[int, int]]:
    step = max(1, _BLOCK_PLACES // grid.windows)
    for low in range(0, grid.drivers, step):
        yield low, min(low + step, grid.drivers)

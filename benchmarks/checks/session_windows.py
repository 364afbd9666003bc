"""What the input says of sessions, from its rows sorted by driver and time.

Sessions over all rows, late ones too, are the *clusters*. Whatever rows an engine takes, each of its sessions lies within one of them;
where no late row falls they are the sessions. Times are held as *keys*: driver and time in one number, drivers further apart than a gap.
"""

from __future__ import annotations

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

_BLOCK: Final = 1_000_000


@dataclass(frozen=True)
class Line:
    """Puts drivers and times on one line: each driver has ``span`` milliseconds of it, more than the input is long and a gap together."""

    origin: int
    span: int

    def keys_of(self, drivers: Longs, times_ms: Longs) -> Longs:
        """Return keys."""
        keys: Longs = drivers * self.span + (times_ms - self.origin)
        return keys

    def name(self, key: int) -> str:
        """Name a session by the key of its start."""
        driver, time = divmod(key, self.span)
        return f"driver {driver}, session from {format_ms(time + self.origin)}"


@dataclass(frozen=True)
class SessionTruth:
    """What the input says, cluster by cluster, in order of their keys.

    Args:
        line: of the keys.
        starts: keys of first rows.
        lengths: from a start to the end, which is a gap behind the last row.
        rows: of each.
        cents: of each.
        late: clusters and cents of the rows that were made late.
        until: greatest end, on the line of each driver, that the last watermark closes.
    """

    line: Line
    starts: Longs
    lengths: Longs
    rows: npt.NDArray[np.int32]
    cents: Longs
    late: tuple[Longs, Longs]
    until: int

    def judge(self, engine: str, folder: Path) -> Verdict:
        """Compare the results below an engine's folder with the input.

        Raises:
            DisagreementError: they differ.
        """
        results = self._results(engine, folder)
        kept_rows = read_late(folder)
        kept = self._clusters_of(engine, kept_rows or LateRows(join([]), join([]), join([])))
        compared = lost = closed_ones = 0
        for low in range(0, len(self.starts), _BLOCK):
            high = min(low + _BLOCK, len(self.starts))
            bounds = self._bounds(engine, kept, low, high, keeps_late=kept_rows is not None)
            closed = self._closed(low, high)
            found = self._found(engine, results, bounds.certain, low, high)
            early = found.there & bounds.certain & ~closed
            require(engine, holds=not np.any(early), says=f"has results of {np.count_nonzero(early):,} sessions that are open")
            held = bounds.within(closed)
            places = low + np.flatnonzero(closed)

            def name(place: int, places: Longs = places) -> str:
                return self.line.name(int(self.starts[places[place]]))

            lost += hold(engine, held, found.within(closed), keeps_late=kept_rows is not None, name=name)
            compared += int(np.count_nonzero(held.certain))
            closed_ones += len(places)
        require(engine, holds=closed_ones > 0, says="closed no session: nothing can be compared")
        return Verdict(compared, len(kept[0]), lost)

    def _closed(self, low: int, high: int) -> Flags:
        closed: Flags = self.starts[low:high] % self.line.span + self.lengths[low:high] <= self.until
        return closed

    def _bounds(self, engine: str, kept: tuple[Longs, Longs], low: int, high: int, *, keeps_late: bool) -> Bounds:
        late_rows, late_cents = _by_cluster(self.late, low, high)
        kept_rows, kept_cents = _by_cluster(kept, low, high)
        require(engine, holds=bool(np.all(kept_rows <= late_rows)), says="keeps rows as late that are on time")
        rows, cents = self.rows[low:high].astype(np.int64), self.cents[low:high]
        most, most_cents = rows - kept_rows, cents - kept_cents
        least, least_cents = (most, most_cents) if keeps_late else (rows - late_rows, cents - late_cents)
        return Bounds(least, most, least_cents, most_cents, late_rows == 0)

    def _results(self, engine: str, folder: Path) -> _Sessions:
        """Return an engine's sessions, each in the cluster it lies in."""
        parts = []
        for part in read_results(folder):
            starts, ends = self.line.keys_of(part.drivers, part.starts_ms), self.line.keys_of(part.drivers, part.ends_ms)
            clusters = np.searchsorted(self.starts, starts, side="right") - 1
            inside = (clusters >= 0) & (ends <= self.starts[clusters] + self.lengths[clusters])
            require(engine, holds=bool(np.all(inside)), says="has sessions that the input does not have")
            whole = (starts == self.starts[clusters]) & (ends == self.starts[clusters] + self.lengths[clusters])
            parts.append(_Sessions(clusters, whole, part.rows, part.fares))
        return _in_order(parts)

    def _found(self, engine: str, results: _Sessions, certain: Flags, low: int, high: int) -> Found:
        """Return what an engine says of clusters; of a certain one there is one session, with its very bounds."""
        begin, end = np.searchsorted(results.clusters, [low, high])
        places = results.clusters[begin:end] - low
        found = Found(np.zeros(high - low, dtype=np.int64), np.zeros(high - low), np.zeros(high - low, dtype=np.bool_))
        np.add.at(found.rows, places, results.rows[begin:end])
        np.add.at(found.fares, places, results.fares[begin:end])
        found.there[places] = True
        sessions = np.bincount(places, minlength=high - low)
        require(engine, holds=not np.any(certain & (sessions > 1)), says="has two results for what is one session")
        elsewhere = ~results.whole[begin:end] & certain[places]
        require(engine, holds=not np.any(elsewhere), says="has sessions that begin or end elsewhere")
        return found

    def _clusters_of(self, engine: str, rows: LateRows) -> tuple[Longs, Longs]:
        """Return the clusters and cents of rows."""
        keys = self.line.keys_of(rows.drivers, rows.times_ms)
        clusters = np.searchsorted(self.starts, keys, side="right") - 1
        known = (clusters >= 0) & (keys < self.starts[clusters] + self.lengths[clusters])
        require(engine, holds=bool(np.all(known)), says="keeps late rows that the input does not have")
        return clusters, rows.cents


@dataclass(frozen=True)
class _Sessions:
    """Sessions that an engine found: the cluster that each lies in, and whether it is all of that."""

    clusters: Longs
    whole: Flags
    rows: Longs
    fares: Doubles


def session_truth(plan: Plan, files: Path, shape: Shape, *, bound_ms: int) -> SessionTruth:
    """Return what the input says of sessions, under watermarks that are ``bound_ms`` behind."""
    least, newest = time_bounds(files)
    line = Line(least, newest - least + shape.size_ms + 1)
    keys, cents, late = _sorted_rows(plan, files, line)
    # Windows that touch merge, so a session goes on where the distance is the gap itself.
    firsts = np.flatnonzero(np.concatenate(([True], np.diff(keys) > shape.size_ms)))
    lasts = np.concatenate((firsts[1:], [len(keys)])) - 1
    late_places = np.flatnonzero(late)
    return SessionTruth(
        line,
        starts=keys[firsts],
        lengths=keys[lasts] - keys[firsts] + shape.size_ms,
        rows=np.diff(np.concatenate((firsts, [len(keys)]))).astype(np.int32),
        cents=np.add.reduceat(cents, firsts, dtype=np.int64),
        late=(np.searchsorted(firsts, late_places, side="right") - 1, cents[late_places].astype(np.int64)),
        # The watermark is the newest time - bound - 1 ms, and closes sessions whose last millisecond it reaches.
        until=newest - bound_ms - least,
    )


def _in_order(parts: list[_Sessions]) -> _Sessions:
    """Return sessions in order of their clusters."""
    if not parts:
        return _Sessions(join([]), np.zeros(0, dtype=np.bool_), join([]), np.zeros(0))
    clusters = np.concatenate([part.clusters for part in parts])
    order = np.argsort(clusters)
    return _Sessions(
        clusters[order],
        np.concatenate([part.whole for part in parts])[order],
        np.concatenate([part.rows for part in parts])[order],
        np.concatenate([part.fares for part in parts])[order],
    )


def _sorted_rows(plan: Plan, files: Path, line: Line) -> tuple[Longs, npt.NDArray[np.int32], Flags]:
    """Return keys, cents, and whether they were made late, of all rows in order of their keys."""
    keys = np.empty(plan.total_rows, dtype=np.int64)
    cents = np.empty(plan.total_rows, dtype=np.int32)
    late = np.empty(plan.total_rows, dtype=np.bool_)
    filled = 0
    for file in read_fares(plan, files):
        here = slice(filled, filled + len(file.drivers))
        keys[here], cents[here], late[here] = line.keys_of(file.drivers, file.times_ms), to_cents(file.fares), file.late
        filled = here.stop
    order = np.argsort(keys)
    return keys[order], cents[order], late[order]


def _by_cluster(rows: tuple[Longs, Longs], low: int, high: int) -> tuple[Longs, Longs]:
    """Return number and cents of rows in each of some clusters."""
    clusters, cents = rows
    here = (clusters >= low) & (clusters < high)
    counts, sums = np.zeros(high - low, dtype=np.int64), np.zeros(high - low, dtype=np.int64)
    np.add.at(counts, clusters[here] - low, 1)
    np.add.at(sums, clusters[here] - low, cents[here])
    return counts, sums

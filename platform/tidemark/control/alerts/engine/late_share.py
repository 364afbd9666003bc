"""The share of late rows over a recent window, from totals that only grow. Pure."""

from __future__ import annotations

from dataclasses import replace

from tidemark.control.alerts.model.alert_state import LateWindow, RowCount
from tidemark.control.model.view import JobView
from tidemark.state.log.totals import late_and_judged

WINDOW_MS = 600_000
"""The share is over the rows of the last one to two windows: long enough to be significant, short enough to resolve."""


def current_window(known: LateWindow | None, view: JobView, now: int) -> LateWindow:
    """Return the window for this evaluation; for a new lineage it starts at zero."""
    seen = _count(view, now)
    if known is not None and known.lineage == view.lineage and not known.judged:
        # Counts of an earlier release say nothing beside these.
        return LateWindow(view.lineage, seen, seen, judged=True)
    if known is None or known.lineage != view.lineage or seen.late < known.newer.late or seen.rows < known.newer.rows:
        start = RowCount(now, 0, 0)
        return LateWindow(view.lineage, start, start, judged=True)
    return known


def next_window(known: LateWindow, view: JobView, now: int) -> LateWindow:
    """Return the window for the next evaluation, after the share was evaluated."""
    age = now - known.newer.at
    if age < WINDOW_MS:
        return known
    seen = _count(view, now)
    # After a long pause the older rows would hide new late ones.
    return replace(known, older=seen if age >= 2 * WINDOW_MS else known.newer, newer=seen)


def is_from_start(window: LateWindow) -> bool:
    """Return whether a window has all rows that were ever counted: nothing was before it, so that its ``at`` is no instant of rows."""
    return not window.older.rows


def late_rows(window: LateWindow, view: JobView) -> RowCount:
    """Return the rows since the window's start; ``at`` is that start, except of a window from the first row on."""
    seen = _count(view, window.older.at)
    return RowCount(window.older.at, seen.rows - window.older.rows, seen.late - window.older.late)


def late_share(window: LateWindow, view: JobView, now: int) -> float:
    """Return the share of late rows; after a long pause at least that of the last epoch."""
    rows = late_rows(window, view)
    share = rows.late / rows.rows if rows.rows else 0.0
    stale = now - window.older.at > 3 * WINDOW_MS
    return max(share, view.late_share or 0.0) if stale and rows.late else share


def _count(view: JobView, at: int) -> RowCount:
    late, rows = late_and_judged(view.totals, view.judges_lateness)
    return RowCount(at, rows, late)

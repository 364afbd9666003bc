"""Panes: the results a window emits over its life, their timing and their numbers."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, NamedTuple

from tidemark.semantics.watermarks.lateness import is_due
from tidemark.semantics.windows.windows import Window

PaneTiming = Literal["EARLY", "ON_TIME", "LATE"]


class ReplacedSession(NamedTuple):
    """The bounds of a session's emitted result. ``end`` is None if an earlier release kept only the start: any end matches."""

    start: int
    end: int | None = None


def in_order(sessions: Iterable[ReplacedSession]) -> tuple[ReplacedSession, ...]:
    """Return each session once, by start and end; one whose end is not known comes before others."""
    return tuple(sorted(set(sessions), key=lambda session: (session.start, session.end is not None, session.end or 0)))


@dataclass(frozen=True)
class Pane:
    """One result of one key and window.

    ``index`` counts a key's and window's panes from 0, for count windows the key's groups. ``replaces`` lists the sessions whose
    emitted results it replaces: those that were merged into it, and the session itself under its earlier bounds. ``time`` is
    the result's event time if the window has none: for count and global windows the greatest time of the elements that the window
    held when it fired, evicted ones too.
    """

    key: tuple[object, ...]
    window: Window
    timing: PaneTiming
    index: int
    result: object
    replaces: tuple[ReplacedSession, ...] = ()
    time: int | None = None

    @property
    def result_time(self) -> int:
        """The event time of the result row, ``end - 1`` unless ``time`` is given, so that windows can follow windows."""
        return self.window.max_timestamp if self.time is None else self.time


def pane_timing(window: Window, *, before: int, after: int) -> PaneTiming:
    """Return the timing of a window's pane in an epoch, whatever fired it; it follows from the watermarks alone.

    Args:
        window: the one that fires.
        before: the operator's watermark after the epoch before, W(n-1).
        after: the operator's watermark after this epoch, W(n).

    >>> [pane_timing(Window(0, 10), before=before, after=after) for before, after in ((3, 8), (8, 9), (9, 30))]
    ['EARLY', 'ON_TIME', 'LATE']
    """
    if is_due(window, before):
        return "LATE"
    return "ON_TIME" if is_due(window, after) else "EARLY"


def due_timing(window: Window, *, before: int, after: int, touched: bool) -> PaneTiming | None:
    """Return the timing of the pane that the event-time rule fires for a window in an epoch, or None.

    ON_TIME once: in the first epoch whose watermark reaches the window's end, whether or not elements came in it. LATE in each
    epoch that brought accepted elements after that, once however many they were; a window whose first element comes so late
    has a LATE pane and never an ON_TIME one. That follows from the two watermarks alone, without state.

    Args:
        window: one that is open, so that some element was accepted into it.
        before: the operator's watermark after the epoch before, W(n-1).
        after: the operator's watermark after this epoch, W(n).
        touched: whether this epoch brought an accepted element to the window.

    >>> due_timing(Window(0, 10), before=8, after=9, touched=False)
    'ON_TIME'
    """
    if is_due(window, before):
        return "LATE" if touched else None
    return "ON_TIME" if is_due(window, after) else None


def next_index(*fired: int) -> int:
    """Return the index of the next pane of a window, given how many panes it, or each window merged into it, has fired.

    >>> next_index(), next_index(2), next_index(1, 3)
    (0, 2, 3)
    """
    return max(fired, default=0)

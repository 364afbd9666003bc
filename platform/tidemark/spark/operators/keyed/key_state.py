"""What a task reads and writes of each key: its newest version, the next one, and what is counted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from tidemark.errors import TidemarkError, UserCodeError
from tidemark.semantics.triggers.fired_panes import Deadlines
from tidemark.semantics.triggers.window_state import read_state
from tidemark.semantics.user_lines import raised_at
from tidemark.semantics.watermarks.operator_clock import OperatorClock
from tidemark.semantics.windows.windows import GLOBAL_WINDOW, Window
from tidemark.spark.operators.keyed.columns import (
    ACCEPTED,
    DUE,
    FROM,
    NOTE,
    OLDEST,
    OPENED,
    REFUSED,
    STATE,
    TIMER,
    TIMING,
    TO,
    VERSION,
    VERSION_FIELDS,
    names_of,
)
from tidemark.spark.operators.keyed.output_buffer import Outbox, Shape
from tidemark.spark.operators.keyed.rows import KeyRows, Place

NOTES = Shape(made=(FROM, TO, TIMING, ACCEPTED, REFUSED, OPENED, DUE, TIMER, OLDEST))
LATE_ELEMENT = "REFUSED"
"""Stands in a note, where others have a pane's timing, for a window that late elements would have belonged to."""


def version_shape(keys: Mapping[str, str]) -> Shape:
    """Return the columns of ``VERSION`` rows; ``keys`` are the key columns by their names."""
    return Shape(carried=tuple(keys.values()), made=names_of(VERSION_FIELDS))


class Version(NamedTuple):
    """What is kept of a key: its state's text, its deadlines, the start of its oldest window."""

    state: str | None = None
    due: int | None = None
    timer: int | None = None
    oldest: int | None = None

    def is_due(self, clock: OperatorClock) -> bool:
        """Return whether the key needs a call even without elements."""
        by_watermark = self.due is not None and self.due <= clock.watermark
        return by_watermark or (self.timer is not None and self.timer <= clock.timers_due_until)


NOTHING_KEPT = Version()


def newest_version(rows: KeyRows) -> Version:
    """Return what is kept of a key; versions come newest first."""
    run = next(rows.of(VERSION), None)
    if run is None:
        return NOTHING_KEPT
    values = (run.batch.column(name)[run.start].as_py() for name in (STATE, DUE, TIMER, OLDEST))
    return Version(*values)


def next_version(text: str | None, deadlines: Deadlines, epoch: int) -> Version:
    """Return what is to be kept of a key after an epoch."""
    if text is None:
        return NOTHING_KEPT
    starts = [window.start for window in read_state(text, epoch).windows if window != GLOBAL_WINDOW]
    return Version(text, deadlines.watermark, deadlines.processing_time, min(starts, default=None))


class Notes:
    """Counts what a task does, as rows that are observed and never stored.

    Args:
        out: where the rows go.
    """

    def __init__(self, out: Outbox) -> None:
        self._out = out
        self._due: int | None = None
        self._timer: int | None = None
        self._oldest: int | None = None
        self._place: Place | None = None

    def leave(self, version: Version, place: Place) -> None:
        """Note what is kept of a key that stays as it is."""
        self._place = place
        if version.state is not None:
            self._due = _least(self._due, version.due)
            self._timer = _least(self._timer, version.timer)
            self._oldest = _least(self._oldest, version.oldest)

    def replace(self, before: Version, after: Version, epoch: int, place: Place) -> int:
        """Write what is kept of a key from now on; return by how much that changes the number of keys."""
        if after != before:
            self._out.add(VERSION, place, (*after, epoch))
        self.leave(after, place)
        return int(after.state is not None) - int(before.state is not None)

    def pane(self, window: Window, timing: str, place: Place) -> None:
        """Note a pane."""
        start, end = bounds_of(window)
        self._out.add(NOTE, place, (start, end, timing, None, None, None, None, None, None))

    def late_window(self, start: int, place: Place) -> None:
        """Note a window that late elements of a key would have belonged to."""
        self._out.add(NOTE, place, (start, None, LATE_ELEMENT, None, None, None, None, None, None))

    def key(self, place: Place, *, accepted: int = 0, refused: int = 0, opened: int = 0) -> None:
        """Note what became of a key's elements, and of the key."""
        self._out.add(NOTE, place, (None, None, None, accepted, refused, opened, None, None, None))

    def end(self) -> None:
        """Note the least deadlines and the oldest window of all keys that the task has seen."""
        if self._place is not None:
            self._out.add(NOTE, self._place, (None, None, None, None, None, None, self._due, self._timer, self._oldest))


def bounds_of(window: Window) -> tuple[int | None, int | None]:
    """Return the bounds that are shown of a window, none for the global one."""
    return (None, None) if window == GLOBAL_WINDOW else (window.start, window.end)


def origin_of(key: Mapping[str, object], window: Window | None) -> str:
    """Return key and window as errors name them."""
    bounds = "" if window is None or window == GLOBAL_WINDOW else f" and the window [{window.start}, {window.end})"
    return f"for the key {dict(key)}{bounds}"


@dataclass(frozen=True)
class Blame:
    """Names key and operator on errors of the user's code.

    ``rules`` are the trigger and evictor, as the user would write them.
    """

    uid: str
    rules: str

    def of(self, error: Exception, key: Mapping[str, object]) -> Exception:
        """Return the error to raise for one that ended a key's epoch."""
        if isinstance(error, UserCodeError) and error.uid is None:
            return UserCodeError(f"{one_line(error.what)}, {origin_of(key, None)}", fix=error.fix, uid=self.uid, place=error.place)
        if isinstance(error, TidemarkError):
            return error
        return UserCodeError(
            f"{self.rules} failed {origin_of(key, None)}: {type(error).__name__}: {one_line(str(error))}",
            fix="make it take every element and every window",
            uid=self.uid,
            place=raised_at(error),
        )


def one_line(text: str) -> str:
    """Return a text without line breaks: what comes back from a task is read line by line."""
    return " ".join(text.split())


def _least(one: int | None, other: int | None) -> int | None:
    return other if one is None else one if other is None else min(one, other)

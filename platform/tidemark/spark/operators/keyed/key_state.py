"""The state of a key in a task: its newest version, the next one, and counts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from tidemark.errors import TidemarkError, UserCodeError
from tidemark.semantics.user_lines import raised_at
from tidemark.semantics.watermarks.operator_clock import OperatorClock
from tidemark.spark.operators.keyed.columns import (
    ACCEPTED,
    DUE,
    NOTE,
    OLDEST,
    OPENED,
    REFUSED,
    STATE,
    TIMER,
    VERSION,
    VERSION_FIELDS,
    names_of,
)
from tidemark.spark.operators.keyed.output_buffer import OutputBuffer, Shape
from tidemark.spark.operators.keyed.rows import KeyRows, Place, Run

if TYPE_CHECKING:
    import pyarrow as pa

NOTES = Shape(made=(ACCEPTED, REFUSED, OPENED, DUE, TIMER, OLDEST))


def version_shape(keys: Mapping[str, str], more: Sequence[str] = ()) -> Shape:
    """Return the columns of ``VERSION`` rows; ``keys`` are the key columns by their names, ``more`` those of the operator kind."""
    return Shape(carried=tuple(keys.values()), made=(*names_of(VERSION_FIELDS), *more))


class Version(NamedTuple):
    """The state of a key: its text, its deadlines, the oldest time of rows that it needs, and the columns of its operator kind."""

    state: str | None = None
    due: int | None = None
    timer: int | None = None
    oldest: int | None = None
    more: tuple[object, ...] = ()

    def is_due(self, clock: OperatorClock) -> bool:
        """Return whether the key needs a call even without elements."""
        by_watermark = self.due is not None and self.due <= clock.watermark
        return by_watermark or (self.timer is not None and self.timer <= clock.timers_due_until)


EMPTY_VERSION = Version()


def newest_version(rows: KeyRows, more: Sequence[str] = ()) -> Version:
    """Return the newest version of a key; versions come newest first. ``more`` are the columns of the operator kind."""
    if not rows.has(VERSION):
        return EMPTY_VERSION
    return version_of(next(rows.of(VERSION)), more)


def version_of(run: Run, more: Sequence[str]) -> Version:
    """Return the version in the first row of a run of versions; arguments as of ``newest_version``."""
    state, due, timer, oldest, *found = run.first((STATE, DUE, TIMER, OLDEST, *more))
    if state is None:
        return EMPTY_VERSION
    return Version(state, due, timer, oldest, tuple(found))  # type: ignore[arg-type]


class TaskStats:
    """Counts a task's work, as rows that are observed and never stored.

    Args:
        out: where the rows go.
    """

    def __init__(self, out: OutputBuffer) -> None:
        self._out = out
        self._has_fractions = out.has_fractions(VERSION)
        self._due: int | None = None
        self._timer: int | None = None
        self._oldest: int | None = None
        self._accepted = self._refused = self._opened = 0
        self._place: Place | None = None

    def leave(self, version: Version, place: Place) -> None:
        """Count the version of a key that does not change."""
        self._place = place
        if version.state is not None:
            self._due = _least(self._due, version.due)
            self._timer = _least(self._timer, version.timer)
            self._oldest = _least(self._oldest, version.oldest)

    def leave_all(self, versions: pa.RecordBatch) -> None:
        """Count the versions of keys that do not change, as rows of ``VERSION``."""
        import pyarrow.compute as pc

        if versions.num_rows:
            live = versions.filter(pc.is_valid(versions.column(STATE)))
            self.leave(Version("", *(pc.min(live.column(name)).as_py() for name in (DUE, TIMER, OLDEST))), Place(versions, 0))

    def replace(self, before: Version, after: Version, epoch: int, place: Place) -> None:
        """Write a key's next version, and count the change in the number of keys."""
        # 0.0 is equal to -0.0, and is another value.
        if after != before or (self._has_fractions and repr(after.more) != repr(before.more)):
            made = after.more or (before.more and (None,) * len(before.more))
            self._out.add(VERSION, place, (*after[:4], epoch, *made))
        self.leave(after, place)
        self._opened += (after.state is not None) - (before.state is not None)

    def count(self, *, accepted: int, refused: int) -> None:
        """Count a key's accepted and late rows."""
        self._accepted += accepted
        self._refused += refused

    @property
    def place(self) -> Place | None:
        """A row of the newest key that the task has seen, None before the first."""
        return self._place

    def end(self) -> None:
        """Write the counts, the least deadlines and the oldest time of all keys that the task has seen."""
        if self._place is not None:
            counts = (self._accepted, self._refused, self._opened)
            self._out.add(NOTE, self._place, (*counts, self._due, self._timer, self._oldest))


def origin_of(key: Mapping[str, object]) -> str:
    """Return a key as errors show it."""
    return f"for the key {dict(key)}"


@dataclass(frozen=True)
class ErrorContext:
    """Adds key and operator to errors of the user's code.

    ``code`` is the user's code that is called, as the user would name it; ``fix`` the fix where it fails; ``function`` names the function
    that returns results.
    """

    uid: str
    code: str
    fix: str
    function: str = "the function"

    def of(self, error: Exception, key: Mapping[str, object]) -> Exception:
        """Return the error to raise for one that ended a key's epoch."""
        if isinstance(error, UserCodeError) and error.uid is None:
            return UserCodeError(f"{one_line(error.what)}, {origin_of(key)}", fix=error.fix, uid=self.uid, place=error.place)
        if isinstance(error, TidemarkError):
            return error
        return UserCodeError(
            f"{self.code} failed {origin_of(key)}: {type(error).__name__}: {one_line(str(error))}",
            fix=self.fix,
            uid=self.uid,
            place=raised_at(error),
        )


def one_line(text: str) -> str:
    """Return a text without line breaks: errors from a task are read line by line."""
    return " ".join(text.split())


def _least(one: int | None, other: int | None) -> int | None:
    return other if one is None else one if other is None else min(one, other)

"""Until when what a savepoint needs is there: the input that came after it, and the versions of its tables. Pure but for the looks."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Final, Literal
from urllib.parse import unquote

from tidemark.durations import short_duration

ExistenceCheck = Callable[[Sequence[str]], Sequence[bool]]
"""Says of files, by their addresses, whether they are there."""

MAX_CHECKED_FILES: Final = 100
"""So many of the files that were read since a savepoint are looked at, the oldest first, since these go first."""


@dataclass(frozen=True)
class Expiry:
    """What is known of one thing that a savepoint needs.

    Args:
        what: the ``table`` of an output, or the ``input`` of a source from the savepoint's position on.
        name: of the output or the source.
        state: ``kept``, until ``until`` if that is known; ``lost``, in part at least; or ``unknown``, where it cannot be asked.
        why: what that follows from, in words.
        until: milliseconds; None for no end that is known.
    """

    what: Literal["table", "input"]
    name: str
    state: Literal["kept", "lost", "unknown"]
    why: str
    until: int | None = None

    def __str__(self) -> str:
        """Return it in one line."""
        return f"{'output' if self.what == 'table' else 'source'} {self.name}: {self.why}"


@dataclass(frozen=True)
class Restorable:
    """Whether and until when a job can be put back to a savepoint, its state, its tables, and all the input that came after it.

    The state is kept as long as the savepoint is, so it is no limit.
    """

    limits: tuple[Expiry, ...]

    @property
    def until(self) -> int | None:
        """The first end that is known, milliseconds; None where none is, and where something is lost already."""
        return None if self.lost else min((expiry.until for expiry in self.limits if expiry.until is not None), default=None)

    @property
    def lost(self) -> tuple[Expiry, ...]:
        """What is gone already; rows would be missing after a restore."""
        return tuple(expiry for expiry in self.limits if expiry.state == "lost")


@dataclass(frozen=True)
class ReadFile:
    """A file that a source has read: its address as Spark's log has it, when it was last changed (milliseconds), in which batch."""

    address: str
    at: int
    batch: int = 0


def files_expiry(name: str, seen: Sequence[ReadFile], read: Collection[str], there: ExistenceCheck, *, now_ms: int) -> Expiry:
    """Return what is known of the files of a source.

    Spark's ``maxFileAge`` is no limit: a restored source takes the oldest files first, so none is behind what it has read by more
    than it was the first time. ``cleanSource`` is seen by what it has deleted or moved.

    Args:
        name: of the source.
        seen: the files that it has read up to now.
        read: addresses of those that it had read at the savepoint.
        there: looks whether files are there.
        now_ms: the time.
    """
    files = sorted(seen, key=lambda file: (file.at, file.address))
    since = [file for file in files if file.address not in read]
    looked = since[:MAX_CHECKED_FILES]
    gone = [file for file, found in zip(looked, there([file.address for file in looked]), strict=True) if not found]
    if gone:
        of = f"{len(since):,}" if len(looked) == len(since) else f"{len(looked):,} oldest of {len(since):,}"
        example = unquote(gone[0].address.rpartition("/")[2])
        return Expiry("input", name, "lost", f"{len(gone):,} of the {of} files that were read since are gone, such as {example}")
    kept = _retention_ms(files, there, now_ms)
    if kept is None:
        return Expiry("input", name, "kept", "no file that was read is gone" if files else "no file was read yet")
    why = f"files are kept {short_duration(kept)}; older ones are gone" if kept else "files are gone once they are read"
    # What is there now is kept until now at least, whatever the rule was.
    first = since[0].at if since else now_ms
    return Expiry("input", name, "kept", why, max(now_ms, first + kept))


def _retention_ms(files: Sequence[ReadFile], there: ExistenceCheck, now_ms: int) -> int | None:
    """Return the age of the oldest file that is there where older ones are gone; 0 where all are gone, None where none is.

    Whatever deletes files deletes the oldest first; so a few looks are enough, however many there are.
    """
    if not files or there([files[0].address])[0]:
        return None
    gone, kept = 0, len(files)
    while kept - gone > 1:
        middle = (gone + kept) // 2
        if there([files[middle].address])[0]:
            kept = middle
        else:
            gone = middle
    return max(0, now_ms - files[kept].at) if kept < len(files) else 0

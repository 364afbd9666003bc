"""Until when the things that a savepoint needs are kept: the input after it, and its tables' versions. Pure but for the file checks."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Final, Literal
from urllib.parse import unquote

from tidemark.durations import short_duration

ExistenceCheck = Callable[[Sequence[str]], Sequence[bool]]
"""Returns for each file, by its address, whether it exists."""

MAX_CHECKED_FILES: Final = 100
"""How many of the files that were read since a savepoint are checked, the oldest first, since these are deleted first."""


@dataclass(frozen=True)
class Expiry:
    """The expiry of one thing that a savepoint needs.

    Args:
        what: the ``table`` of an output, or the ``input`` of a source from the savepoint's position on.
        name: of the output or the source.
        state: ``kept``, until ``until`` if that is known; ``lost``, at least in part; or ``unknown``, if it cannot be inspected.
        why: what that follows from, in words.
        until: milliseconds; None if no end is known.
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
    """Whether and until when a job can be rewound to a savepoint, with its state, its tables, and all the input that came after it.

    The state is kept as long as the savepoint is, so it is no limit.
    """

    limits: tuple[Expiry, ...]

    @property
    def until(self) -> int | None:
        """The first known end, milliseconds; None if none is known, or if something is lost already."""
        return None if self.lost else min((expiry.until for expiry in self.limits if expiry.until is not None), default=None)

    @property
    def lost(self) -> tuple[Expiry, ...]:
        """The things that are lost already; rows would be missing after a restore."""
        return tuple(expiry for expiry in self.limits if expiry.state == "lost")


@dataclass(frozen=True)
class ReadFile:
    """A file that a source has read: its address as Spark's log has it, when it was last changed (milliseconds), in which batch."""

    address: str
    at: int
    batch: int = 0


def files_expiry(name: str, seen: Sequence[ReadFile], read: Collection[str], there: ExistenceCheck, *, now_ms: int) -> Expiry:
    """Return the expiry of a source's files.

    Spark's ``maxFileAge`` is no limit: a restored source takes the oldest files first, so none is further behind what it has read
    than it was the first time. ``cleanSource`` shows by the files that it has deleted or moved.

    Args:
        name: of the source.
        seen: the files that it has read up to now.
        read: addresses of those that it had read at the savepoint.
        there: checks whether files exist.
        now_ms: the time.
    """
    files = sorted(seen, key=lambda file: (file.at, file.address))
    since = [file for file in files if file.address not in read]
    looked = since[:MAX_CHECKED_FILES]
    gone = [file for file, found in zip(looked, there([file.address for file in looked]), strict=True) if not found]
    if gone:
        of = f"{len(since):,}" if len(looked) == len(since) else f"{len(looked):,} oldest of {len(since):,}"
        example = unquote(gone[0].address.rpartition("/")[2])
        return Expiry("input", name, "lost", f"{len(gone):,} of the {of} files that were read since were deleted, such as {example}")
    kept = _retention_ms(files, there, now_ms)
    if kept is None:
        return Expiry("input", name, "kept", "no file that was read was deleted" if files else "no file was read yet")
    why = f"files are kept {short_duration(kept)}; older ones were deleted" if kept else "files are deleted once they are read"
    # A file that exists now is kept until now at least, whatever the rule was.
    first = since[0].at if since else now_ms
    return Expiry("input", name, "kept", why, max(now_ms, first + kept))


def _retention_ms(files: Sequence[ReadFile], there: ExistenceCheck, now_ms: int) -> int | None:
    """Return the age of the oldest file that exists if older ones were deleted; 0 if all were, None if none was.

    Cleanup deletes the oldest files first, so a few checks suffice for any number of files.
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

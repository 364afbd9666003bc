"""Positions in a Delta table, and what an epoch takes of the versions after one. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from tidemark.spark.sources.delta_tables.logged_versions import DataFile

_DIGEST: Final = "entryDigest"


@dataclass(frozen=True)
class TablePosition:
    """What comes next: the version, and the index of the last of its files that was read; -1 for none.

    Versions before it were read. Of a ``snapshot`` the files are all that the table has at that version. ``digest`` is the checksum of
    the newest entry that was read: of the version before, or of a snapshot's own; None where that is not known. It is stored as Delta's own
    reader for Structured Streaming stores its offsets, with the checksum.
    """

    table: str
    version: int
    index: int = -1
    snapshot: bool = False
    digest: str | None = None

    @classmethod
    def parse(cls, stored: object) -> TablePosition | None:
        """Return a stored position, None for a value that is none."""
        if not isinstance(stored, Mapping):
            return None
        try:
            return cls(
                str(stored["reservoirId"]),
                int(stored["reservoirVersion"]),
                int(stored["index"]),
                snapshot=bool(stored.get("isStartingVersion")),
                digest=str(stored[_DIGEST]) if stored.get(_DIGEST) else None,
            )
        except (KeyError, TypeError, ValueError):
            return None

    def as_stored(self) -> dict[str, object]:
        """Return the position as it is written to the offset log."""
        return {
            "sourceVersion": 1,
            "reservoirId": self.table,
            "reservoirVersion": self.version,
            "index": self.index,
            "isStartingVersion": self.snapshot,
            **({_DIGEST: self.digest} if self.digest is not None else {}),
        }

    @property
    def last_read(self) -> int:
        """The newest version whose entry was read; -1 for none."""
        return self.version if self.snapshot else self.version - 1


def is_in_snapshot(stored: object) -> bool:
    """Whether a stored position is one in a table's snapshot, of which files are left to read."""
    position = TablePosition.parse(stored)
    return position is not None and position.snapshot


@dataclass(frozen=True)
class UnreadVersion:
    """A version with its files from the one with index ``first`` on; of a ``snapshot`` all that the table has.

    ``digest`` is the checksum of its entry. One that is ``before_start`` has no files, since the source begins later.
    """

    version: int
    files: tuple[DataFile, ...]
    first: int = 0
    snapshot: bool = False
    digest: str | None = None
    before_start: bool = False


@dataclass(frozen=True)
class TakenFiles:
    """The files of an epoch, the position after them, and the versions that are left."""

    files: tuple[DataFile, ...]
    after: TablePosition
    left: tuple[UnreadVersion, ...]


def take(
    unread: Sequence[UnreadVersion], position: TablePosition, *, max_bytes: int, max_versions: int | None, whole_versions: bool
) -> TakenFiles:
    """Return what an epoch takes: as many files as its bounds allow, one at least if there is any.

    A snapshot shares no epoch with later versions, also one without files.

    Args:
        unread: versions, oldest first; they follow the position without a gap.
        position: that they follow.
        max_bytes: greatest sum of the files' bytes.
        max_versions: greatest number of versions with files, None for any.
        whole_versions: never divide a version, unless it is a snapshot.
    """
    files: list[DataFile] = []
    size = versions = 0
    for number, each in enumerate(unread):
        if files and each.files and versions == max_versions:
            return TakenFiles(tuple(files), position, tuple(unread[number:]))
        fitting = _fitting(each, max_bytes - size, first=not files, whole=whole_versions and not each.snapshot)
        taken = each.files[:fitting]
        files += taken
        size += sum(file.bytes for file in taken)
        versions += bool(taken)
        if fitting < len(each.files):
            if taken:
                digest = each.digest if each.snapshot else position.digest
                position = TablePosition(position.table, each.version, each.first + fitting - 1, snapshot=each.snapshot, digest=digest)
            left = replace(each, files=each.files[fitting:], first=each.first + fitting)
            return TakenFiles(tuple(files), position, (left, *unread[number + 1 :]))
        position = TablePosition(position.table, each.version + 1, digest=each.digest)
        if each.snapshot:
            return TakenFiles(tuple(files), position, tuple(unread[number + 1 :]))
    return TakenFiles(tuple(files), position, ())


def _fitting(version: UnreadVersion, room: int, *, first: bool, whole: bool) -> int:
    """Return how many files of a version an epoch takes, ``first`` where it has no other files."""
    sizes = [file.bytes for file in version.files]
    if whole:
        return len(sizes) if first or sum(sizes) <= room else 0
    for number, size in enumerate(sizes):
        room -= size
        if room < 0 and not (first and number == 0):
            return number
    return len(sizes)

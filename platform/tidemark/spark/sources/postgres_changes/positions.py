"""Positions in the changes of Postgres: how far the changes were read, and the snapshot of each table. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

_XIDS: Final = 1 << 32


def lsn_text(lsn: int) -> str:
    """Return a position in the write-ahead log as Postgres writes it.

    >>> lsn_text(0x1_0000_00A0)
    '1/A0'
    """
    return f"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}"


def parse_lsn(text: str) -> int:
    """Return the number of a position in the write-ahead log.

    Raises:
        ValueError: the text is none.
    """
    high, _, low = text.partition("/")
    return (int(high, 16) << 32) + int(low, 16)


@dataclass(frozen=True)
class TableProgress:
    """How far the rows of a table were read: up to the key ``after``, None before the first; all if ``done``.

    ``oid`` is the table's, ``published`` that of its entry in the publication, 0 where it is not known.

    ``partitions`` are those whose rows are known, by their OIDs, each with the transactions that attached it; None where they were not
    looked for. If ``partition`` is the OID of another one, which ``attached`` belongs to, the progress is that of its rows.
    """

    oid: int
    after: tuple[str, ...] | None = None
    done: bool = False
    published: int = 0
    partitions: Mapping[str, str] | None = None
    partition: str = ""
    attached: str = ""

    def after_part(self, last: tuple[str, ...] | None) -> TableProgress:
        """Return the progress after a part with this last key, None for the last part."""
        if last is not None:
            return replace(self, after=last)
        known = {**self.partitions, self.partition: self.attached} if self.partitions is not None and self.partition else self.partitions
        return replace(self, after=None, done=True, partitions=known, partition="", attached="")


@dataclass(frozen=True)
class CapturedFile:
    """A Parquet file of captured rows in the job's folder."""

    path: str
    rows: int
    bytes: int


@dataclass(frozen=True)
class ChangesPosition:
    """The position after an epoch: all transactions that end at ``lsn`` or before were read, and of each table what its progress says.

    ``job`` is the one that reads the slot, by the ``publication``. ``files`` are those that the epoch read. ``server`` identifies the
    server and the timeline of its log, empty where they are not known.
    """

    job: str
    slot: str
    publication: str
    lsn: int
    tables: Mapping[str, TableProgress] = field(default_factory=dict)
    files: tuple[CapturedFile, ...] = ()
    server: str = ""

    @property
    def unfinished(self) -> str | None:
        """The first table of which rows are left to read."""
        return next((label for label, table in self.tables.items() if not table.done), None)

    def with_progress(self, label: str, progress: TableProgress) -> ChangesPosition:
        """Return the position with another progress of a table."""
        return replace(self, tables={**self.tables, label: progress})

    def as_stored(self) -> dict[str, object]:
        """Return the position as it is written to the offset log."""
        return {
            "job": self.job,
            "slot": self.slot,
            "publication": self.publication,
            "lsn": lsn_text(self.lsn),
            "tables": {label: _stored(table) for label, table in self.tables.items()},
            "files": [{"path": file.path, "rows": file.rows, "bytes": file.bytes} for file in self.files],
            "server": self.server,
        }

    @classmethod
    def parse(cls, stored: object) -> ChangesPosition | None:
        """Return a stored position, None for a value that is none."""
        if not isinstance(stored, Mapping):
            return None
        try:
            tables = {str(label): _parsed(table) for label, table in stored["tables"].items()}
            files = tuple(CapturedFile(str(file["path"]), int(file["rows"]), int(file["bytes"])) for file in stored["files"])
            names = (str(stored["job"]), str(stored["slot"]), str(stored["publication"]))
            return cls(*names, parse_lsn(stored["lsn"]), tables, files, str(stored.get("server", "")))
        except (AttributeError, KeyError, TypeError, ValueError):
            return None


def _stored(table: TableProgress) -> dict[str, object]:
    read: dict[str, object] = {"done": True} if table.done else {} if table.after is None else {"after": list(table.after)}
    partitions: dict[str, object] = {} if table.partitions is None else {"partitions": dict(table.partitions)}
    if table.partition:
        partitions |= {"partition": table.partition, "attached": table.attached}
    return {"oid": table.oid, "published": table.published, **read, **partitions}


def _parsed(stored: Any) -> TableProgress:  # noqa: ANN401 - JSON
    after = stored.get("after")
    read = None if after is None else tuple(map(str, after))
    partitions = stored.get("partitions")
    return TableProgress(
        int(stored["oid"]),
        read,
        done=bool(stored.get("done")),
        published=int(stored.get("published", 0)),
        partitions=None if partitions is None else {str(oid): str(attached) for oid, attached in partitions.items()},
        partition=str(stored.get("partition", "")),
        attached=str(stored.get("attached", "")),
    )


@dataclass(frozen=True)
class Snapshot:
    """Which transactions a query sees: those before ``xmax`` that are not among ``running``; the numbers have 64 bits."""

    xmax: int
    running: frozenset[int]

    @classmethod
    def parse(cls, text: str) -> Snapshot:
        """Return a snapshot as ``pg_current_snapshot()`` writes it.

        >>> Snapshot.parse("10:20:10,14,15").running == {10, 14, 15}
        True
        """
        _, xmax, running = text.split(":")
        return cls(int(xmax), frozenset(map(int, filter(None, running.split(",")))))

    def sees(self, xid: int) -> bool:
        """Return whether a committed transaction is seen; of its number the lower 32 bits are given."""
        whole = (self.xmax & ~(_XIDS - 1)) | xid
        if whole - self.xmax >= _XIDS // 2:
            whole -= _XIDS
        elif self.xmax - whole > _XIDS // 2:
            whole += _XIDS
        return whole < self.xmax and whole not in self.running

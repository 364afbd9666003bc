"""A savepoint: a pinned epoch, with metadata.

A savepoint costs one small file: it names the state files of its epoch and keeps them; nothing is copied.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from tidemark.clock import format_ms
from tidemark.state.encoding.codec import added_field, from_jsonable
from tidemark.state.gc.pins import Pin
from tidemark.state.log.records import EpochRecord
from tidemark.state.store.layout import pin_path

Kind = Literal["manual", "periodic", "before-upgrade", "before-rewind", "before-delete", "stop", "imported"]
"""Why a savepoint was taken. Retention disposes only of the automatic kinds."""

AUTOMATIC: frozenset[Kind] = frozenset(("periodic", "before-upgrade", "before-rewind", "before-delete", "stop"))


@dataclass(frozen=True)
class TableVersion:
    """The version of a Delta table in which a savepoint's epoch can be seen, and nothing later.

    ``until`` is the time (milliseconds) up to which the table's own settings keep that version; None where they do not say. ``table``
    is the table's id, which shows whether the table was recreated in its place; None in savepoints of older releases.
    """

    location: str
    version: int
    until: int | None = None
    table: str | None = added_field(None)


@dataclass(frozen=True)
class SavepointInfo:
    """The metadata of a savepoint, besides its record.

    Args:
        kind: why it was taken.
        by: the user who took it.
        note: the reason, in words.
        labels: free key-value pairs.
        code_version: of the job that committed the epoch.
        state_rows: rows of all operators' state.
        state_bytes: their bytes.
        state_files: how many files they are in.
        tables: versions of the Delta tables, by output; an output that has no table yet has none.
        imported_from: where it was imported from.
    """

    kind: Kind = "manual"
    by: str = ""
    note: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    code_version: str = ""
    state_rows: int = 0
    state_bytes: int = 0
    state_files: int = 0
    tables: Mapping[str, TableVersion] = field(default_factory=dict)
    imported_from: str | None = None


@dataclass(frozen=True)
class Savepoint:
    """A savepoint of a job; ``taken_at`` is in milliseconds."""

    job: str
    name: str
    taken_at: int
    info: SavepointInfo
    record: EpochRecord

    @property
    def tables_until(self) -> int | None:
        """The time (milliseconds) up to which the job's tables can be reverted, too; None if no end is known.

        The state is kept as long as the savepoint is. For the retention of sources see ``SavepointStore.restorable``.
        """
        return min((table.until for table in self.info.tables.values() if table.until is not None), default=None)

    def __str__(self) -> str:
        """Return the savepoint in one line."""
        record = self.record
        return f"{self.name}: epoch {record.epoch} of lineage {record.lineage}, taken {format_ms(self.taken_at)} ({self.info.kind})"


def info_of(record: EpochRecord) -> SavepointInfo:
    """Return the metadata that follows from a record alone."""
    files = [file for operator in record.operators.values() for file in operator.files]
    return SavepointInfo(
        code_version=record.code_version,
        state_rows=sum(file.rows for file in files),
        state_bytes=sum(file.bytes for file in files),
        state_files=len(files),
    )


def savepoint_of(job: str, pin: Pin) -> Savepoint:
    """Return a pin as a savepoint; a pin without metadata was made by hand.

    Raises:
        CorruptStoreError: its metadata cannot be read.
    """
    info = info_of(pin.record) if pin.about is None else from_jsonable(SavepointInfo, pin.about, path=pin_path(pin.name))
    return Savepoint(job, pin.name, pin.pinned_at, info, pin.record)

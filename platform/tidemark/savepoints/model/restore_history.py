"""The history of completed restores: one small file each, so that none is made twice, whatever lineages follow."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from tidemark.savepoints.model.restore import Restore
from tidemark.state.log.records import EpochRecord, RestoreRef
from tidemark.state.store.documents import read_document, write_document
from tidemark.state.store.layout import restored_path
from tidemark.state.store.store import JobStore

KIND: Final = "restored"


@dataclass(frozen=True)
class CompletedRestore:
    """A restore that was made, and the lineage that began with it."""

    restored: RestoreRef
    lineage: str


def record_restore(folder: JobStore, record: EpochRecord | None) -> None:
    """Record that the restore which a record's lineage began with was made. ``folder`` is the store at the job's folder."""
    if record is None or record.restored is None:
        return
    path = restored_path(record.restored.identity)
    if not folder.exists(path):
        write_document(folder, path, kind=KIND, value=CompletedRestore(record.restored, record.lineage))


def renew_restore_entry(folder: JobStore, identity: str) -> None:
    """Rewrite an existing entry, since it is still asked for: retention goes by when it was last written."""
    if not identity:
        return
    path = restored_path(identity)
    # Unparsed: even a damaged entry shows that the restore was made.
    with suppress(FileNotFoundError):
        folder.put(path, folder.get(path))


def read_restore_entry(folder: JobStore, identity: str) -> CompletedRestore | None:
    """Return the entry of a restore, None if it was not made.

    Raises:
        CorruptStoreError: it is damaged.
    """
    return read_document(folder, restored_path(identity), kind=KIND, form=CompletedRestore)


def is_restore_due(folder: JobStore, head: EpochRecord | None, restore: Restore) -> bool:
    """Return whether a restore is still to be made. One without an identity always is.

    Args:
        folder: the store at the job's folder.
        head: the job's newest epoch.
        restore: the restore.
    """
    if not restore.identity:
        return True
    made = head is not None and head.restored is not None and head.restored.identity == restore.identity
    return not made and not folder.exists(restored_path(restore.identity))

"""A vacuum of a Delta table: the files go that its settings give up, but for those of versions that savepoints need."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from tidemark.state.store import JobStore

if TYPE_CHECKING:
    from deltalake import DeltaTable


def vacuum(table: DeltaTable, store: JobStore, needed: Collection[int]) -> list[str]:
    """Delete files that the table's own settings give up, and return their paths within the table.

    Nothing is committed: deltalake's own vacuum gives up expired entries of the log behind its two commits, whatever it is told, and with
    them the versions that were to be kept.

    Args:
        table: at its newest version.
        store: at the table.
        needed: versions whose files stay.

    Raises:
        DeltaError: the table cannot be read.
        StoreError: some files cannot be deleted; others may have been.
    """
    gone = table.vacuum(dry_run=True, keep_versions=sorted(needed) or None)
    store.delete(gone)
    return gone

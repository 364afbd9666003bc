"""Vacuum of a Delta table: deletes files that have expired by its settings, except those of versions that savepoints need."""

from __future__ import annotations

import logging
from collections.abc import Collection
from typing import TYPE_CHECKING

from tidemark.locations import stays_within
from tidemark.state.store.store import JobStore

if TYPE_CHECKING:
    from deltalake import DeltaTable


logger = logging.getLogger("tidemark")


def vacuum(table: DeltaTable, store: JobStore, needed: Collection[int]) -> list[str]:
    """Delete files that have expired by the table's settings, and return their paths within the table.

    Only files in the table's folder are deleted. A log may name files elsewhere: a shallow clone's does, and so may one that was
    edited. These are left, as are symbolic links and the files behind them.

    Nothing is committed: deltalake's own vacuum deletes expired log entries after its two commits, whatever its arguments, and with
    them the versions that have to be kept.

    Args:
        table: at its newest version.
        store: at the table.
        needed: versions whose files are kept.

    Raises:
        DeltaError: the table cannot be read.
        StoreError: some files cannot be deleted; others may have been.
    """
    given_up = table.vacuum(dry_run=True, keep_versions=sorted(needed) or None)
    gone = [path for path in given_up if stays_within(path)]
    if len(gone) < len(given_up):
        elsewhere = next(path for path in given_up if not stays_within(path))
        logger.warning("the log of table %s names %s, which lies outside the table and is not deleted", store.location, elsewhere)
    left = store.delete(gone)
    return [path for path in gone if path not in left]

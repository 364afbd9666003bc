"""Data files that a Delta table's log names and that were deleted from storage: the table cannot be read, and no version records why."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from deltalake import DeltaTable

from tidemark.savepoints.delta.table_entries import STAGED
from tidemark.spark.sinks.delta.delta_commits import remove_actions, rewrite
from tidemark.spark.sinks.delta.delta_files import LiveFile, live_files
from tidemark.spark.sinks.delta.delta_merge import ATTEMPTS
from tidemark.state.store.store import JobStore


def lost_files(table: DeltaTable, store: JobStore) -> list[LiveFile]:
    """Return the jobs' files that a table shows and that do not exist; lists the table's folder once.

    Args:
        table: loaded at its newest version.
        store: at the table.
    """
    shown = [file for file in live_files(table) if file.path.startswith(STAGED) and file.rewritable]
    there = {file.path for file in store.list()} if shown else set()
    return [file for file in shown if file.path not in there]


def lost_of(paths: Iterable[str], table: DeltaTable, store: JobStore) -> list[str]:
    """Return those of the given files that a table shows and that do not exist; lists each of their folders once.

    Args:
        paths: of the files, as a commit added them; other writers may have removed them from the table since.
        table: loaded at its newest version.
        store: at the table.
    """
    own = {path for path in paths if path.startswith(STAGED)}
    there = {file.path for folder in {path.rpartition("/")[0] for path in own} for file in store.list(folder)}
    missing = own - there
    return sorted(missing.intersection(file.path for file in live_files(table))) if missing else []


def leave_out_lost(table: DeltaTable, store: JobStore, metadata: Mapping[str, str]) -> bool:
    """Remove files that do not exist from a table, so that the rest can be read.

    Args:
        table: loaded at any version; afterwards at the newest.
        store: at the table.
        metadata: of the commit, if one is made.

    Returns:
        Whether that is done; False where other writers' commits came first each time.
    """
    for _ in range(ATTEMPTS):
        table.update_incremental()
        lost = lost_files(table, store)
        if not lost or rewrite(table, remove_actions(lost), table.schema(), metadata=metadata):
            return True
    return False

"""Data files that a Delta table's log names and that somebody deleted: what is left of the table cannot be read, and no version says so."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from deltalake import DeltaTable

from tidemark.savepoints.delta.table_entries import STAGED
from tidemark.spark.sinks.delta.delta_commits import remove_actions, rewrite
from tidemark.spark.sinks.delta.delta_files import LiveFile, live_files
from tidemark.spark.sinks.delta.delta_merge import ATTEMPTS
from tidemark.state.store.store import JobStore


def lost_files(table: DeltaTable, store: JobStore) -> list[LiveFile]:
    """Return the files of jobs that a table shows and that are not there, by one listing of the table's place.

    Args:
        table: loaded at its newest version.
        store: at the table.
    """
    shown = [file for file in live_files(table) if file.path.startswith(STAGED) and file.rewritable]
    there = {file.path for file in store.list()} if shown else set()
    return [file for file in shown if file.path not in there]


def lost_of(paths: Iterable[str], table: DeltaTable, store: JobStore) -> list[str]:
    """Return those of some files that a table shows and that are not there, by one listing of each folder that they are in.

    Args:
        paths: of the files, such as a commit has added them; others may have taken them out of the table since.
        table: loaded at its newest version.
        store: at the table.
    """
    own = {path for path in paths if path.startswith(STAGED)}
    there = {file.path for folder in {path.rpartition("/")[0] for path in own} for file in store.list(folder)}
    missing = own - there
    return sorted(missing.intersection(file.path for file in live_files(table))) if missing else []


def leave_out_lost(table: DeltaTable, store: JobStore, metadata: Mapping[str, str]) -> bool:
    """Take files that are not there out of a table, so that the rest can be read; says whether that is done.

    Args:
        table: any version of it is loaded; afterwards the newest is.
        store: at the table.
        metadata: of the commit, if one is made.

    Returns:
        False where other writers were faster each time.
    """
    for _ in range(ATTEMPTS):
        table.update_incremental()
        lost = lost_files(table, store)
        if not lost or rewrite(table, remove_actions(lost), table.schema(), metadata=metadata):
            return True
    return False

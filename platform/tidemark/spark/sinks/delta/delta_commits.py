"""Commits to a Delta table: appends, which may follow other writers' commits, and rewrites, valid only for the version they were made from.

A rewrite puts its files into a folder named after the version that it starts from, and is committed as the next version or not at
all. So it stays known whether an attempt was committed: the commit of that next version names its folder, or does not.
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Iterable, Mapping

from deltalake import CommitProperties, DeltaTable, Schema, Transaction
from deltalake.exceptions import CommitFailedError
from deltalake.transaction import AddAction, RemoveAction

from tidemark.clock import SYSTEM_CLOCK
from tidemark.crashpoints import crash_point
from tidemark.spark.sinks.delta.delta_files import LiveFile
from tidemark.state.delta.delta_hooks import KEEP_LOG
from tidemark.state.delta.delta_tags import REWRITE_FOLDER
from tidemark.state.log.records import StagedFile
from tidemark.state.store.store import JobStore

_ATTEMPT = re.compile(r"[a-z]+-(\d{20})-[0-9a-f]{8}")


def add_actions(files: Iterable[StagedFile], *, data_change: bool = True) -> list[AddAction | RemoveAction]:
    """Return the Delta actions that add files to a table."""
    now = SYSTEM_CLOCK.now_ms()
    return [
        AddAction(
            path=file.path,
            size=file.bytes,
            partition_values={},
            modification_time=now,
            data_change=data_change,
            stats=json.dumps(file.stats or {"numRecords": file.rows}),
        )
        for file in files
    ]


def remove_actions(files: Iterable[LiveFile], *, data_change: bool = True) -> list[AddAction | RemoveAction]:
    """Return the Delta actions that remove files from a table; older versions still have them."""
    now = SYSTEM_CLOCK.now_ms()
    return [RemoveAction(file.path, data_change, now, file.bytes, {}) for file in files]


def append(
    table: DeltaTable, actions: list[AddAction | RemoveAction], schema: Schema, *, transaction: Transaction, metadata: Mapping[str, str]
) -> None:
    """Commit added files as the next version, after other writers' commits since the table was loaded."""
    table.create_write_transaction(
        actions=actions,
        mode="append",
        schema=schema,
        commit_properties=CommitProperties(app_transactions=[transaction], custom_metadata=dict(metadata)),
        post_commithook_properties=KEEP_LOG,
    )


def rewrite(
    table: DeltaTable,
    actions: list[AddAction | RemoveAction],
    schema: Schema,
    *,
    transaction: Transaction | None = None,
    metadata: Mapping[str, str],
) -> bool:
    """Commit files that are added and removed as the version after the one that the table was loaded at.

    Returns:
        Whether that version is this commit; if not, another commit came first, or a hook after this one failed.
    """
    version = table.version()
    try:
        table.create_write_transaction(
            actions=actions,
            mode="append",
            schema=schema,
            commit_properties=CommitProperties(
                app_transactions=[transaction] if transaction else None,
                custom_metadata={**metadata, "isBlindAppend": False},
                # With retries, deltalake lets versions of other writers that it considers harmless come before this one, and silently
                # accepts the removal of a file that one of them removed.
                max_commit_retries=0,
            ),
            post_commithook_properties=KEEP_LOG,
        )
    except CommitFailedError:
        table.update_incremental()
        if table.version() == version:
            raise
        return False
    return True


def add_columns(table: DeltaTable, rows: str, metadata: Mapping[str, str]) -> bool:
    """Add the columns of some rows that a table lacks after its own, as the version after the one that it was loaded at.

    Args:
        table: loaded at its newest version; afterwards at the one that was committed.
        rows: their type, as Delta's JSON has it.
        metadata: of the commit, if one is made.

    Returns:
        Whether the table has the columns now; if not, another commit came first.
    """
    there = {field.name for field in table.schema().fields}
    missing = [field for field in Schema.from_json(rows).fields if field.name not in there]
    if not missing:
        return True
    version = table.version()
    try:
        # No retries after other writers' versions: a rewind that came first has closed the table to the rows that need the columns.
        properties = CommitProperties(custom_metadata=dict(metadata), max_commit_retries=0)
        table.alter.add_columns(missing, commit_properties=properties, post_commithook_properties=KEEP_LOG)
    except CommitFailedError:
        table.update_incremental()
        if table.version() == version:
            raise
        return False
    crash_point("columns-added")
    return True


def new_attempt(folder: str, kind: str, version: int) -> str:
    """Return a new subfolder's path for the files of a rewrite that starts from a version."""
    return f"{folder}/{kind}-{version:020d}-{uuid.uuid4().hex[:8]}"


def sweep_attempts(store: JobStore, table: DeltaTable, folder: str) -> list[str]:
    """Delete the files of rewrites in a folder that can no longer be committed; returns their folders.

    Args:
        store: at the table.
        table: loaded at its newest version.
        folder: the parent of the rewrites' folders.
    """
    attempts = [f"{folder}/{name}" for name in store.folders(folder) if _ATTEMPT.fullmatch(name)]
    dead = [attempt for attempt in attempts if _is_dead(store, table.version(), attempt)]
    for attempt in dead:
        store.remove_folder(attempt)
    return dead


def _is_dead(store: JobStore, newest: int, attempt: str) -> bool:
    """Whether a rewrite can never be committed: the version that it would have been is another commit."""
    wanted = int(attempt.rpartition("/")[2].split("-")[1]) + 1
    if wanted > newest:
        return False
    try:
        lines = store.get(f"_delta_log/{wanted:020d}.json").split(b"\n")
    except FileNotFoundError:  # the log entry expired, so this is not known
        return False
    infos = [action["commitInfo"] for action in map(json.loads, filter(bytes.strip, lines)) if "commitInfo" in action]
    return not any(info.get(REWRITE_FOLDER) == attempt for info in infos)

"""Commits to a Delta table: additions anyone may have come between, and rewritings that only hold for the version they were made of.

A rewriting writes its files into a folder named after the version that it starts from, and is committed as the very next version
or not at all. So whether an attempt came to anything can be told for ever: the commit of that version names its folder, or not.
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
    """Return what adds files to a table."""
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
    """Return what takes files out of a table; older versions still have them."""
    now = SYSTEM_CLOCK.now_ms()
    return [RemoveAction(file.path, data_change, now, file.bytes, {}) for file in files]


def append(
    table: DeltaTable, actions: list[AddAction | RemoveAction], schema: Schema, *, transaction: Transaction, metadata: Mapping[str, str]
) -> None:
    """Commit files that are added, behind whatever others have committed meanwhile."""
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
        Whether that version is this commit; if not, another one was faster, or a hook behind it failed: ``attempt_is_dead`` tells.
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
                # Else others' versions that deltalake takes for harmless would come before this one; the removal of a file that one of
                # them removed would be taken without a word.
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
    """Give a table the columns of some rows that it lacks, behind those it has, as the version after the one it was loaded at.

    Args:
        table: at its newest version, and afterwards at the one that was made.
        rows: their type, as Delta's JSON has it.
        metadata: of the commit, if one is made.

    Returns:
        Whether the table has the columns now; if not, another commit was faster.
    """
    there = {field.name for field in table.schema().fields}
    missing = [field for field in Schema.from_json(rows).fields if field.name not in there]
    if not missing:
        return True
    version = table.version()
    try:
        # Not behind others' versions: a rewind that came first has closed the table to the rows that need the columns.
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
    """Return a folder, inside another, for the files of a rewriting that starts from a version."""
    return f"{folder}/{kind}-{version:020d}-{uuid.uuid4().hex[:8]}"


def sweep_attempts(store: JobStore, table: DeltaTable, folder: str) -> list[str]:
    """Delete the files of rewritings in a folder that came to nothing; returns their folders.

    Args:
        store: at the table.
        table: loaded at its newest version.
        folder: that rewritings had their folders in.
    """
    attempts = [f"{folder}/{name}" for name in store.folders(folder) if _ATTEMPT.fullmatch(name)]
    dead = [attempt for attempt in attempts if _is_dead(store, table.version(), attempt)]
    for attempt in dead:
        store.remove_folder(attempt)
    return dead


def _is_dead(store: JobStore, newest: int, attempt: str) -> bool:
    """Whether a rewriting can never be committed any more: the version that it would have been is another commit."""
    wanted = int(attempt.rpartition("/")[2].split("-")[1]) + 1
    if wanted > newest:
        return False
    try:
        lines = store.get(f"_delta_log/{wanted:020d}.json").decode().splitlines()
    except FileNotFoundError:  # expired: nobody knows any more
        return False
    infos = [action["commitInfo"] for action in map(json.loads, filter(str.strip, lines)) if "commitInfo" in action]
    return not any(info.get(REWRITE_FOLDER) == attempt for info in infos)

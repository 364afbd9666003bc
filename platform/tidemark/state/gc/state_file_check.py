"""Checks that all state files that a record names exist at their full length; and the store of each of them."""

from __future__ import annotations

from collections import defaultdict

from tidemark.state.encoding.envelope import damaged
from tidemark.state.log.records import EpochRecord, StateFile
from tidemark.state.store.layout import STATE, job_folder
from tidemark.state.store.store import JobStore


def owner_store(store: JobStore, file: StateFile) -> JobStore:
    """Return the store at the folder of the job that a state file lies with.

    Args:
        store: the store at the folder of the job whose record names the file.
        file: the file.
    """
    return store.sibling(job_folder(file.owner)) if file.owner else store


def require_state_files(store: JobStore, record: EpochRecord) -> None:
    """Compare the live state files of an epoch with a listing. Spark reads an empty file as one without rows.

    Args:
        store: the store at the job's folder.
        record: of the epoch.

    Raises:
        CorruptStoreError: a file is missing, or of another length; the message names it.
    """
    wanted: dict[str, list[tuple[str, StateFile]]] = defaultdict(list)
    for uid, operator in record.operators.items():
        for file in operator.files:
            wanted[file.owner].append((uid, file))
    for entries in wanted.values():
        home = owner_store(store, entries[0][1])
        lengths = {file.path: file.size for file in home.list(STATE)}
        for uid, file in entries:
            found = lengths.get(file.path)
            if found != file.bytes:
                what = "is missing" if found is None else f"has {found:,} bytes and was written with {file.bytes:,}"
                raise damaged(f"of the state of {uid!r} {what}", home.spark_uri(file.path)).with_job(record.job)

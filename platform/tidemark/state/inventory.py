"""Whether the state files that a record names are all there, as long as they were written."""

from __future__ import annotations

from tidemark.state.envelope import damaged
from tidemark.state.layout import STATE
from tidemark.state.records import EpochRecord
from tidemark.state.store import JobStore


def require_state_files(store: JobStore, record: EpochRecord) -> None:
    """Compare the live state files of an epoch with a listing. Spark takes a file of no bytes for one of no rows.

    Args:
        store: the store at the job's folder.
        record: of the epoch.

    Raises:
        CorruptStoreError: a file is missing, or of another length; the message names it.
    """
    wanted = [(uid, file) for uid, operator in record.operators.items() for file in operator.files]
    if not wanted:
        return
    lengths = {file.path: file.size for file in store.list(STATE)}
    for uid, file in wanted:
        found = lengths.get(file.path)
        if found != file.bytes:
            what = "is missing" if found is None else f"has {found:,} bytes and was written with {file.bytes:,}"
            raise damaged(f"of the state of {uid!r} {what}", store.spark_uri(file.path)).with_job(record.job)

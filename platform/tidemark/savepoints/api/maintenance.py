"""Maintenance of a job that does not run, as its driver does it between epochs: savepoints, state files, old table versions."""

from __future__ import annotations

import logging
from contextlib import suppress
from dataclasses import dataclass

from deltalake.exceptions import DeltaError

from tidemark.clock import SYSTEM_CLOCK, Clock
from tidemark.errors import JobRunningError, SinkError, TidemarkError
from tidemark.savepoints.core.protected_versions import ProtectedVersionsSearch, lost_error
from tidemark.savepoints.core.retention import SavepointRetention
from tidemark.savepoints.core.savepoint_store import SavepointStore
from tidemark.savepoints.delta.table_versions import open_table
from tidemark.savepoints.delta.vacuuming import vacuum
from tidemark.savepoints.restore.restore_history_retention import expire_restore_history
from tidemark.savepoints.restore.shared_files import release_unused
from tidemark.state.encoding.redaction import redacted, without_secrets
from tidemark.state.gc.sweep import kept_epochs, sweep
from tidemark.state.log.joblog import JobLog
from tidemark.state.log.process_identity import current_owner
from tidemark.state.store.layout import job_folder
from tidemark.state.store.store import JobStore

logger = logging.getLogger("tidemark")


@dataclass(frozen=True)
class SweptJob:
    """What a sweep did: how many files it marked, and how many of those marked before it deleted. ``running``: left to the driver."""

    marked: int = 0
    deleted: int = 0
    running: bool = False


def retire_savepoints(root: JobStore, job: str, retention: SavepointRetention, *, clock: Clock = SYSTEM_CLOCK) -> tuple[str, ...]:
    """Dispose of the savepoints that retention expires, and return their names."""
    return tuple(savepoint.name for savepoint in SavepointStore(root, job, clock).retire(retention))


def sweep_job(root: JobStore, job: str, *, clock: Clock = SYSTEM_CLOCK) -> SweptJob:
    """Delete unused state files; the driver of a running job does so itself.

    An unused file is marked, and deleted by a later sweep if it is still unused.

    Raises:
        CorruptStoreError: the files in use cannot be determined; nothing was deleted.
    """
    log = JobLog(root.at(job_folder(job)), job, clock)
    if log.load().epoch is None:
        return SweptJob()
    try:
        driver = log.acquire(current_owner("maintenance"))
    except JobRunningError:
        return SweptJob(running=True)
    try:
        kept = kept_epochs(log)
        release_unused(driver, kept)
        expire_restore_history(driver, kept)
        report = sweep(driver, kept=kept)
    finally:
        with suppress(TidemarkError):
            driver.release()
    return SweptJob(report.marked, len(report.deleted))


def vacuum_tables(root: JobStore, job: str, *, clock: Clock = SYSTEM_CLOCK) -> dict[str, int]:
    """Delete files of the job's Delta tables that have expired by the tables' settings, except those of versions that savepoints need.

    Returns how many were deleted, by output; none of a table that does not show yet the epoch that a savepoint needs. The job may run.

    Raises:
        SinkError: a table cannot be read.
        StoreError: a table's log cannot be listed, or files cannot be deleted.
        CorruptStoreError: a savepoint is damaged; nothing was deleted.
    """
    store = SavepointStore(root, job, clock)
    savepoints, search = store.all_protected(), ProtectedVersionsSearch(store)
    head = store.pins.log.load().epoch
    if head is None:
        return {}
    found = {}
    for name, output in head.outputs.items():
        table = open_table(name, output.location) if output.sink == "delta" and output.location is not None else None
        if table is None or output.location is None:
            continue
        protected = search.of(output.location, savepoints, head)
        if protected.lost:
            logger.warning("output %r: %s", name, lost_error(job, protected.lost))
        if protected.versions is None:
            logger.warning("output %r: its table is not vacuumed until it shows epoch %d, which a savepoint needs", name, head.epoch)
            continue
        try:
            gone = vacuum(table, JobStore.open(output.location), protected.versions)
        except (DeltaError, OSError) as error:
            raise SinkError(
                f"the table of output {name!r} cannot be searched for old files: {redacted(str(error))}",
                fix="make its place reachable; nothing was deleted",
                uid=name,
                place=output.location,
            ) from without_secrets(error)
        found[name] = len(gone)
    return found

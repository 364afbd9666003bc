"""Making a restore: the first record of a new lineage, appended under the term of the job's driver."""

from __future__ import annotations

import secrets
from dataclasses import replace

from tidemark.crashpoints import crash_point
from tidemark.errors import CorruptStoreError, UnknownSavepointError
from tidemark.savepoints.core.savepoint_store import SavepointStore
from tidemark.savepoints.model.restore import Restore, RestoreTargets, restored_record, with_source_logs
from tidemark.savepoints.model.restore_history import record_restore
from tidemark.savepoints.model.savepoint import Savepoint
from tidemark.savepoints.restore.pending_restores import release_for
from tidemark.savepoints.restore.shared_files import acquire_files
from tidemark.state.encoding.envelope import damaged, sha256
from tidemark.state.gc.state_file_check import require_state_files
from tidemark.state.log.joblog import Driver
from tidemark.state.log.records import EpochRecord, SourceLogFile, SourceLogRef
from tidemark.state.store.layout import job_folder, source_folder
from tidemark.state.store.store import JobStore


def prepare_restore(
    root: JobStore, driver: Driver, restore: Restore, *, targets: RestoreTargets | None = None, lineage: str | None = None
) -> tuple[Savepoint, EpochRecord]:
    """Return the savepoint, and the first record of the lineage that the restore would begin; writes nothing.

    Args:
        root: the root store.
        driver: the driver of the job that is to be restored.
        restore: the restore request.
        targets: the job's operators and sources; None leaves that check to the next start.
        lineage: the new lineage's token; a new one by default.

    Raises:
        UnknownSavepointError: there is no such savepoint.
        StateMismatchError: it has state or positions that nothing in the job claims.
        DefinitionError: the map of uids names an operator that does not exist.
        CorruptStoreError: the savepoint is damaged.
    """
    log = driver.log
    savepoint = SavepointStore(root, restore.job or log.job, log.clock).get(restore.savepoint)
    token = lineage or secrets.token_hex(8)
    named = replace(restore, identity=restore.identity or f"restore-{token}")
    return savepoint, restored_record(savepoint, named, job=log.job, term=driver.term, lineage=token, targets=targets)


def begin_lineage(driver: Driver, restore: Restore, savepoint: Savepoint, record: EpochRecord) -> EpochRecord:
    """Append the first record of a lineage, and return it: from then on the job resumes from the savepoint.

    Args:
        driver: the job's; no other process may append under its term.
        restore: the restore request.
        savepoint: the savepoint that is restored.
        record: as ``prepare_restore`` gave it; its operators may have been migrated since.

    Raises:
        FencedError: a newer driver has begun.
        CorruptStoreError: a file of the savepoint's is missing, or the savepoint was disposed of since; nothing was appended.
    """
    folder = driver.log.store
    record_restore(folder, driver.last)
    acquire_files(driver, savepoint, record, claim=restore.mode == "claim")
    home = folder if savepoint.job == driver.log.job else folder.sibling(job_folder(savepoint.job))
    whole = with_source_logs(record, _copied_logs(home, folder, record)) if home is not folder else record
    require_whole(folder, whole)
    _require_still_there(driver, savepoint)
    driver.append(whole)
    crash_point("restored")
    record_restore(folder, whole)
    release_for(folder.parent, driver.log.job, restore)
    return whole


def require_whole(folder: JobStore, record: EpochRecord) -> None:
    """Make sure that every file that a job needs to resume from an epoch exists: state files, and the copies of the sources' logs.

    Args:
        folder: the store at the folder of the job that owns the record.
        record: of the epoch.

    Raises:
        CorruptStoreError: a file is missing or damaged; the message names it.
    """
    require_state_files(folder, record)
    for log in record.source_logs.values():
        for file in log.files:
            _source_log(folder, file)


def _require_still_there(driver: Driver, savepoint: Savepoint) -> None:
    """Make sure that the savepoint kept its files until this job did: from now on references, or the job's own record, keep them."""
    try:
        there: Savepoint | None = SavepointStore(driver.log.store.parent, savepoint.job, driver.log.clock).get(savepoint.name)
    except UnknownSavepointError:
        there = None
    # A newer savepoint of the same name keeps other files.
    if there is None or (there.taken_at, there.record) != (savepoint.taken_at, savepoint.record):
        raise CorruptStoreError(
            f"savepoint {savepoint.name!r} was disposed of while the job was being restored from it",
            fix="choose another savepoint; nothing was changed",
            job=driver.log.job,
        )


def _copied_logs(home: JobStore, folder: JobStore, record: EpochRecord) -> dict[str, SourceLogRef]:
    """Copy the sources' own logs, which are small, so that only state is read from another job's folder."""
    return {
        name: SourceLogRef(tuple(_copied(home, folder, name, file, record.lineage) for file in log.files))
        for name, log in record.source_logs.items()
    }


def _copied(home: JobStore, folder: JobStore, source: str, file: SourceLogFile, lineage: str) -> SourceLogFile:
    path = f"{source_folder(source)}/{file.name}-{lineage}-{file.sha256[:16]}"
    folder.put(path, _source_log(home, file))
    return replace(file, path=path)


def _source_log(home: JobStore, file: SourceLogFile) -> bytes:
    try:
        data = home.get(file.path)
    except FileNotFoundError as error:
        raise damaged("is missing", home.spark_uri(file.path)) from error
    if sha256(data) != file.sha256:
        raise damaged("does not match the checksum that a record states", home.spark_uri(file.path))
    return data

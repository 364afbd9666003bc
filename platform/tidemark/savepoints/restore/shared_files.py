"""Shared savepoints: which files a restored job still needs of its savepoint, and how it releases or disposes of it.

A record lies with the restored job, a file reference with each job that owns files. The record is written first, so that a crash leaves
nothing unknown; both are removed once no epoch of the restored job names an owner's file. A claimed savepoint is disposed of then, too.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final

from tidemark.crashpoints import crash_point
from tidemark.errors import CorruptStoreError, SavepointInUseError, UnknownSavepointError
from tidemark.savepoints.core.savepoint_store import SavepointStore
from tidemark.savepoints.model.restore_history import read_restore_entry
from tidemark.savepoints.model.savepoint import Savepoint
from tidemark.state.encoding.codec import added_field, from_jsonable, to_jsonable
from tidemark.state.encoding.envelope import decode_envelope, encode_envelope
from tidemark.state.gc.file_references import FileReference, FileReferences
from tidemark.state.gc.sweep import KeptEpochs
from tidemark.state.log.joblog import Driver
from tidemark.state.log.records import EpochRecord
from tidemark.state.store.layout import SHARED_SAVEPOINTS, file_reference_path, job_folder, shared_savepoint_path
from tidemark.state.store.store import JobStore

KIND: Final = "loan"

_MEND: Final = (
    "restore the file from a backup of the job store; or, if this job's epochs read no file of another job's any more, delete it, and "
    "{hold} in the folder of the job that it was restored from; until then no file of this job is swept"
)


@dataclass(frozen=True)
class SharedSavepoint:
    """A savepoint that a job was restored from.

    Args:
        token: the token of the lineage that began with it, which the file references have in their names.
        identity: the restore's.
        job: the job that owns the savepoint.
        savepoint: its name.
        claim: whether the restored job disposes of it.
        epoch: the restored epoch.
        owners: other jobs whose files are read.
        at: the time of the restore, milliseconds.
        lineage: the lineage of the savepoint's epoch.
        pinned_at: when the savepoint was taken, milliseconds; None in records of older releases. With the epoch it distinguishes the
            savepoint from another one of its name.
        disposed: whether a claimed savepoint was disposed of: that is done once.
    """

    token: str
    identity: str
    job: str
    savepoint: str
    claim: bool
    epoch: int
    owners: tuple[str, ...]
    at: int
    lineage: str = added_field("")
    pinned_at: int | None = added_field(None)
    disposed: bool = added_field(False)


def acquire_files(driver: Driver, savepoint: Savepoint, record: EpochRecord, *, claim: bool) -> None:
    """Retain the files of other jobs that a lineage's first record needs; called under the driver's term, before the record is appended.

    Args:
        driver: the restored job's.
        savepoint: the savepoint that is restored.
        record: the lineage's first record.
        claim: whether the savepoint becomes the job's.
    """
    files = _files_by_owner(record)
    if not files and not claim:
        return
    folder, now = driver.log.store, driver.log.clock.now_ms()
    identity = record.restored.identity if record.restored is not None else ""
    shared = SharedSavepoint(
        record.lineage,
        identity,
        savepoint.job,
        savepoint.name,
        claim,
        record.epoch,
        tuple(sorted(files)),
        now,
        savepoint.record.lineage,
        savepoint.taken_at,
    )
    _write(folder, shared)
    for owner, paths in files.items():
        reference = FileReference(_reference_name(driver.log.job, shared.token), driver.log.job, now, savepoint.name, tuple(sorted(paths)))
        _add_reference(FileReferences(folder.sibling(job_folder(owner))), reference)
    crash_point("files-held")


def shared_savepoints_of(folder: JobStore) -> tuple[SharedSavepoint, ...]:
    """Return the savepoints that a job shares files with. ``folder`` is the store at the job's folder.

    Raises:
        CorruptStoreError: a record is damaged.
    """
    found = []
    for file in folder.list(SHARED_SAVEPOINTS):
        with suppress(FileNotFoundError):  # the job's current driver has released it since
            found.append(_read(folder, file.path))
    return tuple(found)


def release_unused(driver: Driver, kept: KeptEpochs) -> None:
    """Release files that no epoch needs any more; called by the driver between epochs, with the sweep.

    Args:
        driver: of the job.
        kept: the job's epochs, read after the driver's last one.

    Raises:
        FencedError: a newer driver has begun, which may be acquiring files; nothing was released.
        CorruptStoreError: a record or a file reference is damaged.
    """
    folder = driver.log.store
    all_shared = shared_savepoints_of(folder)
    if not all_shared:
        return
    needed: dict[str, set[str]] = defaultdict(set)
    for decoded in kept.all:
        for owner, paths in _files_by_owner(decoded.record).items():
            needed[owner] |= paths
    retained = {(decoded.record.lineage, decoded.record.epoch) for decoded in kept.retained}
    driver.confirm()
    for shared in all_shared:
        released = [_release(folder, driver.log.job, shared, owner, needed) for owner in shared.owners]
        # Claimed: the job falls back to it as long as the restored epoch is not superseded.
        claimed = shared.claim and not shared.disposed and (shared.token, shared.epoch) in retained
        if shared.claim and not shared.disposed and not claimed and _was_made(folder, shared):
            claimed = not _disposed_of(driver, shared)
            if not claimed and not all(released):
                folder.put(shared_savepoint_path(shared.token), encode_envelope(KIND, to_jsonable(replace(shared, disposed=True))))
        if all(released) and not claimed:
            folder.delete([shared_savepoint_path(shared.token)])


def release_all(folder: JobStore, job: str) -> None:
    """Release all files that a job shares, since the job itself is deleted. ``folder`` is the store at its folder."""
    for shared in shared_savepoints_of(folder):
        for owner in shared.owners:
            FileReferences(folder.sibling(job_folder(owner))).remove(_reference_name(job, shared.token))
        folder.delete([shared_savepoint_path(shared.token)])


def _write(folder: JobStore, shared: SharedSavepoint) -> None:
    """Write the record, unless it exists: a rewind that was killed and resumed acquires the same files again."""
    path = shared_savepoint_path(shared.token)
    try:
        folder.create(path, encode_envelope(KIND, to_jsonable(shared)))
    except FileExistsError:
        if replace(_read(folder, path), at=shared.at) != shared:
            raise


def _read(folder: JobStore, path: str) -> SharedSavepoint:
    """Return the shared savepoint of a record.

    Raises:
        FileNotFoundError: there is none.
        CorruptStoreError: it is damaged.
    """
    data, shown = folder.get(path), str(folder.location.joined(path))
    try:
        _, plain = decode_envelope(data, kind=KIND, path=shown)
        return from_jsonable(SharedSavepoint, plain, path=shown)
    except CorruptStoreError as error:
        token, job = path.removeprefix(f"{SHARED_SAVEPOINTS}/").removesuffix(".json"), folder.prefix.rpartition("/")[2]
        fix = _MEND.format(hold=file_reference_path(_reference_name(job, token)))
        raise CorruptStoreError(error.what, fix=fix, job=job, place=shown) from error


def _add_reference(references: FileReferences, reference: FileReference) -> None:
    try:
        references.put(reference)
    except FileExistsError:
        there = references.get(reference.name)
        if there is None or replace(there, held_at=reference.held_at) != reference:
            raise


def _disposed_of(driver: Driver, shared: SharedSavepoint) -> bool:
    """Dispose of a claimed savepoint; return whether it is disposed of. One that its own job needs now is left to a later sweep."""
    savepoints = SavepointStore(driver.log.store.parent, shared.job, driver.log.clock)
    try:
        there = savepoints.get(shared.savepoint)
        expected = (shared.pinned_at, shared.lineage, shared.epoch)
        if shared.pinned_at is None or (there.taken_at, there.record.lineage, there.record.epoch) == expected:
            savepoints.dispose(shared.savepoint)
    except UnknownSavepointError:
        return True
    except SavepointInUseError:
        return False
    return True


def _was_made(folder: JobStore, shared: SharedSavepoint) -> bool:
    """Return whether the restore of a shared savepoint was made; one that crashed before that claims nothing."""
    entry = read_restore_entry(folder, shared.identity)
    return entry is not None and entry.lineage == shared.token


def _release(folder: JobStore, job: str, shared: SharedSavepoint, owner: str, needed: Mapping[str, set[str]]) -> bool:
    """Remove the reference to an owner's files if none of them is needed; return whether none is left."""
    references = FileReferences(folder.sibling(job_folder(owner)))
    reference = references.get(_reference_name(job, shared.token))
    if reference is not None and not needed.get(owner, set()).isdisjoint(reference.files):
        return False
    references.remove(_reference_name(job, shared.token))
    return True


def _reference_name(job: str, token: str) -> str:
    # A job's name may have a hundred letters, as many as a reference's: the token alone distinguishes references.
    return f"fork-{token}-{job}"[:100].rstrip(".-")


def _files_by_owner(record: EpochRecord) -> dict[str, set[str]]:
    found: dict[str, set[str]] = defaultdict(set)
    for state in record.operators.values():
        for file in state.files:
            if file.owner:
                found[file.owner].add(file.path)
    return dict(found)

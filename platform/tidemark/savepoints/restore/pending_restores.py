"""Restores that a spec requests and no driver has made yet: a file reference keeps their savepoint from retention until then.

A reference without files lies in the folder of the savepoint's job. It is written before the spec, and removed with the restore, or when
the spec requests another; in any case after seven days, like a reference of any abandoned work.
"""

from __future__ import annotations

from contextlib import suppress

from tidemark.clock import Clock
from tidemark.errors import SavepointInUseError, UnknownSavepointError
from tidemark.savepoints.core.disposals import await_disposal
from tidemark.savepoints.model.restore import Restore
from tidemark.state.encoding.envelope import sha256
from tidemark.state.gc.file_references import FileReference, FileReferences
from tidemark.state.gc.pins import Pins
from tidemark.state.log.joblog import JobLog
from tidemark.state.store.layout import job_folder
from tidemark.state.store.store import JobStore


def retain_for(root: JobStore, job: str, restore: Restore, *, clock: Clock) -> None:
    """Retain the savepoint that a job is to be restored from; if it does not exist, the restore reports that.

    Args:
        root: the root store.
        job: the job that is to be restored.
        restore: the restore request.
        clock: the time.

    Raises:
        UnknownSavepointError: it was disposed of just now.
        SavepointInUseError: retention is about to dispose of it.
    """
    owner = restore.job or job
    log = JobLog(root.at(job_folder(owner)), owner)
    if restore.savepoint not in Pins(log).names():
        return
    references, name = FileReferences(log.store), _name(job, restore)
    with suppress(FileExistsError):
        references.put(FileReference(name, job, clock.now_ms(), restore.savepoint, (), lasting=False))
    try:
        await_disposal(log.store, owner, restore.savepoint, clock=clock)
    except SavepointInUseError:
        references.remove(name)
        raise
    # A process that listed references before this one was written may have disposed of the savepoint since.
    if restore.savepoint not in Pins(log).names():
        references.remove(name)
        raise UnknownSavepointError(
            f"savepoint {restore.savepoint!r} of job {owner!r} was disposed of just now", fix="name another one", job=job
        )


def release_for(root: JobStore, job: str, restore: Restore) -> None:
    """Release the savepoint of a restore that was made, or is no longer requested."""
    FileReferences(root.at(job_folder(restore.job or job))).remove(_name(job, restore))


def _name(job: str, restore: Restore) -> str:
    digest = sha256(f"{job}/{restore.identity}/{restore.savepoint}".encode())[:16]
    return f"wish-{digest}-{job}"[:100].rstrip(".-")

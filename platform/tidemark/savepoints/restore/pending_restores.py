"""Restores that a spec asks for and no driver has made yet: their savepoint is held meanwhile, so that retention does not let it go.

A hold without files lies with the savepoint's job. It comes before the spec, and goes with the restore, or when the spec asks for another;
in any case after seven days, as the hold of any work that was given up.
"""

from __future__ import annotations

from contextlib import suppress

from tidemark.errors import UnknownSavepointError
from tidemark.savepoints.model.restore import Restore
from tidemark.state.encoding.envelope import sha256
from tidemark.state.gc.file_references import FileReference, FileReferences
from tidemark.state.gc.pins import Pins
from tidemark.state.log.joblog import JobLog
from tidemark.state.store.layout import job_folder
from tidemark.state.store.store import JobStore


def retain_for(root: JobStore, job: str, restore: Restore, *, now_ms: int) -> None:
    """Hold the savepoint that a job is to be restored from; one that is not there is found missing by the restore.

    Args:
        root: the root store.
        job: that is to be restored.
        restore: which.
        now_ms: the time.

    Raises:
        UnknownSavepointError: it was disposed of just now.
    """
    owner = restore.job or job
    log = JobLog(root.at(job_folder(owner)), owner)
    if restore.savepoint in Pins(log).names():
        with suppress(FileExistsError):
            FileReferences(log.store).put(FileReference(_name(job, restore), job, now_ms, restore.savepoint, (), lasting=False))
        # Whoever looked for holds before that one may have let it go since.
        if restore.savepoint not in Pins(log).names():
            FileReferences(log.store).remove(_name(job, restore))
            raise UnknownSavepointError(
                f"savepoint {restore.savepoint!r} of job {owner!r} was disposed of just now", fix="name another one", job=job
            )


def release_for(root: JobStore, job: str, restore: Restore) -> None:
    """Let go of what is held for a restore that was made, or is not asked for any more."""
    FileReferences(root.at(job_folder(restore.job or job))).remove(_name(job, restore))


def _name(job: str, restore: Restore) -> str:
    digest = sha256(f"{job}/{restore.identity}/{restore.savepoint}".encode())[:16]
    return f"wish-{digest}-{job}"[:100].rstrip(".-")

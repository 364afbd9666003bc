"""The savepoint functions of the public API: by a job or its name, and its store."""

from __future__ import annotations

from tidemark.graph.job.job import Job, require_job
from tidemark.graph.model.call_site import call_site
from tidemark.savepoints.core.savepoint_store import SavepointStore
from tidemark.savepoints.export.export_format import ExportIndex, OnCopy
from tidemark.savepoints.export.exporting import export_savepoint as export
from tidemark.savepoints.export.importing import import_savepoint as take_in
from tidemark.savepoints.model.savepoint import Savepoint
from tidemark.savepoints.rewind.rewind_abort import abort_rewind as abort_in_store
from tidemark.savepoints.rewind.rewinding import OnProgress
from tidemark.state.store.root_store import root_store
from tidemark.state.store.store import JobStore


def savepoints_of(job: Job | str, *, store: str | JobStore | None = None) -> SavepointStore:
    """Return the savepoints of a job: ``take``, ``list``, ``get``, ``diff``, ``dispose``. Starts no JVM; the job may run.

    Args:
        job: the job, or its name.
        store: root of the job store; else the job's own, ``$TIDEMARK_STORE``, or ``.tidemark/jobs``.
    """
    if isinstance(job, Job):
        return SavepointStore(root_store(store, job.store), job.name)
    if not _is_name(job):
        require_job(job, "savepoints_of", call_site())
    return SavepointStore(root_store(store, None), job)


def export_savepoint(
    job: Job | str, name: str, to: str, *, store: str | JobStore | None = None, on_copy: OnCopy | None = None
) -> ExportIndex:
    """Copy a savepoint and its files into one folder, which can be moved and imported elsewhere. Resumes an interrupted export.

    Args:
        job: the job, or its name.
        name: of the savepoint.
        to: the folder, local or of an object store.
        store: root of the job store, as for ``savepoints_of``.
        on_copy: called after each file.

    Raises:
        UnknownSavepointError: there is none of that name.
        DefinitionError: the folder holds something else.
        CorruptStoreError: a file of the savepoint's is missing.
    """
    found = savepoints_of(job, store=store)
    return export(found.folder, found.get(name), to, on_copy=on_copy)


def import_savepoint(
    job: Job | str, source: str, *, name: str | None = None, store: str | JobStore | None = None, on_copy: OnCopy | None = None
) -> Savepoint:
    """Copy an exported savepoint into a job's folder, and verify every file's checksum.

    Args:
        job: the job, or its name; it need not have run yet.
        source: the folder that was exported to.
        name: the savepoint's new name; by default the one it had.
        store: root of the job store, as for ``savepoints_of``.
        on_copy: called after each file.

    Raises:
        InvalidNameError: the job has a savepoint of that name.
        CorruptStoreError: the folder holds no complete export, or a file in it is damaged; nothing was imported.
    """
    return take_in(savepoints_of(job, store=store), source, name=name, on_copy=on_copy)


def abort_rewind(job: Job | str, *, store: str | JobStore | None = None, on_progress: OnProgress | None = None) -> None:
    """Abort an unfinished rewind, provided no table has been reverted; the job resumes from its newest epoch.

    Args:
        job: the job, or its name.
        store: root of the job store, as for ``savepoints_of``.
        on_progress: called with each step, in words.

    Raises:
        RewindError: no rewind is under way, or a table was reverted already; the message says which.
        JobRunningError: the rewinding process is alive.
        UpgradeError: it is a step of an upgrade.
        PublishError: a table cannot be written to; the same call continues the abort.
    """
    found = savepoints_of(job, store=store)
    abort_in_store(found.store, found.job, clock=found.clock, on_progress=on_progress or (lambda _: None))


def _is_name(value: object) -> bool:
    return isinstance(value, str)

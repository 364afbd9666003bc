"""Checks of a job before Spark starts for it, which takes seconds: of what needs no JVM. The run repeats them."""

from __future__ import annotations

from tidemark.graph.job.code_version import code_version
from tidemark.graph.job.folder_checks import check_folders
from tidemark.graph.job.job import Job
from tidemark.graph.job.local_folders import require_folder
from tidemark.graph.model.nodes import SourceNode
from tidemark.graph.model.source_specs import FilesSpec
from tidemark.savepoints.compatibility.checking import check
from tidemark.savepoints.model.restore import Restore
from tidemark.savepoints.model.restore_history import is_restore_due
from tidemark.savepoints.model.rewind_journal import require_no_rewind
from tidemark.state.log.joblog import newest_epoch
from tidemark.state.store.layout import job_folder
from tidemark.state.store.root_store import place_of_root, root_store
from tidemark.state.store.store import JobStore


def store_of_run(job: Job, store: str | JobStore | None, place: str | None = None) -> JobStore:
    """Return the root store of a run; a missing local folder is made once it is known not to lie in a source's or an output's.

    Args:
        job: the job.
        store: as it was given.
        place: where it was given.

    Raises:
        DefinitionError: it names no folder, or one of a source or an output, or one within it.
        StoreError: it cannot be reached.
    """
    check_folders(job, place, store=place_of_root(store, job.store))
    return root_store(store, job.store)


def check_before_start(job: Job, root: JobStore, restore: Restore | None) -> None:
    """Check that a job's folders are there, and that it can resume: from a savepoint, or from its newest epoch if its code is another.

    Raises:
        SourceError: a source's folder is not there.
        StateMismatchError: the stored state does not fit the job.
        SinkError: a table or folder at an output's place does not.
        UnknownSavepointError: there is no such savepoint.
        RewindError: a rewind of the job is not finished.
    """
    for node in job.nodes:
        if isinstance(node, SourceNode) and isinstance(node.spec, FilesSpec):
            require_folder(node, node.spec.path, job=job.name)
    folder = root.at(job_folder(job.name))
    require_no_rewind(folder, job.name)
    head = newest_epoch(root, job.name)
    if restore is not None and is_restore_due(folder, head, restore):
        check(
            job,
            restore.savepoint,
            store=root,
            of=restore.job or None,
            uids=restore.uids,
            columns=restore.columns,
            allow_non_restored_state=restore.allow_non_restored_state,
        ).require()
    elif head is not None and head.code_version != code_version(job):
        check(job, store=root).require()

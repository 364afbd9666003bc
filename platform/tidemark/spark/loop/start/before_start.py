"""Checks of a job before Spark starts for it, which takes seconds: of what needs no JVM. The run repeats them."""

from __future__ import annotations

import shlex
from pathlib import Path

from tidemark.errors import DefinitionError
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
from tidemark.state.store.layout import LOG, job_folder
from tidemark.state.store.root_store import place_of_root, root_store
from tidemark.state.store.store import JobStore


def store_of_run(job: Job, store: str | JobStore | None, place: str | None = None) -> JobStore:
    """Return the root store of a run; a missing local folder is made once it is known not to lie in a source's or an output's.

    Args:
        job: the job.
        store: as it was given.
        place: where it was given.

    Raises:
        DefinitionError: it names no folder, or one of a source or an output, or one within it; or the job's state is in the folder of
            that name in which an earlier build put it.
        StoreError: it cannot be reached.
    """
    check_folders(job, place, store=place_of_root(store, job.store))
    root = root_store(store, job.store)
    _require_not_encoded(root, job.name)
    return root


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


def _require_not_encoded(root: JobStore, job: str) -> None:
    """Refuse to begin a job again that an earlier build ran in the percent-encoded path of its store.

    Raises:
        DefinitionError: its state is there.
    """
    path, encoded = root.location.path, root.location.uri.removeprefix("file://")
    if root.location.scheme != "file" or path == encoded or newest_epoch(root, job) is not None or not Path(encoded, job, LOG).is_dir():
        return
    old, new = Path(encoded, job), Path(path, job)
    shown, there = shlex.quote(str(old)), shlex.quote(str(new))
    # A submitted job has files in its folder already: its spec, and its attempts.
    move = f"cp -a {shown}/. {there} && rm -r {shown}" if new.is_dir() else f"mv {shown} {there}"
    raise DefinitionError(
        f"the state of the job is in {old}, where an earlier build put it: it percent-encoded the path of the store",
        fix=f"move it: `{move}`; if it is another project's job, give this one another name",
        job=job,
        place=str(new),
    )

"""Whether a job's current code could resume from stored state: for continuous integration, before anything is stopped."""

from __future__ import annotations

from collections.abc import Mapping

from tidemark.errors import UnknownJobError
from tidemark.graph.job.job import Job, require_job
from tidemark.graph.model.call_site import call_site
from tidemark.graph.operators.changes import SAME, Names
from tidemark.savepoints.compatibility.state_check import check_compatibility
from tidemark.savepoints.core.savepoint_store import SavepointStore
from tidemark.savepoints.delta.result_tables import check_outputs
from tidemark.savepoints.model.verdict import Verdict
from tidemark.state.log.joblog import newest_epoch
from tidemark.state.log.records import EpochRecord
from tidemark.state.status.status import list_jobs
from tidemark.state.store.layout import job_folder
from tidemark.state.store.root_store import root_store
from tidemark.state.store.store import JobStore

HEAD = "head"
"""Means the newest epoch, in place of a savepoint's name."""


def check(
    job: Job,
    against: str = HEAD,
    *,
    store: str | JobStore | None = None,
    of: str | None = None,
    uids: Names = SAME,
    columns: Mapping[str, Names] | None = None,
    allow_non_restored_state: bool = False,
) -> Verdict:
    """Return whether a job can resume from stored state, positions and result tables; ``.fits`` says so, with every difference.

    Reads small files only and starts no JVM; the verdict on a table that cannot be read is unknown. It knows only types
    that the graph is certain of; Spark infers the others when the job starts.

    Args:
        job: the changed job.
        against: ``head``, the newest epoch, or the name of a savepoint.
        store: root of the job store; the job's own by default.
        of: the job that owns the state; the same by default.
        uids: new uids by stored ones; None for an operator whose state is dropped.
        columns: new names of keys, aggregates and stream columns by old ones, for each uid of the job's operators; None for an aggregate
            whose state is dropped.
        allow_non_restored_state: drop state and positions that belong to nothing in the job.

    Raises:
        UnknownJobError: the store has no such job.
        UnknownStoreError: there is no such store.
        UnknownSavepointError: the job has no such savepoint.
        DefinitionError: a map names something that does not exist.
    """
    require_job(job, "tm.check", call_site())
    root = root_store(store, job.store, make=False)
    record = stored_epoch(root, of or job.name, against)
    outputs = check_outputs(job, record, newest_epoch(root, job.name))
    return check_compatibility(record, job, uids=uids, columns=columns, allow_non_restored_state=allow_non_restored_state, outputs=outputs)


def stored_epoch(root: JobStore, job: str, against: str = HEAD) -> EpochRecord:
    """Return the newest epoch of a job, or that of a savepoint.

    Raises:
        UnknownJobError: the job has committed nothing.
        UnknownSavepointError: the job has no such savepoint.
    """
    if against != HEAD and root.at(job_folder(job)).folders():
        return SavepointStore(root, job).get(against).record
    head = newest_epoch(root, job)
    if head is None:
        raise UnknownJobError(
            f"job {job!r} has no epoch in {root.uri}, which has {', '.join(list_jobs(root)) or 'no jobs'}",
            fix="run it once, name the job that owns the state, or give another store",
            job=job,
        )
    return head

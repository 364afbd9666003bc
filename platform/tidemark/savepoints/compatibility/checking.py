"""Whether a job's code, as it is now, could go on from what is stored: for continuous integration, before anything is stopped."""

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
"""Stands for the newest epoch where a savepoint is to be named."""


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
    """Return what would become of stored state, positions and result tables if a job went on from them; ``.fits`` says whether it may.

    Reads small files only and starts no JVM; of a table that cannot be read the verdict is unknown. Of types it knows
    what the graph is certain of; Spark tells the others when the job starts.

    Args:
        job: the changed job.
        against: ``head``, the newest epoch, or the name of a savepoint.
        store: root of the job store; the job's own by default.
        of: the job whose state it is; the same by default.
        uids: new uids by stored ones; None for an operator whose state is left behind.
        columns: of the job's operators by uid, new names of keys, aggregates and columns of the stream by old ones; None for an aggregate
            whose state is left behind.
        allow_non_restored_state: leave behind what belongs to nothing in the job.

    Raises:
        UnknownJobError: nothing is stored of such a job.
        UnknownStoreError: there is no such store.
        UnknownSavepointError: it has no such savepoint.
        DefinitionError: a map names what is not there.
    """
    require_job(job, "tm.check", call_site())
    root = root_store(store, job.store, make=False)
    record = stored_epoch(root, of or job.name, against)
    outputs = check_outputs(job, record, newest_epoch(root, job.name))
    return check_compatibility(record, job, uids=uids, columns=columns, allow_non_restored_state=allow_non_restored_state, outputs=outputs)


def stored_epoch(root: JobStore, job: str, against: str = HEAD) -> EpochRecord:
    """Return the newest epoch of a job, or that of a savepoint.

    Raises:
        UnknownJobError: nothing is committed of such a job.
        UnknownSavepointError: it has no such savepoint.
    """
    if against != HEAD and root.at(job_folder(job)).folders():
        return SavepointStore(root, job).get(against).record
    head = newest_epoch(root, job)
    if head is None:
        raise UnknownJobError(
            f"job {job!r} has no epoch in {root.uri}, which has {', '.join(list_jobs(root)) or 'no jobs'}",
            fix="run it once, name the job whose state it is, or give another store",
            job=job,
        )
    return head

"""The status of a job, as its driver last reported it: one small file, read without a JVM."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from tidemark.errors import CorruptStoreError, InvalidNameError, TidemarkError
from tidemark.state.encoding.codec import added_field
from tidemark.state.encoding.redaction import redacted
from tidemark.state.log.progress import EpochProgress, OutputRepair
from tidemark.state.log.records import EpochRecord, OwnerInfo
from tidemark.state.log.totals import Totals, empty_totals
from tidemark.state.status.deferred_work import Deferred
from tidemark.state.status.driver_load import Load
from tidemark.state.status.resources import Resources
from tidemark.state.store.documents import read_document, write_document
from tidemark.state.store.layout import LOG, STATUS, job_folder
from tidemark.state.store.store import JobStore

State = Literal["running", "finished", "stopped", "failed"]
KIND = "status"


@dataclass(frozen=True)
class OutputStatus:
    """Status of an output: the sink's kind, its location, Spark's JSON text of its schema if known, and its repairs."""

    sink: str
    location: str | None = None
    schema: str | None = None
    repairs: tuple[OutputRepair, ...] = added_field(())


@dataclass(frozen=True)
class SourceStatus:
    """A source's kind: ``files``, ``elements``, ``rate``, or a format's name; of a Delta table its location, as far as it is known."""

    kind: str
    location: str | None = None


@dataclass(frozen=True)
class JobStatus:
    """A job's status as its driver last wrote it; times are milliseconds since 1970-01-01 UTC.

    A driver that was killed leaves ``running`` behind: compare ``heartbeat_at`` with the lease. ``error_code``, ``error_transient``
    (a retry can help) and ``error_epoch`` are those of ``error``. ``load`` is set by a continuously running driver. ``put_off`` is
    background work that is deferred until its cause is fixed. ``sources`` is None if an older release wrote the status. ``resources`` are
    measured every few seconds from the tenth second of a run on; None before, and if an older release wrote the status.
    """

    job: str
    lineage: str
    state: State
    heartbeat_at: int
    started_at: int
    code_version: str = ""
    last: EpochProgress | None = None
    totals: Totals = field(default_factory=empty_totals)
    outputs: Mapping[str, OutputStatus] = field(default_factory=dict)
    error: str | None = None
    owner: OwnerInfo | None = None
    error_code: str | None = added_field(None)
    error_transient: bool = added_field(False)
    error_epoch: int | None = added_field(None)
    load: Load | None = added_field(None)  # noqa: RUF009 - it returns a field
    put_off: tuple[Deferred, ...] = added_field(())
    sources: Mapping[str, SourceStatus] | None = added_field(None)
    resources: Resources | None = added_field(None)  # noqa: RUF009 - it returns a field

    def with_error(self, error: TidemarkError | None) -> JobStatus:
        """Return the status with an error, or with none. Credentials in the error's text are removed."""
        if error is None:
            return replace(self, error=None, error_code=None, error_transient=False, error_epoch=None)
        return replace(self, error=redacted(str(error)), error_code=error.code, error_transient=error.transient, error_epoch=error.epoch)


def write_status(store: JobStore, status: JobStatus) -> None:
    """Write a job's status. ``store`` is the root store."""
    write_document(store.at(job_folder(status.job)), STATUS, kind=KIND, value=status)


def write_failure(store: JobStore, job: str, error: TidemarkError, *, owner: OwnerInfo, at: int) -> None:
    """Write that a driver failed before it could begin; the job's other fields stay. ``store`` is the root store.

    They stay as an earlier driver wrote them: ``last`` may be an epoch that the job was rewound from since.

    Args:
        store: the root store.
        job: the job's name.
        error: what is wrong.
        owner: the process of the driver.
        at: processing time, milliseconds.
    """
    try:
        known = read_status(store, job)
    except CorruptStoreError:
        known = None
    status = known or JobStatus(job, lineage="", state="failed", heartbeat_at=at, started_at=at)
    write_status(
        store, replace(status, state="failed", heartbeat_at=at, started_at=at, owner=owner, load=None, resources=None).with_error(error)
    )


def write_rewound(store: JobStore, record: EpochRecord) -> None:
    """Write that a job was rewound; called by the rewinding driver. The last driver's report on itself stays, such as an error.

    Args:
        store: the root store.
        record: the epoch that the job resumes from.
    """
    try:
        known = read_status(store, record.job)
    except CorruptStoreError:
        # The next start writes it again.
        return
    if known is None:
        return
    # The input has ended only if it had at the epoch that the job was rewound to.
    state: State = "stopped" if known.state == "finished" and not record.end_of_input else known.state
    write_status(
        store, replace(known, state=state, lineage=record.lineage, last=record.progress, totals=record.totals, load=None, resources=None)
    )


def read_status(store: JobStore, job: str) -> JobStatus | None:
    """Return a job's status, None if it never ran. ``store`` is the root store.

    Raises:
        CorruptStoreError: the file is damaged; the job's next start writes it again.
        FormatError: a newer release wrote it.
    """
    try:
        return read_document(store.at(job_folder(job)), STATUS, kind=KIND, form=JobStatus)
    except CorruptStoreError as error:
        fix = "start the job, which writes the file again, or delete it; the job's log is intact"
        raise CorruptStoreError(error.what, fix=fix, job=job, place=error.place) from error


def list_jobs(store: JobStore) -> list[str]:
    """Return the names of the jobs in a store: the folders that hold a status or a log. ``store`` is the root store."""
    return [name for name in store.folders() if _is_job(store, name)]


def _is_job(store: JobStore, name: str) -> bool:
    try:
        folder = store.at(job_folder(name))
    except InvalidNameError:
        return False
    return folder.exists(STATUS) or LOG in folder.folders()

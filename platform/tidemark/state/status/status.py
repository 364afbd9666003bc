"""What a job is doing, as its driver last said: one small file, read without a JVM."""

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
from tidemark.state.store.documents import read_document, write_document
from tidemark.state.store.layout import LOG, STATUS, job_folder
from tidemark.state.store.store import JobStore

State = Literal["running", "finished", "stopped", "failed"]
KIND = "status"


@dataclass(frozen=True)
class OutputStatus:
    """Where an output goes: the sink's kind, its location, Spark's JSON text of its schema where known, and what was mended there."""

    sink: str
    location: str | None = None
    schema: str | None = None
    repairs: tuple[OutputRepair, ...] = added_field(())


@dataclass(frozen=True)
class SourceStatus:
    """What a source is: ``files``, ``elements``, ``rate``, or a format's name; of a Delta table where it lies, as far as that is known."""

    kind: str
    location: str | None = None


@dataclass(frozen=True)
class JobStatus:
    """A job as its driver last wrote it; times are milliseconds since 1970-01-01 UTC.

    A driver that was killed leaves ``running`` behind: compare ``heartbeat_at`` with the lease. ``error_code``, ``error_transient``
    (trying again can help) and ``error_epoch`` are those of ``error``. ``load`` is there of a driver that runs on. ``put_off`` is work
    beside the epochs that waits until somebody mends something. ``sources`` is None where an older release wrote it.
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

    def with_error(self, error: TidemarkError | None) -> JobStatus:
        """Return the status with an error, or with none. Whatever raised it, no credential of its text is kept."""
        if error is None:
            return replace(self, error=None, error_code=None, error_transient=False, error_epoch=None)
        return replace(self, error=redacted(str(error)), error_code=error.code, error_transient=error.transient, error_epoch=error.epoch)


def write_status(store: JobStore, status: JobStatus) -> None:
    """Write a job's status. ``store`` is the root store."""
    write_document(store.at(job_folder(status.job)), STATUS, kind=KIND, value=status)


def write_failure(store: JobStore, job: str, error: TidemarkError, *, owner: OwnerInfo, at: int) -> None:
    """Write that a driver failed before it could begin; what is known of the job stays. ``store`` is the root store.

    It stays as an earlier driver saw it: ``last`` may be an epoch that the job has gone back from since.

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
    write_status(store, replace(status, state="failed", heartbeat_at=at, started_at=at, owner=owner, load=None).with_error(error))


def write_rewound(store: JobStore, record: EpochRecord) -> None:
    """Write that a job was put back; called by who drives it for that. What its last driver said of itself stays, such as an error.

    Args:
        store: the root store.
        record: the epoch that the job goes on from.
    """
    try:
        known = read_status(store, record.job)
    except CorruptStoreError:
        # The next start writes it anew.
        return
    if known is None:
        return
    # The input has ended only if it had at the epoch that the job is back at.
    state: State = "stopped" if known.state == "finished" and not record.end_of_input else known.state
    write_status(store, replace(known, state=state, lineage=record.lineage, last=record.progress, totals=record.totals, load=None))


def read_status(store: JobStore, job: str) -> JobStatus | None:
    """Return a job's status, None where it never ran. ``store`` is the root store.

    Raises:
        CorruptStoreError: the file is damaged; the job's next start writes it anew.
        FormatError: a newer release wrote it.
    """
    try:
        return read_document(store.at(job_folder(job)), STATUS, kind=KIND, form=JobStatus)
    except CorruptStoreError as error:
        fix = "start the job, which writes the file again, or delete it; its log has all that counts"
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

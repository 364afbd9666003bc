"""Routes that read: lists, status, history, savepoints. They read small files and start no JVM."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Final

from tidemark.control.alerts.engine.alert_silences import Silence, read_silences
from tidemark.control.model.records import Lifecycle
from tidemark.control.model.view import AlertView, Health, JobState, JobView
from tidemark.control.view.change_log import Change, changes_of
from tidemark.control.view.job_views import status_document
from tidemark.errors import UnknownAddressError
from tidemark.savepoints.core.differences import SavepointDifference
from tidemark.savepoints.core.expiry import Expiry
from tidemark.savepoints.core.savepoint_document import savepoint_document
from tidemark.savepoints.core.savepoint_store import SavepointStore
from tidemark.savepoints.model.savepoint import SavepointInfo
from tidemark.savepoints.rewind.rewind_plan import RewindPlan
from tidemark.savepoints.rewind.rewinding import preview_rewind
from tidemark.state.encoding.redaction import redacted
from tidemark.state.log.progress import EpochProgress
from tidemark.state.status.history import read_history
from tidemark.state.status.status import JobStatus
from tidemark.web.access.tokens import Role
from tidemark.web.api.operations import Operation
from tidemark.web.api.routes import ApiRoute, Call, NoForm, Tagged, route
from tidemark.web.api.schemas import Value
from tidemark.web.page.document import tag_of

JOB: Final = "/jobs/{job}"


@dataclass(frozen=True)
class LimitForm:
    """How many of the newest entries are returned."""

    limit: Annotated[int, Value("How many of the newest ones.", minimum=1, maximum=1000, example=20)] = 20


@dataclass(frozen=True)
class SavepointsForm:
    """How many of the newest savepoints are returned; each is a file that is read."""

    limit: Annotated[int, Value("How many of the newest ones.", minimum=1, maximum=100, example=20)] = 20


@dataclass(frozen=True)
class LogForm:
    """How many lines are returned."""

    lines: Annotated[int, Value("How many of the newest lines.", minimum=1, maximum=10_000, example=100)] = 100


@dataclass(frozen=True)
class WhoAmI:
    """The caller: the name, role and prefix of its token. ``token`` is null where the server has none, and only shows jobs."""

    token: str | None
    role: Role
    jobs: str


@dataclass(frozen=True)
class JobSummary:
    """A job in the list. ``lag_seconds`` is null before the first watermark; rows are totals since its lineage began.

    ``alerts`` are those that fire.
    """

    name: str
    state: JobState
    lifecycle: Lifecycle
    health: Health
    epoch: int | None
    lag_seconds: float | None
    rows_per_second: float | None
    rows_read: int
    rows_late: int
    late_share: float | None
    alerts: tuple[AlertView, ...]
    generation: int
    restarts: int
    reason: str
    heartbeat_at: int | None


@dataclass(frozen=True)
class JobList:
    """The jobs that the caller may see, sorted by name. ``at`` is when they were observed, in milliseconds."""

    at: int
    jobs: tuple[JobSummary, ...]


@dataclass(frozen=True)
class JobDocument(JobView):
    """A job at one moment, as `tidemark status JOB --json` prints it; `driver` is the last status of its driver."""

    driver: JobStatus | None = None


@dataclass(frozen=True)
class JobHistory:
    """The newest epochs of a job, oldest first, as `tidemark history JOB --json` prints them."""

    epochs: tuple[EpochProgress, ...]


@dataclass(frozen=True)
class JobChanges:
    """Who changed what of a job, oldest first, as `tidemark history JOB --changes --json` prints it."""

    changes: tuple[Change, ...]


@dataclass(frozen=True)
class SavepointDocument(SavepointInfo):
    """A savepoint, as `tidemark savepoint show --json` prints it. Times are milliseconds."""

    job: str = ""
    name: str = ""
    taken_at: int = 0
    epoch: int = 0
    lineage: str = ""
    restorable_until: int | None = None
    restorable: bool = True
    limits: tuple[Expiry, ...] = ()
    watermarks: dict[str, int | None] | None = None
    held_for: tuple[str, ...] = ()


@dataclass(frozen=True)
class SavepointList:
    """The newest savepoints of a job, oldest first, and how many it has in all."""

    savepoints: tuple[SavepointDocument, ...]
    in_all: int


@dataclass(frozen=True)
class LogLines:
    """The newest lines of the log of a job's driver, on the server's machine; ``place`` is where all of it is."""

    place: str | None
    host: str
    lines: tuple[str, ...]


@dataclass(frozen=True)
class OperationList:
    """The operations on a job that this server carries out or has carried out, oldest first."""

    operations: tuple[Operation, ...]


@dataclass(frozen=True)
class SilenceList:
    """The silences that have not ended, of jobs that the caller may see."""

    silences: tuple[Silence, ...]


def who_am_i(call: Call, form: NoForm) -> WhoAmI:
    """Return the name and the role of the caller's token."""
    del form
    token = call.caller.token
    return WhoAmI(None, "viewer", "") if token is None else WhoAmI(token.name, token.role, token.jobs)


def list_jobs(call: Call, form: NoForm) -> JobList:
    """List the jobs: state, lag, rows, late rows, alerts."""
    del form
    found = [_summary(view) for _, view in call.service.visible(call.caller)]
    return JobList(call.service.clock.now_ms(), tuple(found))


def get_job(call: Call, form: NoForm) -> dict[str, object]:
    """Show a job's state and health, and what to do if it is unhealthy."""
    del form
    return status_document(*call.service.require(call.job))


def get_history(call: Call, form: LimitForm) -> JobHistory:
    """Show a job's newest epochs."""
    call.service.require(call.job)
    return JobHistory(tuple(read_history(call.service.store, call.job, form.limit)))


def get_changes(call: Call, form: LimitForm) -> JobChanges:
    """Show who changed what of a job, and the starts and failures of its drivers."""
    call.service.require(call.job)
    return JobChanges(changes_of(call.service.store, call.job, form.limit))


def list_savepoints(call: Call, form: SavepointsForm) -> dict[str, object]:
    """List a job's newest savepoints, and how many there are."""
    savepoints = savepoints_of(call)
    found, in_all = savepoints.newest(form.limit)
    pairs = zip(found, savepoints.restorable(*found), strict=True)
    listed = [savepoint_document(item, limits, savepoints.file_references(item.name)) for item, limits in pairs]
    return {"savepoints": listed, "in_all": in_all}


def get_savepoint(call: Call, form: NoForm) -> dict[str, object]:
    """Show a savepoint: its state, tables, references, and until when it can be restored."""
    del form
    savepoints, name = savepoints_of(call), call.path["savepoint"]
    found = savepoints.get(name)
    return savepoint_document(found, savepoints.restorable(found)[0], savepoints.file_references(name))


def get_rewind_plan(call: Call, form: NoForm) -> RewindPlan:
    """Show what a rewind to a savepoint would do, and what blocks it."""
    del form
    savepoints = savepoints_of(call)
    return preview_rewind(savepoints.store, call.job, call.path["savepoint"], clock=call.service.clock)


def get_savepoint_difference(call: Call, form: NoForm) -> SavepointDifference:
    """Show what changed from one savepoint of a job to another."""
    del form
    return savepoints_of(call).diff(call.path["savepoint"], call.path["other"])


def get_log(call: Call, form: LogForm) -> LogLines:
    """Show the newest lines of the log of a job's driver on the server's machine."""
    seen, _ = call.service.require(call.job)
    handle = seen.handle
    if handle is None:
        raise UnknownAddressError(
            f"job {call.job!r} has no driver log: it was not started yet, or was started with `tidemark run`",
            fix="start it; or read the log where it was started",
            job=call.job,
        )
    launcher = call.service.launchers.get(handle.launcher)
    # A driver's own lines hide credentials; what its JVM and its code print, which is shown where there is no log, may not.
    lines = launcher.logs(handle, form.lines) if launcher is not None else ()
    return LogLines(handle.log, handle.host, tuple(redacted("\n".join(lines)).split("\n")) if lines else ())


def get_page(call: Call, form: NoForm) -> Tagged:
    """Show all that the page of a job shows, with an entity tag that changes when it does."""
    del form
    document = call.service.pages.page(call.job)
    return Tagged(document, tag_of(document))


def list_operations(call: Call, form: NoForm) -> OperationList:
    """List the operations on a job that this server carries out, or has carried out."""
    del form
    call.service.require(call.job)
    return OperationList(call.service.operations.of_job(call.job))


def get_operation(call: Call, form: NoForm) -> Operation:
    """Show an operation: its progress, and its result or error."""
    del form
    found = call.service.operations.find(call.job, call.path["operation"])
    if found is None:
        raise UnknownAddressError(
            f"this server has no operation {call.path['operation']!r} on job {call.job!r}",
            fix="see the job itself: GET /api/v1/jobs/{job} and its changes; a server forgets its operations when it ends",
            job=call.job,
        )
    return found


def list_silences(call: Call, form: NoForm) -> SilenceList:
    """List the silences of alerts that have not ended."""
    del form
    found = read_silences(call.service.store, call.service.clock.now_ms())
    return SilenceList(tuple(silence for silence in found if call.caller.covers(silence.jobs)))


def savepoints_of(call: Call) -> SavepointStore:
    """Return the savepoints of the call's job.

    Raises:
        UnknownAddressError: there is no such job.
    """
    call.service.require(call.job)
    return SavepointStore(call.service.store, call.job, call.service.clock)


def _summary(view: JobView) -> JobSummary:
    return JobSummary(
        view.job,
        view.state,
        view.lifecycle,
        view.health,
        view.epoch,
        view.lag_ms / 1000 if view.lag_ms is not None else None,
        view.rows_per_second,
        view.rows.read,
        view.rows.late,
        view.late_share,
        view.alerts,
        view.generation,
        view.restarts_done,
        view.reason,
        view.heartbeat_at,
    )


READS: Final[tuple[ApiRoute, ...]] = (
    route("GET", "/me", who_am_i, NoForm, role="viewer", answer=WhoAmI, group="access"),
    route("GET", "/jobs", list_jobs, NoForm, role="viewer", answer=JobList),
    route("GET", JOB, get_job, NoForm, role="viewer", answer=JobDocument),
    route("GET", f"{JOB}/page", get_page, NoForm, role="viewer", answer=dict[str, object]),
    route("GET", f"{JOB}/history", get_history, LimitForm, role="viewer", answer=JobHistory),
    route("GET", f"{JOB}/changes", get_changes, LimitForm, role="viewer", answer=JobChanges),
    route("GET", f"{JOB}/log", get_log, LogForm, role="operator", answer=LogLines),
    route("GET", f"{JOB}/savepoints", list_savepoints, SavepointsForm, role="viewer", answer=SavepointList, group="savepoints"),
    route("GET", f"{JOB}/savepoints/{{savepoint}}", get_savepoint, NoForm, role="viewer", answer=SavepointDocument, group="savepoints"),
    route(
        "GET", f"{JOB}/savepoints/{{savepoint}}/rewind-plan", get_rewind_plan, NoForm, role="viewer", answer=RewindPlan, group="savepoints"
    ),
    route(
        "GET",
        f"{JOB}/savepoints/{{savepoint}}/difference/{{other}}",
        get_savepoint_difference,
        NoForm,
        role="viewer",
        answer=SavepointDifference,
        group="savepoints",
    ),
    route("GET", f"{JOB}/operations", list_operations, NoForm, role="viewer", answer=OperationList, group="operations"),
    route("GET", f"{JOB}/operations/{{operation}}", get_operation, NoForm, role="viewer", answer=Operation, group="operations"),
    route("GET", "/silences", list_silences, NoForm, role="viewer", answer=SilenceList, group="alerts"),
)

"""Routes that change a job's desired state: submit, start, stop, cancel, restart, rescale."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Final

from tidemark.control.client.savepoint_client import SavepointClient
from tidemark.control.model.autoscaler_settings import AutoscalerSettings
from tidemark.control.model.spec import AlertThresholds, JobSpec, LauncherName, RestartPolicy, StopMode
from tidemark.durations import to_ms
from tidemark.errors import RequestFormError
from tidemark.savepoints.core.savepoint_document import savepoint_document
from tidemark.state.log.progress import MissingEpochs
from tidemark.web.api.operations import Report
from tidemark.web.api.reads import JOB
from tidemark.web.api.routes import Accepted, ApiRoute, Call, route
from tidemark.web.api.schemas import Value
from tidemark.web.api.waits import TEXT_AT_MOST, Duration, WaitForm, change_and_wait, job_client

Code = Annotated[str, Value("The code, as MODULE:JOB.", pattern=r"[^:\s]+:[^:\s]+", longest=TEXT_AT_MOST, example="new_fares:job")]


@dataclass(frozen=True)
class StartForm(WaitForm):
    """A start, of a stopped or failed job."""

    missing_epochs: Annotated[
        MissingEpochs | None,
        Value(
            "If an output no longer holds epochs that were published: publish them again, or continue without them. Null fails.",
            role="admin",
        ),
    ] = None


@dataclass(frozen=True)
class StopForm(WaitForm):
    """A stop after the current epoch."""

    drain: Annotated[bool, Value("First read all input and close all windows: the input has ended for good.", role="admin")] = False
    savepoint: Annotated[
        str | None,
        Value("Take a savepoint of this name once it has stopped; an empty name is made up. Null takes none.", longest=100),
    ] = None


@dataclass(frozen=True)
class RescaleForm(WaitForm):
    """Another parallelism, from the driver's next epoch on."""

    parallelism: Annotated[int | None, Value("Shuffle partitions; null is as the job has it.", minimum=1, maximum=100_000, example=8)] = (
        None
    )


@dataclass(frozen=True, kw_only=True)
class SubmitForm(WaitForm):
    """A job's spec, as `tidemark submit --name` takes it. Paths are those of the machine that starts drivers; no secrets."""

    code: Code
    version: Annotated[str, Value("A label of the code; changing it restarts the driver.", longest=TEXT_AT_MOST)] = ""
    suspended: Annotated[bool, Value("Do not start it yet.")] = False
    trigger: Duration = "10 seconds"
    parallelism: Annotated[int | None, Value("Shuffle partitions; null is as the job has it.", minimum=1, maximum=100_000)] = None
    launcher: LauncherName = "local"
    master: Annotated[str, Value("Spark master.", longest=TEXT_AT_MOST)] = "local[*]"
    conf: Mapping[str, str] = field(default_factory=dict)
    code_paths: tuple[str, ...] = ()
    folder: Annotated[str | None, Value("Working directory of the driver; null is that of the process that starts it.")] = None
    variables: Mapping[str, str] = field(default_factory=dict)
    restart: RestartPolicy = field(default_factory=RestartPolicy)
    alerts: AlertThresholds = field(default_factory=AlertThresholds)
    autoscaler: AutoscalerSettings = field(default_factory=AutoscalerSettings)
    adaptive_intake: bool = False
    standby: bool = False
    hang_after: Annotated[str | None, Value("An epoch that takes this long hangs.", longest=100)] = None
    missing_epochs: MissingEpochs | None = None


def submit_job(call: Call, form: SubmitForm) -> Accepted:
    """Submit a job, or change its spec; a new job's name is that of the address."""
    spec = JobSpec(
        call.job,
        form.code,
        version=form.version,
        wanted="suspended" if form.suspended else "running",
        trigger_ms=to_ms(form.trigger, what="trigger"),
        parallelism=form.parallelism,
        launcher=form.launcher,
        master=form.master,
        conf=form.conf,
        code_paths=form.code_paths,
        folder=form.folder,
        variables=form.variables,
        restart=form.restart,
        adaptive_intake=form.adaptive_intake,
        autoscaler=form.autoscaler,
        standby=form.standby,
        alerts=form.alerts,
        hang_after_ms=to_ms(form.hang_after, what="hang_after") if form.hang_after is not None else None,
    )
    return change_and_wait(
        call,
        form,
        "submit",
        "ended" if form.suspended else "working",
        lambda: job_client(call).submit(spec, form.why, missing_epochs=form.missing_epochs),
    )


def start_job(call: Call, form: StartForm) -> Accepted:
    """Start a stopped or failed job."""
    call.service.require(call.job)
    return change_and_wait(
        call, form, "start", "working", lambda: job_client(call).start(call.job, form.why, missing_epochs=form.missing_epochs)
    )


def stop_job(call: Call, form: StopForm) -> Accepted:
    """Stop a job after the current epoch; drain first, or take a savepoint afterwards, if asked to."""
    call.service.require(call.job)
    client = SavepointClient(call.service.store, call.job, call.caller.author, call.service.clock)
    if form.savepoint is not None and not form.wait:
        raise RequestFormError(
            "the savepoint is taken after the job has ended, and without `wait` nothing waits for that",
            fix="leave one of them out",
            job=call.job,
        )
    if form.savepoint:
        client.savepoints.require_free(form.savepoint)

    def then(report: Report) -> dict[str, object]:
        if form.savepoint is None:
            return {}
        taken = client.take(form.savepoint or None, kind="stop", note=form.why)
        report(str(taken))
        return {"savepoint": savepoint_document(taken, client.savepoints.restorable(taken)[0])}

    how: StopMode = "drain" if form.drain else "finish"
    return change_and_wait(call, form, "stop", "ended", lambda: job_client(call).stop(call.job, how, form.why), then=then)


def cancel_job(call: Call, form: WaitForm) -> Accepted:
    """End a job's driver at once; the next driver runs the current epoch again."""
    call.service.require(call.job)
    return change_and_wait(call, form, "cancel", "ended", lambda: job_client(call).stop(call.job, "now", form.why))


def restart_job(call: Call, form: WaitForm) -> Accepted:
    """Restart a job's driver after the current epoch."""
    call.service.require(call.job)
    return change_and_wait(call, form, "restart", "working", lambda: job_client(call).restart(call.job, form.why))


def rescale_job(call: Call, form: RescaleForm) -> Accepted:
    """Change a job's parallelism from its driver's next epoch on, without a restart."""
    call.service.require(call.job)
    return change_and_wait(call, form, "rescale", "running", lambda: job_client(call).rescale(call.job, form.parallelism, form.why))


CONTROL_CHANGES: Final[tuple[ApiRoute, ...]] = (
    route("POST", f"{JOB}/submit", submit_job, SubmitForm, role="admin", answer=Accepted, status=202),
    route("POST", f"{JOB}/start", start_job, StartForm, role="operator", answer=Accepted, status=202),
    route("POST", f"{JOB}/stop", stop_job, StopForm, role="operator", answer=Accepted, status=202),
    route("POST", f"{JOB}/cancel", cancel_job, WaitForm, role="operator", answer=Accepted, status=202),
    route("POST", f"{JOB}/restart", restart_job, WaitForm, role="operator", answer=Accepted, status=202),
    route("POST", f"{JOB}/rescale", rescale_job, RescaleForm, role="operator", answer=Accepted, status=202),
)

"""Routes that take, dispose of, export and import savepoints, restore from them, and rewind to them."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Final

from tidemark.control.client.savepoint_client import SavepointClient
from tidemark.control.rewind.rewind_job import Rewinder
from tidemark.control.upgrade.code_check import Maps
from tidemark.control.upgrade.restore_request import RestoreRequest, request_restore
from tidemark.control.view.view_line import view_line
from tidemark.durations import to_ms
from tidemark.savepoints.core.retention import SavepointRetention
from tidemark.savepoints.core.savepoint_document import savepoint_document
from tidemark.savepoints.export.export_format import CopyProgress
from tidemark.savepoints.rewind.rewinding import require_possible
from tidemark.web.api.operations import Report
from tidemark.web.api.reads import JOB, SavepointDocument
from tidemark.web.api.routes import Accepted, ApiRoute, Call, NoForm, route
from tidemark.web.api.schemas import Value
from tidemark.web.api.waits import (
    TEXT_AT_MOST,
    Duration,
    Name,
    Timeout,
    WaitForm,
    WhyForm,
    begin,
    change_and_wait,
    reached,
    require_reached,
)

Place = Annotated[str, Value("A folder: a path on the server's machine, or an address of an object store.", longest=TEXT_AT_MOST)]


@dataclass(frozen=True)
class SavepointForm:
    """A savepoint to take."""

    name: Annotated[str | None, Value("Its name; null makes up sp-EPOCH-TIME.", longest=100, example="before")] = None
    epoch: Annotated[int | None, Value("A retained epoch; null is the newest.", minimum=0)] = None
    lineage: Annotated[str | None, Value("The epoch's lineage; null is the newest that has it.", longest=100)] = None
    note: Annotated[str, Value("What it is for.", longest=TEXT_AT_MOST)] = ""
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class RetireForm(WhyForm):
    """How many automatic savepoints are kept, and how long."""

    keep: Annotated[int, Value("How many are kept.", minimum=0, maximum=100_000)] = 10
    age: Duration = "7 days"


@dataclass(frozen=True)
class ExportForm:
    """Where a savepoint is copied to."""

    to: Place


@dataclass(frozen=True)
class ImportForm:
    """Where a savepoint was exported to, and its name here."""

    source: Place
    name: Annotated[str | None, Value("Its name here; null is the one it had.", longest=100)] = None


@dataclass(frozen=True, kw_only=True)
class RewindForm(WhyForm):
    """A rewind of a job, with its tables."""

    savepoint: Name
    stop: Annotated[bool, Value("Stop a running job first, and start it again afterwards; without it the job must not run.")] = False
    timeout: Timeout = "10 minutes"


@dataclass(frozen=True, kw_only=True)
class RestoreForm(WaitForm):
    """A restore of a submitted job: state and positions are the savepoint's, tables stay as they are."""

    savepoint: Name
    savepoint_of: Annotated[str, Value("The job whose savepoint it is; empty is the same.", longest=100)] = ""
    key: Annotated[
        str | None,
        Value("Identifies the request: one that is sent again with the same key restores once. Null restores each time.", longest=100),
    ] = None
    uids: Mapping[str, str] = field(default_factory=dict)
    columns: Mapping[str, Mapping[str, str | None]] = field(default_factory=dict)
    allow_non_restored_state: Annotated[bool, Value("Drop state that nothing in the code claims.")] = False
    claim: Annotated[bool, Value("Dispose of the savepoint once the job no longer needs it.")] = False
    parallelism: Annotated[int | None, Value("Shuffle partitions from then on; null leaves them.", minimum=1, maximum=100_000)] = None


@dataclass(frozen=True)
class Disposed:
    """The savepoints that were disposed of."""

    job: str
    disposed: tuple[str, ...]


@dataclass(frozen=True)
class AbortedRewind:
    """A rewind that was aborted, by its savepoint."""

    job: str
    savepoint: str


def take_savepoint(call: Call, form: SavepointForm) -> dict[str, object]:
    """Take a savepoint of a job, whether it runs or not."""
    client = _client(call)
    taken = client.take(form.name, epoch=form.epoch, lineage=form.lineage, note=form.note, labels=form.labels)
    return savepoint_document(taken, client.savepoints.restorable(taken)[0])


def dispose_of_savepoint(call: Call, form: WhyForm) -> Disposed:
    """Dispose of a savepoint; a later sweep deletes the files that only it kept."""
    return Disposed(call.job, tuple(each.name for each in _client(call).dispose([call.path["savepoint"]], form.why)))


def retire_savepoints(call: Call, form: RetireForm) -> Disposed:
    """Dispose of the automatic savepoints that retention no longer keeps."""
    retention = SavepointRetention(form.keep, to_ms(form.age, what="age"))
    return Disposed(call.job, tuple(each.name for each in _client(call).retire(retention, form.why)))


def export_savepoint(call: Call, form: ExportForm) -> Accepted:
    """Copy a savepoint with all its files into a folder; the same request resumes where it stopped."""
    client, name = _client(call), call.path["savepoint"]
    client.savepoints.get(name)

    def work(report: Report) -> object:
        index = client.export(name, form.to, on_copy=_copied(report))
        return {"name": name, "to": form.to, "files": len(index.files), "bytes": index.bytes}

    return begin(call, "export", work)


def import_savepoint(call: Call, form: ImportForm) -> Accepted:
    """Import an exported savepoint into a job, which need not have run yet."""
    client = SavepointClient(call.service.store, call.job, call.caller.author, call.service.clock)

    def work(report: Report) -> object:
        taken = client.take_in(form.source, form.name, on_copy=_copied(report))
        return savepoint_document(taken, client.savepoints.restorable(taken)[0])

    return begin(call, "import", work)


def rewind_job(call: Call, form: RewindForm) -> Accepted:
    """Rewind a job to a savepoint, with its tables; after a crash the same request continues."""
    service, timeout_ms = call.service, to_ms(form.timeout, what="timeout", minimum=1)
    service.require(call.job)
    require_possible(service.store, call.job, form.savepoint, clock=service.clock)

    def work(report: Report) -> object:
        rewinder = Rewinder(
            service.store,
            service.launchers,
            timeout_ms,
            call.caller.author,
            service.clock,
            on_progress=report,
            on_status=lambda view: report(view_line(view)),
        )
        done = rewinder.rewind(call.job, form.savepoint, stop=form.stop, why=form.why)
        result: dict[str, object] = {"savepoint": form.savepoint, "epoch": done.head.epoch, "lineage": done.head.lineage}
        if done.view is not None:
            require_reached(done.view, "running")
            result["job"] = reached(done.view)
        return result

    return begin(call, "rewind", work)


def restore_job(call: Call, form: RestoreForm) -> Accepted:
    """Restore a job from a savepoint; its tables keep the rows of later epochs, which it writes again."""
    service = call.service
    service.require(call.job)
    if form.savepoint_of:
        call.caller.require("admin", form.savepoint_of)
    request = RestoreRequest(
        call.job,
        form.savepoint,
        f"api/{form.key or secrets.token_hex(8)}",
        savepoint_of=form.savepoint_of,
        maps=Maps(form.uids, form.columns, form.allow_non_restored_state),
        mode="claim" if form.claim else "no-claim",
        parallelism=form.parallelism,
    )
    return change_and_wait(
        call,
        form,
        "restore",
        "running",
        lambda: (
            request_restore(
                service.store, request, by=call.caller.author, why=form.why, clock=service.clock, judge=service.judge
            ).generation
        ),
    )


def abort_rewind(call: Call, form: NoForm) -> AbortedRewind:
    """Abort an unfinished rewind; only possible while no table was reverted."""
    del form
    service = call.service
    service.require(call.job)
    journal = Rewinder(service.store, service.launchers, 0, call.caller.author, service.clock).abort(call.job)
    return AbortedRewind(call.job, journal.savepoint)


def _client(call: Call) -> SavepointClient:
    call.service.require(call.job)
    return SavepointClient(call.service.store, call.job, call.caller.author, call.service.clock)


def _copied(report: Report) -> Callable[[CopyProgress], None]:
    return lambda copied: report(f"{copied.files}/{copied.of_files} files, {copied.bytes}/{copied.of_bytes} bytes")


_SAVEPOINT: Final = f"{JOB}/savepoints/{{savepoint}}"

SAVEPOINT_CHANGES: Final[tuple[ApiRoute, ...]] = (
    route(
        "POST",
        f"{JOB}/savepoints",
        take_savepoint,
        SavepointForm,
        role="operator",
        answer=SavepointDocument,
        status=201,
        group="savepoints",
    ),
    route("DELETE", _SAVEPOINT, dispose_of_savepoint, WhyForm, role="admin", answer=Disposed, group="savepoints"),
    route("POST", f"{JOB}/retire-savepoints", retire_savepoints, RetireForm, role="admin", answer=Disposed, group="savepoints"),
    route("POST", f"{_SAVEPOINT}/export", export_savepoint, ExportForm, role="admin", answer=Accepted, status=202, group="savepoints"),
    route("POST", f"{JOB}/import-savepoint", import_savepoint, ImportForm, role="admin", answer=Accepted, status=202, group="savepoints"),
    route("POST", f"{JOB}/rewind", rewind_job, RewindForm, role="admin", answer=Accepted, status=202, group="savepoints"),
    route("POST", f"{JOB}/restore", restore_job, RestoreForm, role="admin", answer=Accepted, status=202, group="savepoints"),
    route("POST", f"{JOB}/rewind/abort", abort_rewind, NoForm, role="admin", answer=AbortedRewind, group="savepoints"),
)

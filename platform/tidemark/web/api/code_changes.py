"""Routes that change a job's code: check, upgrade, fork, promote, discard. They import and start code that the request names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Final

from tidemark.control.desired.request_log import log_request
from tidemark.control.desired.spec_store import require_spec
from tidemark.control.forks.discarding import discard
from tidemark.control.forks.forks import fork
from tidemark.control.forks.promoting import promotion_of
from tidemark.control.model.upgrade_records import UpgradeCheck, UpgradeStep, report_upgrade_check
from tidemark.control.upgrade.code_check import Maps
from tidemark.control.upgrade.upgrade_coordinator import Upgrading
from tidemark.control.upgrade.upgrade_request import UpgradeRequest, begin_upgrade
from tidemark.durations import to_ms
from tidemark.errors import UpgradeError
from tidemark.savepoints.compatibility.checking import HEAD
from tidemark.savepoints.model.verdict import Fit, Verdict
from tidemark.web.api.control_changes import Code
from tidemark.web.api.operations import Report
from tidemark.web.api.reads import JOB
from tidemark.web.api.routes import PREFIX, Accepted, ApiRoute, Call, NoForm, route
from tidemark.web.api.schemas import Value
from tidemark.web.api.waits import TEXT_AT_MOST, Duration, Name, Timeout, Wait, WaitForm, WhyForm, begin, change_and_wait


@dataclass(frozen=True, kw_only=True)
class CodeForm(WhyForm):
    """New code for stored state: where it is, and what was renamed."""

    version: Annotated[str, Value("A label of the code.", longest=TEXT_AT_MOST)] = ""
    code_paths: Annotated[tuple[str, ...] | None, Value("Folders, zips and wheels with it; null leaves them unchanged.")] = None
    folder: Annotated[str | None, Value("Working directory of its driver; null leaves it unchanged.", longest=TEXT_AT_MOST)] = None
    variables: Mapping[str, str] = field(default_factory=dict)
    uids: Mapping[str, str] = field(default_factory=dict)
    columns: Mapping[str, Mapping[str, str | None]] = field(default_factory=dict)
    allow_non_restored_state: Annotated[bool, Value("Drop state that nothing in the code claims.")] = False

    @property
    def maps(self) -> Maps:
        """The renames."""
        return Maps(self.uids, self.columns, self.allow_non_restored_state)


@dataclass(frozen=True, kw_only=True)
class CheckForm(CodeForm):
    """Code to be compared with stored state."""

    code: Code
    against: Annotated[str, Value("A savepoint, or head for the newest epoch.", longest=100)] = HEAD


@dataclass(frozen=True)
class Checked:
    """A verdict on code: whether it is compatible (`fits`), and every finding."""

    status: Fit
    fits: bool
    verdict: Verdict


@dataclass(frozen=True, kw_only=True)
class Probation:
    """What new code must do before its upgrade is done, and how long to wait for that."""

    good_epochs: Annotated[int, Value("Epochs that the new code must commit.", minimum=1, maximum=1_000_000)] = 3
    checks_within: Duration = "5 minutes"
    checks: Annotated[tuple[str, ...], Value("Names of checks that must pass in that time.")] = ()
    wait: Wait = True
    timeout: Timeout = "30 minutes"


@dataclass(frozen=True, kw_only=True)
class UpgradeForm(Probation, CodeForm):
    """An upgrade to new code; without code the upgrade under way is continued."""

    code: Code | None = None
    savepoint: Annotated[str, Value("Rewind to it first; empty continues where the job is.", longest=100)] = ""


@dataclass(frozen=True, kw_only=True)
class PromoteForm(Probation, WhyForm):
    """An upgrade of a job to the code of its fork."""

    version: Annotated[str, Value("A label of the fork's code; empty is the fork's version.", longest=TEXT_AT_MOST)] = ""


@dataclass(frozen=True, kw_only=True)
class EndUpgradeForm(WaitForm):
    """The end of an upgrade by hand."""

    timeout: Timeout = "30 minutes"


@dataclass(frozen=True, kw_only=True)
class CheckResultForm:
    """The result of a check of the new code."""

    passed: bool
    text: Annotated[str, Value("What was found.", longest=TEXT_AT_MOST)] = ""


@dataclass(frozen=True, kw_only=True)
class ForkForm(CodeForm, WaitForm):
    """A variant of a job: from a savepoint, with separate tables."""

    savepoint: Name
    name: Name
    code: Code | None = None
    outputs: Annotated[str | None, Value("Folder of its tables; null is in its own folder.", longest=TEXT_AT_MOST)] = None
    start: Annotated[bool, Value("Start it at once.")] = True


@dataclass(frozen=True)
class Discarded:
    """A fork that was deleted, and the places that were deleted with it."""

    job: str
    deleted: tuple[str, ...]


def check_code(call: Call, form: CheckForm) -> Checked:
    """Check whether changed code is compatible with a job's stored state; changes nothing."""
    service = call.service
    service.require(call.job)
    spec = require_spec(service.store, call.job).spec
    changed = replace(
        spec,
        code=form.code,
        definition=None,
        code_paths=spec.code_paths if form.code_paths is None else form.code_paths,
        folder=form.folder or spec.folder,
        variables={**spec.variables, **form.variables},
    )
    found = service.judge(service.store, changed, form.maps, form.against, call.job)
    return Checked(found.status, found.fits, found)


def upgrade_job(call: Call, form: UpgradeForm) -> Accepted:
    """Upgrade a job: check the new code, stop, take a savepoint, start it, watch it; roll back if it is unhealthy."""
    service = call.service
    service.require(call.job)
    if form.code is None:
        return _carry_out(call, call.job, "upgrade", form.timeout, wait=form.wait)
    request = UpgradeRequest(
        call.job,
        form.code,
        version=form.version,
        code_paths=form.code_paths,
        folder=form.folder,
        variables=form.variables,
        maps=form.maps,
        good_epochs=form.good_epochs,
        within_ms=to_ms(form.checks_within, what="checks_within"),
        checks=form.checks,
        back_to=form.savepoint,
    )
    return _begin(call, request, "upgrade", form, form.why)


def promote_fork(call: Call, form: PromoteForm) -> Accepted:
    """Upgrade a job to the code of its fork, which the address names: the job rewinds to where the fork began, and resumes with it."""
    call.service.require(call.job)
    within = to_ms(form.checks_within, what="checks_within")
    request = promotion_of(
        call.service.store, call.job, version=form.version, good_epochs=form.good_epochs, within_ms=within, checks=form.checks
    )
    call.caller.require("admin", request.job)
    return _begin(call, request, "promote", form, form.why or f"promotion of {call.job}")


def get_upgrade(call: Call, form: NoForm) -> UpgradeStep:
    """Show the newest step of a job's newest upgrade."""
    del form
    call.service.require(call.job)
    return _upgrading(call).require_step(call.job)


def abort_upgrade(call: Call, form: EndUpgradeForm) -> Accepted:
    """Roll back the upgrade that is under way."""
    call.service.require(call.job)
    _upgrading(call).require_abort(call.job, form.why)
    return _carry_out(call, call.job, "abort-upgrade", form.timeout, wait=form.wait)


def accept_upgrade(call: Call, form: EndUpgradeForm) -> Accepted:
    """Keep the new code of the upgrade under way, whatever its checks said."""
    call.service.require(call.job)
    _upgrading(call).accept(call.job, form.why)
    return _carry_out(call, call.job, "accept-upgrade", form.timeout, wait=form.wait)


def report_check(call: Call, form: CheckResultForm) -> UpgradeCheck:
    """Report the result of a check of the new code during its probation; the newest result of each check counts."""
    service, name = call.service, call.path["check"]
    service.require(call.job)
    step = _upgrading(call).require_step(call.job)
    if step.step != "watching":
        # What was found before is of the old code's results.
        what = "no upgrade is under way" if step.ended else "the new code is not watched now"
        raise UpgradeError(f"{what}: {step}", fix="report the check while the new code is watched", job=call.job)
    check = UpgradeCheck(step.upgrade.identity, name, form.passed, service.clock.now_ms(), form.text)
    word = "passed" if form.passed else "failed"
    log_request(service.store, call.job, f"check {name} of {check.upgrade} {word}", by=call.caller.author, clock=service.clock)
    report_upgrade_check(service.store, call.job, check)
    return check


def fork_job(call: Call, form: ForkForm) -> Accepted:
    """Start a variant of a job from a savepoint: same input, other code or parameters, separate tables."""
    service = call.service
    call.caller.require("admin", form.name)
    service.require(call.job)
    # A fork that is not started has nothing to wait for.
    waits = form if form.start else replace(form, wait=False)
    return change_and_wait(
        call,
        waits,
        "fork",
        "working",
        lambda: fork(
            service.store,
            call.job,
            form.savepoint,
            name=form.name,
            code=form.code,
            version=form.version,
            code_paths=form.code_paths,
            folder=form.folder,
            variables=form.variables,
            outputs=form.outputs,
            maps=form.maps,
            start=form.start,
            by=call.caller.author,
            why=form.why,
            clock=service.clock,
            judge=service.judge,
        ),
    )


def discard_fork(call: Call, form: NoForm) -> Discarded:
    """Delete a stopped fork, which the address names, with its tables."""
    del form
    call.service.require(call.job)
    return Discarded(call.job, discard(call.service.store, call.job, by=call.caller.author, clock=call.service.clock))


def _begin(call: Call, request: UpgradeRequest, action: str, form: Probation, why: str) -> Accepted:
    service = call.service
    if form.wait:
        service.operations.require_room(request.job)
    to_ms(form.timeout, what="timeout", minimum=1)  # a wrong one is refused before anything is begun
    begin_upgrade(
        service.store, request, launchers=service.launchers, by=call.caller.author, why=why, clock=service.clock, judge=service.judge
    )
    return _carry_out(call, request.job, action, form.timeout, wait=form.wait)


def _carry_out(call: Call, job: str, action: str, timeout: str, *, wait: bool) -> Accepted:
    """Carry the upgrade under way out in an operation; or leave that to a supervisor."""
    timeout_ms = to_ms(timeout, what="timeout", minimum=1)
    _upgrading(call).require_step(job)
    if not wait:
        return Accepted(job, action, f"{PREFIX}/jobs/{job}/upgrade")

    def work(report: Report) -> object:
        end = _upgrading(call, report).resume(job, timeout_ms=timeout_ms)
        if end.step == "rolled-back" and action != "abort-upgrade":
            raise UpgradeError(str(end), fix="correct the new code, and upgrade again", job=job)
        return {"step": end.step, "text": str(end)}

    return begin(call, action, work, job=job)


def _upgrading(call: Call, report: Report = lambda _: None) -> Upgrading:
    service = call.service
    return Upgrading(service.store, service.launchers, service.clock, call.caller.author, report)


_UPGRADE: Final = f"{JOB}/upgrade"

CODE_CHANGES: Final[tuple[ApiRoute, ...]] = (
    route("POST", f"{JOB}/check", check_code, CheckForm, role="admin", answer=Checked, group="code"),
    route("GET", _UPGRADE, get_upgrade, NoForm, role="viewer", answer=UpgradeStep, group="code"),
    route("POST", _UPGRADE, upgrade_job, UpgradeForm, role="admin", answer=Accepted, status=202, group="code"),
    route("POST", f"{_UPGRADE}/abort", abort_upgrade, EndUpgradeForm, role="admin", answer=Accepted, status=202, group="code"),
    route("POST", f"{_UPGRADE}/accept", accept_upgrade, EndUpgradeForm, role="admin", answer=Accepted, status=202, group="code"),
    route("POST", f"{_UPGRADE}/checks/{{check}}", report_check, CheckResultForm, role="operator", answer=UpgradeCheck, group="code"),
    route("POST", f"{JOB}/forks", fork_job, ForkForm, role="admin", answer=Accepted, status=202, group="code"),
    route("POST", f"{JOB}/promote", promote_fork, PromoteForm, role="admin", answer=Accepted, status=202, group="code"),
    route("POST", f"{JOB}/discard", discard_fork, NoForm, role="admin", answer=Discarded, group="code"),
)

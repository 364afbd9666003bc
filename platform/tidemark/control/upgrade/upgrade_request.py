"""The request of an upgrade, and its first record. The job itself is not changed here."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace

from tidemark.clock import SYSTEM_CLOCK, Clock
from tidemark.control.desired.spec_checks import checked_spec
from tidemark.control.desired.spec_store import current_user, read_spec
from tidemark.control.model.launcher import Launcher
from tidemark.control.model.spec import JobSpec
from tidemark.control.model.upgrade_records import Upgrade, UpgradeStep, code_text, create_step, newest_step
from tidemark.control.observed.attempt_health import unmanaged_driver
from tidemark.control.observed.observe import observe
from tidemark.control.upgrade.code_check import Judge, Maps, judge_code
from tidemark.control.upgrade.upgrade_actions import lock_job
from tidemark.crashpoints import crash_point
from tidemark.errors import JobRunningError, OvertakenError, UpgradeError
from tidemark.names import validate_name
from tidemark.savepoints.compatibility.checking import HEAD
from tidemark.savepoints.model.restore import Restore
from tidemark.savepoints.model.restore_history import is_restore_due
from tidemark.savepoints.model.rewind_journal import require_no_rewind
from tidemark.savepoints.rewind.rewinding import preview_rewind
from tidemark.state.encoding.free_text import require_no_secret
from tidemark.state.log.joblog import JobLog
from tidemark.state.store.layout import job_folder
from tidemark.state.store.store import JobStore


@dataclass(frozen=True)
class UpgradeRequest:
    """New code for a job.

    Args:
        job: the job.
        code: ``module:job`` of the new code.
        version: a label of it.
        code_paths: folders, zips and wheels with it; None leaves them unchanged.
        folder: working directory of its driver; None leaves it unchanged.
        variables: environment variables of its driver, added to the existing ones.
        maps: renames, and whether state may be dropped.
        good_epochs: epochs that it must commit.
        within_ms: the time for that, and for its checks, in milliseconds.
        checks: names of checks that must pass in that time (``report_upgrade_check``).
        back_to: a savepoint that the job is rewound to first, with its tables.
        definition: of code in YAML what the file says of the job (``job_code``).
    """

    job: str
    code: str
    version: str = ""
    code_paths: tuple[str, ...] | None = None
    folder: str | None = None
    variables: Mapping[str, str] = field(default_factory=dict)
    maps: Maps = field(default_factory=Maps)
    good_epochs: int = 3
    within_ms: int = 300_000
    checks: tuple[str, ...] = ()
    back_to: str = ""
    definition: str | None = None


def begin_upgrade(
    store: JobStore,
    request: UpgradeRequest,
    *,
    launchers: Mapping[str, Launcher],
    by: str = "",
    why: str = "",
    clock: Clock = SYSTEM_CLOCK,
    judge: Judge = judge_code,
) -> UpgradeStep:
    """Check an upgrade and write its first record; if one with the same request is under way, return its newest step.

    Args:
        store: the root store.
        request: the request.
        launchers: launchers of drivers, by name.
        by: who requests it.
        why: the reason.
        clock: processing time.
        judge: checks the new code against the stored state.

    Raises:
        UpgradeError: it is not possible, or another one is under way.
        StateMismatchError: the new code is incompatible with the stored state; every finding is named.
        RewindError: a rewind is unfinished.
        JobRunningError: a driver without an attempt is alive.
        DefinitionError: the new spec is invalid.
        InvalidNameError: the name of a check is not allowed.
    """
    job = request.job
    require_no_secret(job, by=by, why=why)
    for check in request.checks:
        validate_name("check", check)
    newest = newest_step(store, job)
    if newest is not None and not newest.ended:
        return _same(newest, request)
    submitted = read_spec(store, job)
    if submitted is None:
        raise UpgradeError(
            "the job was not submitted, so it has no driver to upgrade", fix="take a savepoint and run the new code", job=job
        )
    before = submitted.spec
    identity = f"upgrade-{secrets.token_hex(4)}"
    savepoint = f"before-{identity}"
    after = checked_spec(_after(before, request, identity, savepoint), before)
    if _code_location(before) == _code_location(after):
        raise UpgradeError(
            f"the job has that code already ({code_text(before)}); if the code was overwritten in place, it cannot be rolled back",
            fix="put the new code beside the old: another module, or a separate folder, zip or wheel (--code-path); "
            + (
                f"to rewind with its current code, `tidemark rewind {job} --to {request.back_to} --stop`"
                if request.back_to
                else "without rollback, `tidemark restart`"
            ),
            job=job,
        )
    _require_possible(store, request, before, launchers, clock)
    judge(store, after, request.maps, request.back_to or HEAD, job).require(by_options=True)
    upgrade = Upgrade(
        identity,
        job,
        before,
        after,
        savepoint,
        clock.now_ms(),
        by or current_user(),
        why,
        request.back_to,
        request.good_epochs,
        request.within_ms,
        request.checks,
    )
    first = UpgradeStep(newest.number + 1 if newest is not None else 1, "stopping", upgrade.at, upgrade.by, upgrade)
    if not create_step(store, first):
        raise UpgradeError("another upgrade was begun just now", fix="see what it does: `tidemark status`", job=job)
    crash_point("upgrade-recorded")
    # The process that carries it out locks the job, too; until then its savepoints must already be kept.
    with suppress(OvertakenError):
        lock_job(store, first)
    return first


def _same(newest: UpgradeStep, request: UpgradeRequest) -> UpgradeStep:
    begun = newest.upgrade
    if (_after(begun.before, request, begun.identity, begun.savepoint), request.back_to) == (begun.after, begun.back_to):
        return newest
    raise UpgradeError(
        f"another upgrade is under way: {newest}",
        fix=f"complete it (`tidemark upgrade {request.job}`), or roll it back (`tidemark upgrade {request.job} --abort`)",
        job=request.job,
    )


def _after(before: JobSpec, request: UpgradeRequest, identity: str, savepoint: str) -> JobSpec:
    maps = request.maps
    restore = (
        before.restore
        if maps.empty
        else Restore(
            request.back_to or savepoint,
            uids=maps.uids,
            allow_non_restored_state=maps.allow_non_restored_state,
            identity=identity,
            columns=maps.columns,
        )
    )
    return replace(
        before,
        code=request.code,
        version=request.version,
        code_paths=before.code_paths if request.code_paths is None else request.code_paths,
        folder=request.folder or before.folder,
        variables={**before.variables, **request.variables},
        wanted="running",
        stop="finish",
        for_rewind=False,
        restore=restore,
        definition=request.definition,
    )


def _require_possible(store: JobStore, request: UpgradeRequest, before: JobSpec, launchers: Mapping[str, Launcher], clock: Clock) -> None:
    """Raise for everything that blocks an upgrade, except the state check."""
    job = request.job
    folder = store.at(job_folder(job))
    require_no_rewind(folder, job)
    head = JobLog(folder, job, clock).load().epoch
    if head is None:
        raise UpgradeError("the job has no epoch yet, so it has no state either", fix="submit the new code", job=job)
    # Not by the lifecycle: a job that was rewound to before the end stays finished until it is started.
    if head.end_of_input:
        raise UpgradeError("the job's input has ended for good", fix="rewind it to a savepoint from before the end first", job=job)
    pending = before.restore
    if request.maps.empty and pending is not None and pending.identity and is_restore_due(folder, head, pending):
        # The new code would make that restore although it was checked against other state; after a rollback the job would never get it.
        raise UpgradeError(
            f"the job has a pending restore from savepoint {pending.savepoint!r} and was not started since",
            fix=f"start it once (`tidemark start {job}`), then upgrade it; or submit it again without that restore",
            job=job,
        )
    seen = observe(store, job, launchers)
    unmanaged = unmanaged_driver(seen, clock.now_ms())
    if unmanaged is not None and seen.current_heartbeat is None:
        raise JobRunningError(f"the job is driven by {unmanaged}, which has no attempt", fix="end it first", job=job)
    if request.back_to:
        plan = preview_rewind(store, job, request.back_to, clock=clock)
        if plan.refusals:
            raise UpgradeError(
                f"the job cannot be rewound to savepoint {request.back_to!r}: {'; '.join(plan.refusals)}",
                fix="fix what is listed, or choose another savepoint",
                job=job,
            )


def _code_location(spec: JobSpec) -> tuple[object, ...]:
    return spec.code, spec.code_paths, spec.folder, dict(spec.variables), spec.definition

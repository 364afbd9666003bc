"""The steps of upgrades: numbered records, each created once *before* the step is executed. The newest is an upgrade's current step.

If several processes carry out an upgrade, one creates the next record; the others read it again. Every step may be executed twice.
"""

from __future__ import annotations

import contextlib
import hashlib
from dataclasses import dataclass, replace
from typing import Final, Literal

from tidemark.control.model.paths import UPGRADE_BLOCKER, UPGRADE_CHECKS, UPGRADES, number_in, numbered
from tidemark.control.model.spec import JobSpec
from tidemark.errors import TidemarkError, UpgradeError
from tidemark.names import validate_name
from tidemark.state.encoding.redaction import redacted
from tidemark.state.store.documents import create_document, read_document, write_document
from tidemark.state.store.layout import job_folder
from tidemark.state.store.store import JobStore

KIND: Final = "upgrade"
CHECK_KIND: Final = "upgrade-check"
KEPT_STEPS: Final = 100

_TABLES_MS: Final = 300_000
"""How long reverting tables may take before the upgrade is reported as stuck."""

Step = Literal[
    "stopping",
    "saving",
    "going-back",
    "starting",
    "watching",
    "accepting",
    "done",
    "reverting",
    "putting-back",
    "starting-old",
    "rolled-back",
]
"""``stopping``: the old code's driver ends. ``saving``: a savepoint is taken. ``going-back``: if requested, the job is rewound to an
older savepoint. ``starting``: the new code's spec is written. ``watching``: the new code is on probation. ``done``. Or else
``reverting``: the new code's driver ends. ``putting-back``: state and tables are rewound to the savepoint. ``starting-old``: the old
code's spec is written. ``rolled-back``. ``accepting``: a user keeps the new code, whatever its probation showed."""

END_STEPS: frozenset[Step] = frozenset(("done", "rolled-back"))
ROLLBACK_STEPS: frozenset[Step] = frozenset(("reverting", "putting-back", "starting-old", "rolled-back"))


@dataclass(frozen=True)
class Upgrade:
    """The request of an upgrade; it never changes. Times are milliseconds.

    Args:
        identity: its name.
        job: the job.
        before: the spec with the old code.
        after: the spec with the new one.
        savepoint: name of the savepoint taken where the old code ended, for the rollback.
        at: when it was begun.
        by: who requested it.
        why: the reason.
        back_to: a savepoint that the job is rewound to, with its tables, before the new code starts; empty to continue where it is.
        good_epochs: epochs that the new code must commit.
        within_ms: the time for that, and for its checks.
        checks: names of checks that must pass.
    """

    identity: str
    job: str
    before: JobSpec
    after: JobSpec
    savepoint: str
    at: int
    by: str = ""
    why: str = ""
    back_to: str = ""
    good_epochs: int = 3
    within_ms: int = 300_000
    checks: tuple[str, ...] = ()


@dataclass(frozen=True)
class UpgradeStep:
    """A step to execute, or an end.

    Args:
        number: counts from 1, over all upgrades of the job.
        step: the step.
        at: when it was decided.
        by: the process that decided it.
        upgrade: the request.
        reason: why, as text; for rollback steps, what was wrong.
        attempt: the newest attempt before the new code's spec was written; later ones run the new code.
        epoch: the epoch after which the new code resumes; None before the savepoint was taken.
        generation: of the spec with the new code, once it is written.
        until: the end of the new code's probation.
        stopped: whether the job was stopped during the upgrade; the old code is then not started.
    """

    number: int
    step: Step
    at: int
    by: str
    upgrade: Upgrade
    reason: str = ""
    attempt: int = 0
    epoch: int | None = None
    generation: int = 0
    until: int | None = None
    stopped: bool = False

    @property
    def heading(self) -> str:
        """The end that it is heading for."""
        return "rolled-back" if self.step in ROLLBACK_STEPS else "done"

    @property
    def ended(self) -> bool:
        """Whether it has come to an end."""
        return self.step in END_STEPS

    def __str__(self) -> str:
        """Return the upgrade's step and the reason, in one line."""
        return self.text()

    def text(self, *, reported: str = "") -> str:
        """Return the upgrade's step in one line, with the reason unless that was ``reported`` before."""
        upgrade = self.upgrade
        code = code_text(upgrade.before if self.heading == "rolled-back" else upgrade.after)
        reason = f" ({self.reason})" if self.reason and self.reason != reported else ""
        step = self.step.replace("-", " ") + (f" to savepoint {upgrade.back_to}" if self.step == "going-back" else "")
        if self.ended:
            return f"upgrade {upgrade.identity} is {step}: {upgrade.job} has {code}{reason}"
        return f"upgrade {upgrade.identity} is {step}, heading for {code}{reason}"


@dataclass(frozen=True)
class UpgradeCheck:
    """The result of a check of the new code during its probation."""

    upgrade: str
    check: str
    passed: bool
    at: int
    text: str = ""


def code_text(spec: JobSpec) -> str:
    """Return a spec's code and version as text; of a job in YAML also the start of a hash, since its file may be changed in place."""
    definition = f" ({hashlib.sha256(spec.definition.encode()).hexdigest()[:8]})" if spec.definition is not None else ""
    return spec.code + definition + (f" version {spec.version}" if spec.version else "")


def newest_step(store: JobStore, job: str) -> UpgradeStep | None:
    """Return the step of the job's newest upgrade, or its end; None if there was none. ``store`` is the root store.

    Raises:
        CorruptStoreError: the record is damaged.
        FormatError: a newer release wrote it.
    """
    numbers = _numbers(store.at(job_folder(job)))
    return read_step(store, job, numbers[-1]) if numbers else None


def read_step(store: JobStore, job: str, number: int) -> UpgradeStep | None:
    """Return one record, None where there is none."""
    return read_document(store.at(job_folder(job)), numbered(UPGRADES, number), kind=KIND, form=UpgradeStep)


def read_newest_steps(store: JobStore, job: str, limit: int) -> tuple[UpgradeStep, ...]:
    """Return the newest steps of a job's upgrades, oldest first. ``store`` is the root store."""
    found = (read_step(store, job, number) for number in _numbers(store.at(job_folder(job)))[-limit:])
    return tuple(step for step in found if step is not None)


def create_step(store: JobStore, step: UpgradeStep) -> bool:
    """Write the next record; False if another process was faster."""
    folder = store.at(job_folder(step.upgrade.job))
    made = create_document(folder, numbered(UPGRADES, step.number), kind=KIND, value=step)
    if made and step.ended:
        # Records that are not deleted now are deleted after the next upgrade.
        with contextlib.suppress(TidemarkError):
            folder.delete(numbered(UPGRADES, number) for number in _numbers(folder) if number <= step.number - KEPT_STEPS)
            folder.delete((UPGRADE_BLOCKER, *(file.path for file in folder.list(UPGRADE_CHECKS))))
    return made


def record_stop(store: JobStore, job: str, *, by: str, why: str, now: int) -> None:
    """Record that somebody stops a job during its upgrade, which then goes back to the old code and leaves the job stopped.

    In most steps the spec cannot show that, since the upgrade itself has suspended the job. While new code is watched it does, and code
    that was accepted is started all the same.

    Args:
        store: the root store.
        job: the job's name.
        by: who stops it.
        why: the reason.
        now: processing time, milliseconds.
    """
    while True:
        step = newest_step(store, job)
        if step is None or step.ended or step.stopped or step.step in {"watching", "accepting"}:
            return
        back = step.step in ROLLBACK_STEPS
        reason = step.reason if back else f"stopped by {by}" + (f": {why}" if why else "")
        stopped = replace(step, number=step.number + 1, step=step.step if back else "reverting", at=now, by=by, reason=reason, stopped=True)
        if create_step(store, stopped):
            return


def with_code_of(spec: JobSpec, other: JobSpec) -> JobSpec:
    """Return a spec with the code and desired state of another one; its other settings stay.

    The number of restarts is increased, so that a driver is started even if the code was the same before, or had failed.
    """
    return replace(_with_code(spec, other), wanted=other.wanted, stop="finish", for_rewind=other.for_rewind, restarts=spec.restarts + 1)


def matches_target(spec: JobSpec, other: JobSpec) -> bool:
    """Return whether a spec has the code and the desired state of another one."""
    return spec == _with_code(spec, other) and spec.wanted == other.wanted


def _with_code(spec: JobSpec, other: JobSpec) -> JobSpec:
    return replace(
        spec,
        code=other.code,
        version=other.version,
        code_paths=other.code_paths,
        folder=other.folder,
        variables=other.variables,
        restore=other.restore,
        outputs_root=other.outputs_root,
        definition=other.definition,
    )


def require_spec_unheld(store: JobStore, job: str, then: str, *, also_watched: bool = False, spec: JobSpec | None = None) -> None:
    """Raise if an upgrade of a job is in a step in which it holds the job suspended and writes its spec itself.

    A driver that is started in such a step would block the upgrade, which then overwrites the request. Called for each change of a spec
    after the newest one was read: an upgrade writes its record before its spec, so that of two specs one is refused.

    Args:
        store: the root store.
        job: the job's name.
        then: what to do after the upgrade, such as "`tidemark start fares`".
        also_watched: whether the request is lost in the probation, too, since the upgrade goes back for it.
        spec: that is asked for; for other code than that on probation the upgrade goes back as well.

    Raises:
        UpgradeError: it names the upgrade, its step, and how it ends.
    """
    step = newest_step(store, job)
    if step is None or step.ended:
        return
    lost = also_watched or (spec is not None and not matches_target(spec, step.upgrade.after))
    if step.step == "watching" and not lost:
        return
    upgrade, back = step.upgrade, step.heading == "rolled-back"
    if step.step == "watching":
        meaning = f"it goes back to {code_text(upgrade.before)} if the spec is changed, and the change is lost"
    elif step.stopped:
        meaning = "it has suspended the job, and leaves it stopped, as it was stopped meanwhile"
    elif step.step == "accepting":
        meaning = f"it writes the spec with {code_text(upgrade.after)} itself"
    else:
        meaning = f"it has suspended the job, and then writes the spec with {code_text(upgrade.before if back else upgrade.after)} itself"
    abort = "" if back or step.step == "accepting" else f" or roll it back (`tidemark upgrade {job} --abort`)"
    raise UpgradeError(
        f"job {job!r} is being upgraded: {step}; {meaning}",
        fix=f"complete the upgrade (`tidemark upgrade {job}`){abort}, then {then}",
        job=job,
    )


def report_upgrade_check(store: JobStore, job: str, check: UpgradeCheck) -> None:
    """Report the result of a check of the new code; the newest result of each check counts. ``store`` is the root store.

    Raises:
        InvalidNameError: the name of the check cannot be part of a path.
    """
    path = f"{UPGRADE_CHECKS}/{validate_name('upgrade', check.upgrade)}/{validate_name('check', check.check)}.json"
    # The text comes from a program and may contain credentials; the result itself counts either way.
    write_document(store.at(job_folder(job)), path, kind=CHECK_KIND, value=replace(check, text=redacted(check.text)))


def read_upgrade_checks(store: JobStore, job: str, identity: str) -> tuple[UpgradeCheck, ...]:
    """Return the results of checks of an upgrade's new code, by name. ``store`` is the root store."""
    folder = store.at(job_folder(job))
    files = folder.list(f"{UPGRADE_CHECKS}/{validate_name('upgrade', identity)}")
    found = (read_document(folder, file.path, kind=CHECK_KIND, form=UpgradeCheck) for file in files)
    return tuple(check for check in found if check is not None)


def step_timeout_ms(step: UpgradeStep, spec: JobSpec) -> int:
    """Return a step's timeout in milliseconds, assuming an active upgrader and no blocker."""
    match step.step:
        case "stopping" | "reverting":
            return spec.longest_epoch_ms
        case "watching":
            return max(0, step.until - step.at) if step.until is not None else 0
        case "going-back" | "putting-back":
            return _TABLES_MS
        case _:
            return 0


def _numbers(folder: JobStore) -> list[int]:
    return sorted(number for file in folder.list(UPGRADES) if (number := number_in(UPGRADES, file.path)) is not None)

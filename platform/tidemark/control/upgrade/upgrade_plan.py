"""Plans an upgrade. Pure: from the recorded step and an observation of the job to one action or the next step."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final, Literal

from tidemark.control.model.records import Failure, Lifecycle
from tidemark.control.model.spec import JobSpec
from tidemark.control.model.upgrade_records import Step, UpgradeStep, matches_target
from tidemark.durations import format_duration
from tidemark.errors import JobRunningError, LaunchError, PublishError, StoreError

UpgradeAction = Literal["suspend", "save", "go-back", "switch", "give-up", "put-back", "start-old"]
"""Actions on the job, in order: suspend it; take a savepoint; rewind to where a fork began; write the spec with the new code; abort an
unfinished rewind; rewind to the savepoint; write the spec with the old code."""

RewindState = Literal["", "begun", "done"]
"""Whether the job is being rewound to the upgrade's savepoint, or was; only determined for accepted code."""

_ACTIONS: Final[Mapping[Step, UpgradeAction]] = {"saving": "save", "going-back": "go-back", "putting-back": "put-back"}

_UNRELATED_ERRORS: Final = frozenset((PublishError.code, StoreError.code, JobRunningError.code, LaunchError.code))
"""Failures that do not depend on the code: an unreachable store or table, another driver, a process that cannot be started."""


@dataclass(frozen=True)
class Execute:
    """Execute an action, which may have been executed already."""

    action: UpgradeAction


@dataclass(frozen=True)
class Transition:
    """Go to another step, for a reason; ``stopped`` if the job was stopped during the upgrade."""

    step: Step
    reason: str = ""
    stopped: bool = False


@dataclass(frozen=True)
class Wait:
    """Wait until something changes."""

    why: str


UpgradeDecision = Execute | Transition | Wait


@dataclass(frozen=True)
class UpgradeObservation:
    """An upgrade's observation of its job.

    Args:
        spec: the newest spec.
        generation: its number.
        by: who requested it.
        lifecycle: the lifecycle state by reconcilers, if they have acted on that spec; else None.
        good_epochs: epochs that the new code has committed and published.
        failures: failures of the new code's attempts.
        failed_checks: checks that failed since the new code was started, as text.
        passed_checks: names of the checks that passed since.
        rewind_state: whether the job was being rewound, or was rewound, before the new code was accepted.
    """

    spec: JobSpec
    generation: int
    by: str = ""
    lifecycle: Lifecycle | None = None
    good_epochs: int = 0
    failures: tuple[Failure, ...] = ()
    failed_checks: tuple[str, ...] = ()
    passed_checks: frozenset[str] = frozenset()
    rewind_state: RewindState = ""

    @property
    def suspended(self) -> bool:
        """Whether the job is to be suspended, and no driver runs."""
        ended = self.lifecycle in {"suspended", "failed", "finished"}
        return self.spec.wanted == "suspended" and ended


def decide(step: UpgradeStep, seen: UpgradeObservation, now: int) -> UpgradeDecision:
    """Return the next decision.

    Args:
        step: the newest record of an upgrade that has not ended.
        seen: the job's observation.
        now: processing time, milliseconds.
    """
    decision: UpgradeDecision
    match step.step:
        case "saving" | "going-back" | "putting-back":
            decision = Execute(_ACTIONS[step.step])
        case "stopping":
            decision = _after_stop(seen, "saving")
        case "starting":
            decision = Transition("watching") if matches_target(seen.spec, step.upgrade.after) else Execute("switch")
        case "watching":
            decision = _judge_probation(step, seen, now)
        case "accepting":
            decision = _accepted(step, seen)
        case "reverting":
            # Before the savepoint nothing was changed.
            decision = _after_stop(seen, "starting-old" if step.epoch is None else "putting-back")
        case "starting-old":
            decision = Transition("rolled-back") if matches_target(seen.spec, rollback_spec(step)) else Execute("start-old")
        case _:
            decision = Wait("it has ended")
    return decision


def rollback_spec(step: UpgradeStep) -> JobSpec:
    """Return the spec with the old code for a rollback."""
    before = step.upgrade.before
    return replace(before, wanted="suspended") if step.stopped else before


def _after_stop(seen: UpgradeObservation, step: Step) -> UpgradeDecision:
    if seen.spec.wanted != "suspended":
        return Execute("suspend")
    return Transition(step) if seen.suspended else Wait("its driver ends")


def _accepted(step: UpgradeStep, seen: UpgradeObservation) -> UpgradeDecision:
    """Return the next decision on accepted code, which may have been accepted while the job was rewound."""
    if seen.rewind_state == "done":
        return already_reverted(step)
    if seen.rewind_state == "begun":
        return Execute("give-up")
    return Transition("done", step.reason) if matches_target(seen.spec, step.upgrade.after) else Execute("switch")


def already_reverted(step: UpgradeStep) -> Transition:
    """Return the transition for new code that was accepted too late: nothing of its results is left."""
    return Transition("reverting", f"its tables were reverted to savepoint {step.upgrade.savepoint!r} just when it was {step.reason}")


def _judge_probation(step: UpgradeStep, seen: UpgradeObservation, now: int) -> UpgradeDecision:
    """Return the next decision on the new code's probation: it passes, it fails, or it continues."""
    upgrade = step.upgrade
    if not matches_target(seen.spec, upgrade.after):
        reason = f"generation {seen.generation} by {seen.by} changed the spec during the upgrade"
        return Transition("reverting", reason, stopped=seen.spec.wanted == "suspended")
    blamed = [failure for failure in seen.failures if failure.code not in _UNRELATED_ERRORS]
    if blamed:
        return Transition("reverting", f"attempt {blamed[0].attempt} failed: {blamed[0].message}")
    if seen.failed_checks:
        return Transition("reverting", f"failed: {'; '.join(seen.failed_checks)}")
    missing = [name for name in upgrade.checks if name not in seen.passed_checks]
    enough = seen.good_epochs >= upgrade.good_epochs or seen.lifecycle == "finished"
    if enough and not missing:
        return Transition("done", f"{seen.good_epochs} good epochs")
    lacks = [] if enough else [f"{seen.good_epochs} of {upgrade.good_epochs} good epochs"]
    lacks += [f"check {name} has not passed" for name in missing]
    if seen.lifecycle == "failed":
        return Transition("reverting", "its driver could not be started")
    if step.until is not None and now >= step.until:
        return Transition("reverting", f"after {format_duration(upgrade.within_ms)}: {', '.join(lacks)}")
    return Wait(", ".join(lacks))

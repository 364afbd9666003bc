"""What an upgrade does next. Pure: from the step that was recorded and what is seen of the job, to one act or the next step."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final, Literal

from tidemark.control.model.records import Failure, Lifecycle
from tidemark.control.model.spec import JobSpec
from tidemark.control.model.upgrade_records import Step, UpgradeStep
from tidemark.durations import format_duration
from tidemark.errors import JobRunningError, LaunchError, PublishError, StoreError

Deed = Literal["suspend", "save", "go-back", "switch", "give-up", "put-back", "start-old"]
"""What is done to the job: a spec that wants it suspended; a savepoint; a rewind to where a fork began; a spec with the new code; an end to
a rewind that was begun; a rewind to the savepoint; a spec with the old code."""

Rewound = Literal["", "begun", "done"]
"""Whether the job is being put back to the upgrade's savepoint, or was; asked only of what somebody accepted."""

_DEEDS: Final[Mapping[Step, Deed]] = {"saving": "save", "going-back": "go-back", "putting-back": "put-back"}

_NOT_THE_CODE: Final = frozenset((PublishError.code, StoreError.code, JobRunningError.code, LaunchError.code))
"""Failures that say nothing of the code: a place that cannot be reached, another driver, a process that cannot be started."""


@dataclass(frozen=True)
class Act:
    """Do something; it may have been done already."""

    deed: Deed


@dataclass(frozen=True)
class Go:
    """Go to another step, for a reason; ``stopped`` where somebody stopped the job meanwhile."""

    step: Step
    reason: str = ""
    stopped: bool = False


@dataclass(frozen=True)
class Wait:
    """Nothing is to be done until something changes."""

    why: str


Move = Act | Go | Wait


@dataclass(frozen=True)
class Sight:
    """What is seen of the job.

    Args:
        spec: the newest one.
        generation: its number.
        by: who made it.
        lifecycle: where reconcilers say the job is, as far as they acted on that spec; None where they did not yet.
        good_epochs: that the new code has committed and published.
        failures: of the new code's attempts.
        failed_checks: what failed since the new code was asked for, in words.
        passed_checks: names of the checks that passed since.
        rewound: whether it is being put back, or was, before somebody accepted the new code.
    """

    spec: JobSpec
    generation: int
    by: str = ""
    lifecycle: Lifecycle | None = None
    good_epochs: int = 0
    failures: tuple[Failure, ...] = ()
    failed_checks: tuple[str, ...] = ()
    passed_checks: frozenset[str] = frozenset()
    rewound: Rewound = ""

    @property
    def suspended(self) -> bool:
        """Whether no driver is wanted, and none is there."""
        ended = self.lifecycle in {"suspended", "failed", "finished"}
        return self.spec.wanted == "suspended" and ended


def decide(step: UpgradeStep, seen: Sight, now: int) -> Move:
    """Return what comes next.

    Args:
        step: the newest record of an upgrade that has not ended.
        seen: the job.
        now: processing time, milliseconds.
    """
    move: Move
    match step.step:
        case "saving" | "going-back" | "putting-back":
            move = Act(_DEEDS[step.step])
        case "stopping":
            move = _stopped(seen, "saving")
        case "starting":
            move = Go("watching") if wanted_as(seen.spec, step.upgrade.after) else Act("switch")
        case "watching":
            move = _watched(step, seen, now)
        case "accepting":
            move = _accepted(step, seen)
        case "reverting":
            # Without a savepoint nothing was changed yet.
            move = _stopped(seen, "starting-old" if step.epoch is None else "putting-back")
        case "starting-old":
            move = Go("rolled-back") if wanted_as(seen.spec, old_spec(step)) else Act("start-old")
        case _:
            move = Wait("it has ended")
    return move


def old_spec(step: UpgradeStep) -> JobSpec:
    """Return what is wanted of the old code when an upgrade goes back."""
    before = step.upgrade.before
    return replace(before, wanted="suspended") if step.stopped else before


def with_code_of(spec: JobSpec, other: JobSpec) -> JobSpec:
    """Return a spec with all that belongs to another one's code, wanted as that wants it; what else was changed meanwhile stays.

    The number of restarts goes up, so that a driver is started also where the code was the same before, or had failed for good.
    """
    return replace(_coded(spec, other), wanted=other.wanted, stop="finish", for_rewind=other.for_rewind, restarts=spec.restarts + 1)


def wanted_as(spec: JobSpec, other: JobSpec) -> bool:
    """Say whether a spec has the other one's code, and wants the job to run or not as that does."""
    return spec == _coded(spec, other) and spec.wanted == other.wanted


def _coded(spec: JobSpec, other: JobSpec) -> JobSpec:
    return replace(
        spec,
        code=other.code,
        version=other.version,
        code_paths=other.code_paths,
        folder=other.folder,
        variables=other.variables,
        restore=other.restore,
        outputs_root=other.outputs_root,
    )


def _stopped(seen: Sight, step: Step) -> Move:
    if seen.spec.wanted != "suspended":
        return Act("suspend")
    return Go(step) if seen.suspended else Wait("its driver ends")


def _accepted(step: UpgradeStep, seen: Sight) -> Move:
    """Return what comes of new code that somebody accepted, perhaps just when the job was put back."""
    if seen.rewound == "done":
        return put_back_already(step)
    if seen.rewound == "begun":
        return Act("give-up")
    return Go("done", step.reason) if wanted_as(seen.spec, step.upgrade.after) else Act("switch")


def put_back_already(step: UpgradeStep) -> Go:
    """Return the step of new code that was accepted too late: of what it left nothing is there any more."""
    return Go("reverting", f"its tables were put back to savepoint {step.upgrade.savepoint!r} just when it was {step.reason}")


def _watched(step: UpgradeStep, seen: Sight, now: int) -> Move:
    """Return what comes of the new code's probation: it passes, it fails, or it goes on."""
    upgrade = step.upgrade
    if not wanted_as(seen.spec, upgrade.after):
        reason = f"generation {seen.generation} by {seen.by} asked for something else meanwhile"
        return Go("reverting", reason, stopped=seen.spec.wanted == "suspended")
    blamed = [failure for failure in seen.failures if failure.code not in _NOT_THE_CODE]
    if blamed:
        return Go("reverting", f"attempt {blamed[0].attempt} failed: {blamed[0].message}")
    if seen.failed_checks:
        return Go("reverting", f"failed: {'; '.join(seen.failed_checks)}")
    missing = [name for name in upgrade.checks if name not in seen.passed_checks]
    enough = seen.good_epochs >= upgrade.good_epochs or seen.lifecycle == "finished"
    if enough and not missing:
        return Go("done", f"{seen.good_epochs} good epochs")
    lacks = [] if enough else [f"{seen.good_epochs} of {upgrade.good_epochs} good epochs"]
    lacks += [f"check {name} has not passed" for name in missing]
    if seen.lifecycle == "failed":
        return Go("reverting", "its driver could not be started")
    if step.until is not None and now >= step.until:
        return Go("reverting", f"after {format_duration(upgrade.within_ms)}: {', '.join(lacks)}")
    return Wait(", ".join(lacks))

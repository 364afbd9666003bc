"""Observes a job for its upgrade: the desired state, whether a driver is alive, how the new code does."""

from __future__ import annotations

from tidemark.control.alerts.engine.alert_checks import failed_checks, verdict_files
from tidemark.control.model.spec import SpecGeneration
from tidemark.control.model.upgrade_records import Upgrade, UpgradeStep, read_upgrade_checks
from tidemark.control.observed.observe import Observation
from tidemark.control.upgrade.upgrade_plan import RewindState, UpgradeObservation
from tidemark.savepoints.model.rewind_journal import is_rewound_to, read_rewind
from tidemark.state.log.joblog import newest_epoch
from tidemark.state.store.layout import job_folder
from tidemark.state.store.store import JobStore


def observe_upgrade(store: JobStore, step: UpgradeStep, newest: SpecGeneration, seen: Observation) -> UpgradeObservation:
    """Return what is seen of a job.

    Args:
        store: the root store.
        step: of the upgrade.
        newest: the newest generation of the spec.
        seen: the job.
    """
    control = seen.control
    acted_on = control is not None and control.generation >= newest.generation
    failed, passed = _checks(store, step) if step.step == "watching" else ((), frozenset[str]())
    return UpgradeObservation(
        spec=newest.spec,
        generation=newest.generation,
        by=newest.by,
        lifecycle=control.lifecycle if control is not None and acted_on else None,
        good_epochs=_good_epochs(step, seen),
        failures=tuple(failure for failure in control.failures if failure.attempt > step.attempt) if control is not None else (),
        failed_checks=failed,
        passed_checks=passed,
        rewind_state=rewind_state(store, step.upgrade) if step.step == "accepting" else "",
    )


def rewind_state(store: JobStore, upgrade: Upgrade) -> RewindState:
    """Return whether a job is being rewound to the savepoint of its upgrade, or was."""
    folder = store.at(job_folder(upgrade.job))
    # In this order: the note goes when all is back.
    if read_rewind(folder) is not None:
        return "begun"
    return "done" if was_reverted(store, upgrade) else ""


def was_reverted(store: JobStore, upgrade: Upgrade) -> bool:
    """Return whether a job was rewound to the savepoint of its upgrade: the new code's state and results were reverted."""
    head = newest_epoch(store, upgrade.job)
    return head is not None and is_rewound_to(head, upgrade.savepoint)


def _good_epochs(step: UpgradeStep, seen: Observation) -> int:
    """Return how many epochs the new code has committed and published: since the savepoint all are its own."""
    last = seen.current_progress
    ours = seen.attempt is not None and seen.attempt.number > step.attempt and seen.attempt.generation >= step.generation
    if step.epoch is None or last is None or not ours:
        return 0
    return max(0, last.epoch - step.epoch)


def _checks(store: JobStore, step: UpgradeStep) -> tuple[tuple[str, ...], frozenset[str]]:
    """Return the checks that failed since the new code is watched, in words, and the names of those that passed."""
    upgrade = step.upgrade
    told = read_upgrade_checks(store, upgrade.job, upgrade.identity)
    failed = [f"check {check.check}{f' ({check.text})' if check.text else ''}" for check in told if not check.passed]
    files = [file for file in verdict_files(store).get(upgrade.job, ()) if file.at >= step.at]
    # What failed and passed again since is well.
    newest = {file.check: file for file in files}
    still = [file for file in newest.values() if not file.passed]
    failed += [
        f"check {check.check}{f' ({check.text})' if check.text else ''}"
        for check in failed_checks(store, still)
        if check.severity == "error"
    ]
    return tuple(failed), frozenset(check.check for check in told if check.passed)

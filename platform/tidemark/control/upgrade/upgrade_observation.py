"""Observes a job for its upgrade: its spec, whether a driver runs, and the new code's progress."""

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
    """Return an upgrade's observation of its job.

    Args:
        store: the root store.
        step: the upgrade's newest step.
        newest: the newest generation of the spec.
        seen: the job's observation.
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
    # In this order: the journal is deleted after the rewind is complete.
    if read_rewind(folder) is not None:
        return "begun"
    return "done" if was_reverted(store, upgrade) else ""


def was_reverted(store: JobStore, upgrade: Upgrade) -> bool:
    """Return whether a job was rewound to the savepoint of its upgrade: nothing of the new code's results is left."""
    head = newest_epoch(store, upgrade.job)
    return head is not None and is_rewound_to(head, upgrade.savepoint)


def _good_epochs(step: UpgradeStep, seen: Observation) -> int:
    """Return how many epochs the new code has committed and published; all since the savepoint are its own."""
    last = seen.current_progress
    ours = seen.attempt is not None and seen.attempt.number > step.attempt and seen.attempt.generation >= step.generation
    if step.epoch is None or last is None or not ours:
        return 0
    return max(0, last.epoch - step.epoch)


def _checks(store: JobStore, step: UpgradeStep) -> tuple[tuple[str, ...], frozenset[str]]:
    """Return the checks that failed since the probation began, as text, and the names of those that passed."""
    upgrade = step.upgrade
    reported = read_upgrade_checks(store, upgrade.job, upgrade.identity)
    failed = [f"check {check.check}{f' ({check.text})' if check.text else ''}" for check in reported if not check.passed]
    files = [file for file in verdict_files(store).get(upgrade.job, ()) if file.at >= step.at]
    # A check that failed and passed again since counts as passed.
    newest = {file.check: file for file in files}
    still = [file for file in newest.values() if not file.passed]
    failed += [
        f"check {check.check}{f' ({check.text})' if check.text else ''}"
        for check in failed_checks(store, still)
        if check.severity == "error"
    ]
    return tuple(failed), frozenset(check.check for check in reported if check.passed)

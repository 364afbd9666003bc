"""The actions of an upgrade on its job. Each action is idempotent.

A process that was overtaken does nothing: the step's record is read again right before the job is changed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tidemark.clock import Clock
from tidemark.control.desired.spec_store import change_spec, require_spec
from tidemark.control.model.spec import JobSpec, SpecGeneration
from tidemark.control.model.upgrade_records import Upgrade, UpgradeStep, code_text, matches_target, newest_step, with_code_of
from tidemark.control.rewind.publishing import publisher
from tidemark.control.upgrade.upgrade_plan import rollback_spec
from tidemark.errors import InvalidNameError, OvertakenError, RewindError
from tidemark.savepoints.core.savepoint_store import SavepointStore
from tidemark.savepoints.model.rewind_journal import RewindJournal, is_rewound_to, read_rewind, require_no_rewind
from tidemark.savepoints.model.savepoint import Savepoint
from tidemark.savepoints.model.upgrade_lock import UpgradeLock, read_upgrade_lock, remove_upgrade_lock, write_upgrade_lock
from tidemark.savepoints.rewind.rewind_abort import abort_rewind
from tidemark.savepoints.rewind.rewinding import OnProgress, rewind
from tidemark.state.encoding.redaction import redacted
from tidemark.state.log.joblog import JobLog
from tidemark.state.log.records import EpochRecord
from tidemark.state.store.layout import job_folder
from tidemark.state.store.store import JobStore


def lock_job(store: JobStore, step: UpgradeStep) -> None:
    """Keep the savepoints that the upgrade may roll back to, and block other rewinds.

    Raises:
        OvertakenError: another process has continued the upgrade, and keeps them.
    """
    _require_newest(store, step)
    _write_note(store, step.upgrade)
    try:
        _require_newest(store, step)
    except OvertakenError:
        # This process was suspended in between, and has overwritten the lock of a later step or restored one that was removed.
        newest = newest_step(store, step.upgrade.job)
        if newest is not None and not newest.ended:
            _write_note(store, newest.upgrade)
        else:
            unlock_job(store, step)
        raise


def suspend(store: JobStore, step: UpgradeStep, clock: Clock) -> None:
    """Request that the job's driver ends after the current epoch."""
    lock_job(store, step)
    _change(store, step, clock, lambda spec: spec if spec.wanted == "suspended" else replace(spec, wanted="suspended", stop="finish"))


def take_savepoint(store: JobStore, step: UpgradeStep, clock: Clock) -> Savepoint:
    """Take the savepoint of the old code's end, unless it exists, and keep it until the upgrade has ended.

    Raises:
        RewindError: a rewind of the job was begun while the new code was checked.
    """
    upgrade = step.upgrade
    lock_job(store, step)
    require_no_rewind(store.at(job_folder(upgrade.job)), upgrade.job)
    savepoints = SavepointStore(store, upgrade.job, clock)
    if upgrade.savepoint not in savepoints.pins.names():
        try:
            return savepoints.take(
                upgrade.savepoint,
                kind="before-upgrade",
                # An earlier release may have accepted a secret: it is redacted, and does not block the upgrade.
                by=redacted(upgrade.by),
                note=redacted(upgrade.why) or f"before the upgrade to {code_text(upgrade.after)}",
                labels={"upgrade": upgrade.identity},
            )
        except InvalidNameError:
            # Another process that carries out the same upgrade was faster.
            pass
    return savepoints.get(upgrade.savepoint)


def revert_job(store: JobStore, step: UpgradeStep, name: str, clock: Clock, on_progress: OnProgress | None = None) -> None:
    """Rewind the job to a savepoint with its tables, unless it is there and nothing was committed since.

    If the upgrade was aborted in the middle of a rewind to another savepoint, that rewind is ended first.

    Raises:
        JobRunningError: a driver of the job is alive.
        RewindError: the rewind is refused; the upgrade continues here when the cause is fixed.
        PublishError: a table could not be reverted; it is retried.
    """
    job = step.upgrade.job
    folder = store.at(job_folder(job))
    lock_job(store, step)
    begun = read_rewind(folder)
    if begun is not None and begun.savepoint != name:
        _end_rewind(store, step, begun, clock, on_progress)
    savepoint = SavepointStore(store, job, clock).get(name)
    head = JobLog(folder, job, clock).load().epoch
    if read_rewind(folder) is None and _is_at(head, savepoint):
        return
    _rewind(store, step, name, clock, on_progress)


def abort(store: JobStore, step: UpgradeStep, clock: Clock, on_progress: OnProgress | None = None) -> bool:
    """Abort a rewind that had begun when the new code was accepted; False if a table is reverted already.

    Raises:
        JobRunningError: the rewinding process is alive; it notices the abort itself, or completes the rewind.
        PublishError: a table cannot be written to.
    """
    job = step.upgrade.job
    try:
        _abort(store, step, clock, on_progress)
    except RewindError:
        # Without a journal the rewind has ended; the next observation shows how.
        return read_rewind(store.at(job_folder(job))) is None
    return True


def switch_code(store: JobStore, step: UpgradeStep, clock: Clock) -> None:
    """Write the spec with the new code, or with the old one if the upgrade rolls back."""
    target = rollback_spec(step) if step.heading == "rolled-back" else step.upgrade.after
    _change(store, step, clock, lambda spec: spec if matches_target(spec, target) else with_code_of(spec, target))


def unlock_job(store: JobStore, step: UpgradeStep) -> None:
    """Remove the lock of an upgrade that has ended; another upgrade's stays."""
    folder = store.at(job_folder(step.upgrade.job))
    lock = read_upgrade_lock(folder)
    if lock is not None and lock.identity == step.upgrade.identity:
        remove_upgrade_lock(folder)


def _end_rewind(store: JobStore, step: UpgradeStep, begun: RewindJournal, clock: Clock, on_progress: OnProgress | None) -> None:
    """End an unfinished rewind: abort it or, if a table is reverted already, complete it."""
    try:
        _abort(store, step, clock, on_progress)
    except RewindError:
        left = read_rewind(store.at(job_folder(step.upgrade.job)))
        if left is not None and left.identity == begun.identity:
            _rewind(store, step, begun.savepoint, clock, on_progress)


def _abort(store: JobStore, step: UpgradeStep, clock: Clock, on_progress: OnProgress | None) -> None:
    upgrade = step.upgrade
    abort_rewind(
        store,
        upgrade.job,
        clock=clock,
        on_progress=on_progress or (lambda _: None),
        upgrade=upgrade.identity,
        require=lambda: _require_newest(store, step),
    )


def _rewind(store: JobStore, step: UpgradeStep, name: str, clock: Clock, on_progress: OnProgress | None) -> None:
    upgrade = step.upgrade
    rewind(
        store,
        upgrade.job,
        name,
        by=redacted(upgrade.by),
        why=f"upgrade to {code_text(upgrade.after)}",
        clock=clock,
        on_progress=on_progress,
        upgrade=upgrade.identity,
        kept=upgrade.savepoint,
        # The new code's results are discarded for good; the old code's savepoint is kept for the rollback.
        although_unpublished=name == upgrade.savepoint,
        publish=publisher(store, upgrade.job),
        require=lambda: _require_newest(store, step),
    )


def _is_at(head: EpochRecord | None, savepoint: Savepoint) -> bool:
    """Return whether a job's newest epoch is that of a savepoint, or was rewound to it with the tables."""
    stored = savepoint.record
    # A savepoint that was modified and imported has the same epoch and other state.
    if head is None or (head.epoch, head.operators) != (stored.epoch, stored.operators):
        return False
    return head.lineage == stored.lineage or is_rewound_to(head, savepoint.name)


def _write_note(store: JobStore, upgrade: Upgrade) -> None:
    names = tuple(name for name in (upgrade.savepoint, upgrade.back_to) if name)
    write_upgrade_lock(store.at(job_folder(upgrade.job)), UpgradeLock(upgrade.identity, names, upgrade.at))


def _change(store: JobStore, step: UpgradeStep, clock: Clock, change: Callable[[JobSpec], JobSpec]) -> None:
    upgrade = step.upgrade

    def of_newest(newest: SpecGeneration | None) -> JobSpec:
        # In this order: a process that has continued since writes its record before its spec, and of two specs one is rejected.
        spec = (newest or require_spec(store, upgrade.job)).spec
        _require_newest(store, step)
        return change(spec)

    change_spec(store, upgrade.job, of_newest, by=redacted(upgrade.by), why=redacted(_why(step)), clock=clock)


def _why(step: UpgradeStep) -> str:
    upgrade = step.upgrade
    if step.heading == "rolled-back":
        return f"back to {code_text(upgrade.before)}: {step.reason}"
    begins = f" from savepoint {upgrade.back_to}" if upgrade.back_to else ""
    return f"upgrade to {code_text(upgrade.after)}{begins}" + (f": {upgrade.why}" if upgrade.why else "")


def _require_newest(store: JobStore, step: UpgradeStep) -> None:
    newest = newest_step(store, step.upgrade.job)
    if newest is None or newest.number != step.number:
        raise OvertakenError("another process has continued the upgrade", fix="see its step: `tidemark status`", job=step.upgrade.job)

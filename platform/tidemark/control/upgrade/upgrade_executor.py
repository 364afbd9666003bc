"""Executes an upgrade: from its newest step and an observation of the job, to one action or the next record.

The caller holds the upgrade's lease (``UPGRADE_LEASES`` in ``paths``). That avoids duplicate work; the records keep two processes apart.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from tidemark.clock import Clock
from tidemark.control.desired.attempts import newest_attempt
from tidemark.control.model.upgrade_blocker import record_blocker
from tidemark.control.model.upgrade_records import ROLLBACK_STEPS, UpgradeStep, create_step, newest_step
from tidemark.control.observed.observe import Observation
from tidemark.control.upgrade.upgrade_actions import abort, revert_job, suspend, switch_code, take_savepoint, unlock_job
from tidemark.control.upgrade.upgrade_observation import observe_upgrade
from tidemark.control.upgrade.upgrade_plan import Execute, Transition, UpgradeAction, UpgradeDecision, Wait, already_reverted, decide
from tidemark.crashpoints import crash_point
from tidemark.errors import JobRunningError, OvertakenError, TidemarkError, UpgradeError
from tidemark.savepoints.core.savepoint_store import SavepointStore
from tidemark.state.store.store import JobStore


@dataclass(frozen=True)
class UpgradeExecutor:
    """Executes steps of upgrades of a store's jobs.

    Args:
        store: the root store.
        clock: processing time.
        by: the name of this process in records.
        on_progress: called with the text of each action on a job.
    """

    store: JobStore
    clock: Clock
    by: str
    on_progress: Callable[[str], None] = field(default=lambda _: None)

    def advance(self, step: UpgradeStep, seen: Observation) -> UpgradeDecision:
        """Execute the next decision without waiting, and return it. An error that blocks it is also recorded, for the job's status.

        Args:
            step: the newest record.
            seen: the job's current observation.

        Raises:
            UpgradeError: the job's spec was deleted.
            RewindError: the tables cannot be reverted; a later call continues when the cause is fixed.
            TidemarkError: the job's files cannot be read or written.
        """
        try:
            return self._advance(step, seen)
        except TidemarkError as error:
            if self._is_overtaken(step):
                # Such as a rewind that another process has aborted since: the job was stopped, or the upgrade aborted, in the middle of it.
                return Wait("another process carries it out")
            record_blocker(self.store, step, error, by=self.by, now=self.clock.now_ms())
            raise

    def _is_overtaken(self, step: UpgradeStep) -> bool:
        try:
            newest = newest_step(self.store, step.upgrade.job)
        except TidemarkError:
            return False
        return newest is not None and newest.number != step.number

    def record(self, step: UpgradeStep) -> bool:
        """Write the next record; False if another process was faster."""
        if step.ended:
            # Before the record: an upgrade that has ended must not keep a lock.
            unlock_job(self.store, step)
        made = create_step(self.store, step)
        crash_point("upgrade-recorded")
        return made

    def _advance(self, step: UpgradeStep, seen: Observation) -> UpgradeDecision:
        if seen.generation is None:
            raise UpgradeError("the job's spec was deleted", fix="submit the job again; its upgrade has ended", job=step.upgrade.job)
        decision = decide(step, observe_upgrade(self.store, step, seen.generation, seen), self.clock.now_ms())
        match decision:
            case Transition():
                self.record(self._next(step, decision, seen))
            case Execute(action):
                return self._do(step, action)
        return decision

    def _do(self, step: UpgradeStep, action: UpgradeAction) -> UpgradeDecision:
        """Execute an action on the job. If a driver is still alive, the decision is to wait, and it is retried."""
        upgrade = step.upgrade
        try:
            match action:
                case "suspend":
                    suspend(self.store, step, self.clock)
                case "switch" | "start-old":
                    switch_code(self.store, step, self.clock)
                case "save":
                    saved = take_savepoint(self.store, step, self.clock)
                    self.on_progress(f"savepoint {saved.name} keeps the old code's state, epoch {saved.record.epoch}")
                    crash_point("upgrade-acted")
                    after = Transition("going-back" if upgrade.back_to else "starting")
                    attempt = newest_attempt(self.store, upgrade.job)
                    self.record(replace(self._next(step, after), epoch=saved.record.epoch, attempt=attempt))
                    return after
                case "go-back":
                    revert_job(self.store, step, upgrade.back_to, self.clock, self.on_progress)
                    crash_point("upgrade-acted")
                    origin = SavepointStore(self.store, upgrade.job, self.clock).get(upgrade.back_to)
                    self.record(replace(self._next(step, Transition("starting")), epoch=origin.record.epoch))
                    return Transition("starting")
                case "give-up":
                    if not abort(self.store, step, self.clock, self.on_progress):
                        late = already_reverted(step)
                        self.record(self._next(step, late))
                        return late
                case "put-back":
                    revert_job(self.store, step, upgrade.savepoint, self.clock, self.on_progress)
                    crash_point("upgrade-acted")
                    self.record(self._next(step, Transition("starting-old")))
                    return Transition("starting-old")
        except JobRunningError as error:
            return Wait(error.what)
        except OvertakenError:
            return Wait("another process carries it out")
        crash_point("upgrade-acted")
        return Execute(action)

    def _next(self, step: UpgradeStep, transition: Transition, seen: Observation | None = None) -> UpgradeStep:
        now = self.clock.now_ms()
        reason = transition.reason or (step.reason if step.step in ROLLBACK_STEPS else "")
        made = replace(
            step,
            number=step.number + 1,
            step=transition.step,
            at=now,
            by=self.by,
            reason=reason,
            stopped=step.stopped or transition.stopped,
        )
        if transition.step == "watching" and seen is not None and seen.generation is not None:
            return replace(made, generation=seen.generation.generation, until=now + step.upgrade.within_ms)
        return made

"""Executes an upgrade's next step: from the newest record and the observed job, to one action or the next record.

Who calls this has the upgrade's lease (``upgrade_leases`` in ``layout``). That spares work; what keeps two who go on apart is the records.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from tidemark.clock import Clock
from tidemark.control.desired.attempts import newest_attempt
from tidemark.control.model.upgrade_blocker import record_blocker
from tidemark.control.model.upgrade_records import ROLLBACK_STEPS, UpgradeStep, create_step
from tidemark.control.observed.observe import Observation
from tidemark.control.upgrade.upgrade_actions import OvertakenError, abort, revert_job, suspend, switch_code, take_savepoint, unlock_job
from tidemark.control.upgrade.upgrade_observation import observe_upgrade
from tidemark.control.upgrade.upgrade_plan import Execute, Transition, UpgradeAction, UpgradeDecision, Wait, already_reverted, decide
from tidemark.crashpoints import crash_point
from tidemark.errors import JobRunningError, TidemarkError, UpgradeError
from tidemark.savepoints.core.savepoint_store import SavepointStore
from tidemark.state.store.store import JobStore


@dataclass(frozen=True)
class UpgradeExecutor:
    """Takes the steps of upgrades of a store's jobs.

    Args:
        store: the root store.
        clock: the time.
        by: who goes on.
        on_progress: is told of what was done to a job, in words.
    """

    store: JobStore
    clock: Clock
    by: str
    on_progress: Callable[[str], None] = field(default=lambda _: None)

    def advance(self, step: UpgradeStep, seen: Observation) -> UpgradeDecision:
        """Take the next step, without waiting, and return it. A blocker is recorded, for the job's status.

        Args:
            step: the newest record.
            seen: the job, as it is now.

        Raises:
            UpgradeError: the job's spec is gone.
            RewindError: the tables cannot be put back; it can be gone on with when that is mended.
            TidemarkError: the job's files cannot be read or written.
        """
        try:
            return self._advance(step, seen)
        except TidemarkError as error:
            record_blocker(self.store, step, error, by=self.by, now=self.clock.now_ms())
            raise

    def record(self, step: UpgradeStep) -> bool:
        """Write the next record; returns False if another process was faster."""
        if step.ended:
            # Before the record: what is over must not keep anything.
            unlock_job(self.store, step)
        made = create_step(self.store, step)
        crash_point("upgrade-recorded")
        return made

    def _advance(self, step: UpgradeStep, seen: Observation) -> UpgradeDecision:
        if seen.generation is None:
            raise UpgradeError("the job's spec was deleted", fix="submit the job again; its upgrade is over", job=step.upgrade.job)
        decision = decide(step, observe_upgrade(self.store, step, seen.generation, seen), self.clock.now_ms())
        match decision:
            case Transition():
                self.record(self._next(step, decision, seen))
            case Execute(action):
                return self._do(step, action)
        return decision

    def _do(self, step: UpgradeStep, action: UpgradeAction) -> UpgradeDecision:
        """Change the job. What cannot be done while a driver still gives signs of life is tried again."""
        upgrade = step.upgrade
        try:
            match action:
                case "suspend":
                    suspend(self.store, step, self.clock)
                case "switch" | "start-old":
                    switch_code(self.store, step, self.clock)
                case "save":
                    saved = take_savepoint(self.store, step, self.clock)
                    self.on_progress(f"savepoint {saved.name} keeps what the old code ended with, epoch {saved.record.epoch}")
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
            return Wait("another process continues it")
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

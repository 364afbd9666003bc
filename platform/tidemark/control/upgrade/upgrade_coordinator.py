"""Upgrades a submitted job to new code, with rollback. It ends with new code that works, or with the old code and its results.

Each step is recorded before it is executed (``upgrade_records``), and a pure planner (``upgrade_plan``) decides the next one from that and
an observation. So after a crash any process that calls ``resume`` continues, and so do supervisors (``upgrade_worker``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from tidemark.clock import SYSTEM_CLOCK, Clock, format_ms
from tidemark.control.client.waiting import POLL_SECONDS, Waiting
from tidemark.control.desired.spec_store import current_user
from tidemark.control.model.launcher import Launcher
from tidemark.control.model.records import Lease
from tidemark.control.model.upgrade_records import ROLLBACK_STEPS, Step, UpgradeStep, newest_step
from tidemark.control.observed.leases import renewing, upgrade_lease
from tidemark.control.observed.observe import Observer
from tidemark.control.reconcile.reconciler import Reconciler
from tidemark.control.upgrade.upgrade_actions import unlock_job
from tidemark.control.upgrade.upgrade_completion import ensure_driver_started
from tidemark.control.upgrade.upgrade_executor import UpgradeExecutor
from tidemark.control.upgrade.upgrade_observation import was_reverted
from tidemark.control.upgrade.upgrade_plan import UpgradeDecision, Wait
from tidemark.durations import format_duration
from tidemark.errors import NotReachedError, UpgradeError
from tidemark.savepoints.model.rewind_journal import RewindJournal, read_rewind
from tidemark.state.encoding.free_text import require_no_secret
from tidemark.state.store.layout import job_folder
from tidemark.state.store.store import JobStore

_RECONCILE_SECONDS = 0.5

_ACCEPTABLE: frozenset[Step] = frozenset(("watching", "reverting", "putting-back"))
"""Steps in which the job's tables and state are as the new code left them, unless a rewind has begun."""


@dataclass
class Upgrading:
    """Carries out upgrades of a store's jobs, and reconciles these jobs in the meantime.

    Args:
        store: the root store.
        launchers: launchers of drivers, by name.
        clock: processing time.
        by: the name of this process in records; ``user@host`` by default.
        on_progress: called with the text of each step.
    """

    store: JobStore
    launchers: Mapping[str, Launcher]
    clock: Clock = SYSTEM_CLOCK
    by: str = ""
    on_progress: Callable[[str], None] = field(default=lambda _: None)

    def __post_init__(self) -> None:
        """Create the observer, which caches immutable records, the reconciler and the executor."""
        self._observer = Observer(self.store, self.launchers)
        self._reconciler = Reconciler(self.store, self.launchers, self.clock)
        self._executor = UpgradeExecutor(self.store, self.clock, self._by, self.on_progress)
        self._reconciled_at: float | None = None
        self._reported: UpgradeStep | None = None

    def resume(self, job: str, *, timeout_ms: int) -> UpgradeStep:
        """Carry out the upgrade under way until it has reached one of its two ends; returns that.

        Then the job's driver is started if its spec says so and none runs, and waited for; a failure of that is reported through
        ``on_progress``, and does not change the end.

        Args:
            job: the job's name.
            timeout_ms: how long to wait at most; a later call continues.

        Raises:
            UpgradeError: no upgrade of the job was begun.
            NotReachedError: the timeout expired.
            RewindError: the tables cannot be reverted; a later call continues when the cause is fixed.
            TidemarkError: the job's files cannot be read or written.
        """
        begun = self.clock.monotonic()
        end = self._run_to_end(job, begun, timeout_ms)
        left_ms = timeout_ms - round(1000 * (self.clock.monotonic() - begun))
        waiting = Waiting(self.store, self.launchers, self.clock)
        ensure_driver_started(self.store, end, waiting, timeout_ms=max(0, left_ms), on_progress=self.on_progress)
        return end

    def _run_to_end(self, job: str, begun: float, timeout_ms: int) -> UpgradeStep:
        """Execute the remaining steps, in turn with other processes, and return the last one."""
        others: Lease | None = None
        with renewing(upgrade_lease(self.store, job, self._reconciler.holder, self.clock)) as lease:
            while True:
                step = self.require_step(job)
                self._report_step(step)
                if step.ended:
                    # A process that was suspended and then killed in the middle of a step may have left its lock.
                    unlock_job(self.store, step)
                    return step
                # Aborting and accepting need no lease; the lease's holder acts on their records.
                if lease.take():
                    decision, others = self.advance(step), None
                else:
                    others = self._report_holder(lease.competing_lease(), others)
                    decision = Wait(
                        f"{others.holder_text} carries it out" if others is not None else "another process has just taken it over"
                    )
                if isinstance(decision, Wait):
                    if self.clock.monotonic() - begun >= timeout_ms / 1000:
                        raise _not_reached(step, decision.why, timeout_ms)
                    self.clock.sleep(POLL_SECONDS)

    def _report_holder(self, found: Lease | None, known: Lease | None) -> Lease | None:
        """Report which process carries it out, once per process, since leases are renewed all the time."""
        if found is not None and (known is None or known.holder != found.holder):
            self.on_progress(f"{found.holder_text} carries it out, and has its lease until {format_ms(found.until)}; waiting")
        return found

    def advance(self, step: UpgradeStep) -> UpgradeDecision:
        """Execute the next decision without waiting, and return it; called by the lease's holder."""
        job = step.upgrade.job
        self._reconcile(job)
        return self._executor.advance(step, self._observer.observe(job))

    def abort(self, job: str, why: str = "") -> UpgradeStep:
        """Roll an upgrade back, in any step; ``resume`` carries that out. An upgrade that has ended is not changed.

        Raises:
            UpgradeError: no upgrade of the job was begun.
        """
        require_no_secret(job, by=self._by, why=why)
        while True:
            step = self.require_step(job)
            if step.ended or step.step in ROLLBACK_STEPS:
                return step
            reason = f"aborted by {self._by}" + (f": {why}" if why else "")
            back = replace(step, number=step.number + 1, step="reverting", at=self.clock.now_ms(), by=self._by, reason=reason)
            if self._executor.record(back):
                return back

    def require_abort(self, job: str, why: str = "") -> UpgradeStep:
        """Abort as ``abort`` does, and raise if it is too late for that.

        Raises:
            UpgradeError: no upgrade of the job was begun, or the newest one has ended with the new code.
        """
        step = self.abort(job, why)
        if step.step == "done":
            raise UpgradeError(
                f"there is nothing to abort: {step}",
                fix=f"to roll back with the tables, upgrade to the old code from the savepoint: `tidemark upgrade {job} --code "
                f"{step.upgrade.before.code} --from {step.upgrade.savepoint}`",
                job=job,
            )
        return step

    def accept(self, job: str, why: str = "") -> UpgradeStep:
        """Accept an upgrade's new code without further checks, also during rollback, before state and tables are reverted.

        Raises:
            UpgradeError: no upgrade of the job was begun, the new code did not start yet, or the job is rewound already.
            DefinitionError: the requester or the reason contains a secret.
        """
        require_no_secret(job, by=self._by, why=why)
        while True:
            step = self.require_step(job)
            if step.step in {"accepting", "done"}:
                return step
            rewind = read_rewind(self.store.at(job_folder(job)))
            if step.step not in _ACCEPTABLE or rewind is not None or was_reverted(self.store, step.upgrade):
                raise _not_acceptable(step, rewind)
            reason = f"accepted by {self._by}" + (f": {why}" if why else "")
            on = replace(step, number=step.number + 1, step="accepting", at=self.clock.now_ms(), by=self._by, reason=reason)
            if self._executor.record(on):
                return on

    def require_step(self, job: str) -> UpgradeStep:
        """Return the newest step of the job's newest upgrade.

        Raises:
            UpgradeError: there was none.
        """
        step = newest_step(self.store, job)
        if step is None:
            raise UpgradeError("no upgrade of the job was begun", fix=f"begin one: `tidemark upgrade {job} --code MODULE:JOB`", job=job)
        return step

    @property
    def _by(self) -> str:
        return self.by or current_user()

    def _reconcile(self, job: str) -> None:
        now = self.clock.monotonic()
        if self._reconciled_at is not None and now - self._reconciled_at < _RECONCILE_SECONDS:
            return
        self._reconciled_at = now
        errors = self._reconciler.reconcile_all([job]).errors
        if job in errors:
            raise errors[job]

    def _report_step(self, step: UpgradeStep) -> None:
        """Report a step once, and a reason once, since that of a rollback stays the same and may be long."""
        if step != self._reported:
            self.on_progress(step.text(reported=self._reported.reason if self._reported is not None else ""))
            self._reported = step


def _not_reached(step: UpgradeStep, why: str, timeout_ms: int) -> NotReachedError:
    job = step.upgrade.job
    return NotReachedError(
        f"the upgrade of job {job!r} is {step.step} after {format_duration(timeout_ms)}, waits ({why}), and is heading for {step.heading}",
        fix=f"continue: `tidemark upgrade {job}` (supervisors do so by themselves); or roll back: `tidemark upgrade {job} --abort`",
        job=job,
    )


def _not_acceptable(step: UpgradeStep, rewind: RewindJournal | None) -> UpgradeError:
    """Return why the new code cannot be accepted, and what to do instead."""
    job, code = step.upgrade.job, step.upgrade.after.code
    again = f"then upgrade again: `tidemark upgrade {job} --code {code}`"
    if step.ended:
        why, fix = "the upgrade is over", again.removeprefix("then ")
    elif rewind is not None:
        why = f"the job is being rewound to savepoint {rewind.savepoint!r}, and some of its tables may be reverted already"
        fix = (
            f"complete the rollback to the old code (`tidemark upgrade {job}`; `tidemark status {job}` shows what blocks it, to be fixed "
            f"first); {again}"
        )
    elif step.step in ROLLBACK_STEPS:
        why, fix = "the job is rewound already", f"complete the rollback (`tidemark upgrade {job}`), {again}"
    else:
        why, fix = "the new code was not started yet", f"continue until it is watched (`tidemark upgrade {job}`); then accept it"
    return UpgradeError(f"the new code cannot be accepted now, since {why}: {step}", fix=fix, job=job)

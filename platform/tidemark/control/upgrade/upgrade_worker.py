"""Continues upgrades whose process has ended, or that were only begun: each pass of a reconciler executes the due steps.

While another process has the upgrade's lease, it is left alone; when the lease has expired, the next pass takes it. Long steps, such as
reverting tables, run in threads, so that the other jobs are reconciled in the meantime. Starts no JVM.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

from tidemark.clock import SYSTEM_CLOCK, Clock
from tidemark.control.desired.spec_store import current_user
from tidemark.control.model.launcher import Launcher
from tidemark.control.model.upgrade_records import UpgradeStep
from tidemark.control.observed.leases import renewing, upgrade_lease
from tidemark.control.observed.observe import Observation, Observer
from tidemark.control.reconcile.reconciler import Reconciler, new_holder
from tidemark.control.upgrade.upgrade_observation import observe_upgrade
from tidemark.control.upgrade.upgrade_plan import Wait, decide
from tidemark.state.store.store import JobStore

WAIT_SECONDS: Final = 5.0
"""How long a pass waits for the steps that it began; the next pass waits for longer ones again."""

_MAX_STEPS: Final = 12
_THREADS: Final = 4
_FIRST_BACKOFF_SECONDS: Final = 5.0
_MAX_BACKOFF_SECONDS: Final = 300.0


@dataclass(frozen=True)
class _Backoff:
    """The time until a retry after an error, by the monotonic clock; it doubles each time."""

    until: float
    seconds: float


class UpgradeWorker:
    """Continues upgrades, pass by pass.

    Args:
        store: the root store.
        observer: observes jobs.
        clock: processing time.
        holder: unique name of this process in leases.
        by: name of this process in records.
    """

    def __init__(self, store: JobStore, observer: Observer, clock: Clock, *, holder: str, by: str) -> None:
        self._store = store
        self._observer = observer
        self._clock = clock
        self._holder = holder
        self._by = by
        self._threads: ThreadPoolExecutor | None = None
        self._running: dict[str, Future[tuple[str, ...]]] = {}
        self._backoffs: dict[str, _Backoff] = {}

    def run_due_steps(self, seen: Observation) -> tuple[str, ...]:
        """Execute the due steps of a job's upgrade; returns them as text, empty if none was due.

        Args:
            seen: the job's current observation.

        Raises:
            TidemarkError: the error that blocks the next step, which is retried after a delay.
        """
        job = seen.job
        begun = self._running.get(job)
        if begun is None and not self._is_due(seen):
            return ()
        work = begun or self._begin(job)
        try:
            steps = work.result(timeout=WAIT_SECONDS if begun is None else 0)
        except Exception as error:
            if isinstance(error, TimeoutError) and not work.done():
                return ()
            del self._running[job]
            self._back_off(job)
            raise
        del self._running[job]
        self._backoffs.pop(job, None)
        return steps

    def _is_due(self, seen: Observation) -> bool:
        """Return whether a step is due, which is checked before the lease is taken."""
        step, spec = seen.active_upgrade, seen.generation
        backoff = self._backoffs.get(seen.job)
        if step is None or spec is None or (backoff is not None and self._clock.monotonic() < backoff.until):
            return False
        return not isinstance(decide(step, observe_upgrade(self._store, step, spec, seen), self._clock.now_ms()), Wait)

    def _begin(self, job: str) -> Future[tuple[str, ...]]:
        if self._threads is None:
            self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="tidemark-upgrade")
        work = self._running[job] = self._threads.submit(self._run_steps, job)
        return work

    def _run_steps(self, job: str) -> tuple[str, ...]:
        """Execute steps under the lease until one has to wait."""
        from tidemark.control.upgrade.upgrade_executor import UpgradeExecutor  # its import loads the Delta library

        steps: list[str] = []
        last: UpgradeStep | None = None
        with renewing(upgrade_lease(self._store, job, self._holder, self._clock)) as lease:
            executor = UpgradeExecutor(self._store, self._clock, self._by, steps.append)
            for _ in range(_MAX_STEPS):
                if not lease.take():
                    break
                # Observe again under the lease: its previous holder may have done the same.
                seen = self._observer.observe(job)
                step = seen.upgrade
                if step is not None and last is not None and step != last:
                    # The end repeats the reason: it may be the only step that a user sees in a sensor's ticks.
                    steps.append(step.text(reported="" if step.ended else last.reason))
                last = step
                if step is None or step.ended or isinstance(executor.advance(step, seen), Wait):
                    break
        return tuple(steps)

    def _back_off(self, job: str) -> None:
        before = self._backoffs.get(job)
        seconds = min(2 * before.seconds, _MAX_BACKOFF_SECONDS) if before is not None else _FIRST_BACKOFF_SECONDS
        self._backoffs[job] = _Backoff(self._clock.monotonic() + seconds, seconds)


def upgrading_reconciler(store: JobStore, launchers: Mapping[str, Launcher], clock: Clock = SYSTEM_CLOCK) -> Reconciler:
    """Return a reconciler that also continues upgrades that no other process carries out.

    Args:
        store: the root store.
        launchers: by the name that specs have.
        clock: processing time.
    """
    holder = new_holder()
    worker = UpgradeWorker(store, Observer(store, launchers), clock, holder=holder, by=current_user())
    return Reconciler(store, launchers, clock, holder, upgrades=worker)

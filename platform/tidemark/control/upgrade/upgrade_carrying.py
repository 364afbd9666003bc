"""Goes on with upgrades whose process is gone, or that were only begun: each pass of a reconciler takes the steps that are due.

Who has the upgrade's lease is left alone; when it has run out, the next pass takes it. What may take long, such as putting tables back, is
done beside the passes, so that the other jobs have their turn. Starts no JVM.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

from tidemark.clock import SYSTEM_CLOCK, Clock
from tidemark.control.desired.generations import who
from tidemark.control.model.launcher import Launcher
from tidemark.control.model.upgrade_records import UpgradeStep
from tidemark.control.observed.leases import held_while, upgrade_lease
from tidemark.control.observed.observe import Observation, Observer
from tidemark.control.reconcile.reconciler import Reconciler, new_holder
from tidemark.control.upgrade.upgrade_plan import Wait, decide
from tidemark.control.upgrade.upgrade_sight import sight_of
from tidemark.state.store.store import JobStore

PATIENCE_SECONDS: Final = 5.0
"""So long a pass waits for the steps that it began; those that take longer are looked at again by the next one."""

_MOVES: Final = 12
_THREADS: Final = 4
_FIRST_REST_SECONDS: Final = 5.0
_LONGEST_REST_SECONDS: Final = 300.0


@dataclass(frozen=True)
class _Rest:
    """After an error nothing is tried until then, by the monotonic clock; each time longer."""

    until: float
    seconds: float


class UpgradeCarrier:
    """Carries upgrades on, pass by pass.

    Args:
        store: the root store.
        observer: looks at jobs.
        clock: the time.
        holder: name of this process for the others.
        by: who goes on, for the records.
    """

    def __init__(self, store: JobStore, observer: Observer, clock: Clock, *, holder: str, by: str) -> None:
        self._store = store
        self._observer = observer
        self._clock = clock
        self._holder = holder
        self._by = by
        self._threads: ThreadPoolExecutor | None = None
        self._at_work: dict[str, Future[tuple[str, ...]]] = {}
        self._rests: dict[str, _Rest] = {}

    def carry_on(self, seen: Observation) -> tuple[str, ...]:
        """Take the steps of a job's upgrade that are due; return in words what was done, nothing where nothing was.

        Args:
            seen: the job, as it is now.

        Raises:
            TidemarkError: what stands against the next step; it is tried again after a while.
        """
        job = seen.job
        begun = self._at_work.get(job)
        if begun is None and not self._is_due(seen):
            return ()
        work = begun or self._begin(job)
        try:
            said = work.result(timeout=PATIENCE_SECONDS if begun is None else 0)
        except Exception as error:
            if isinstance(error, TimeoutError) and not work.done():
                return ()
            del self._at_work[job]
            self._rest(job)
            raise
        del self._at_work[job]
        self._rests.pop(job, None)
        return said

    def _is_due(self, seen: Observation) -> bool:
        """Say whether there is something to do; the lease is not asked for before."""
        step, spec = seen.under_upgrade, seen.generation
        rest = self._rests.get(seen.job)
        if step is None or spec is None or (rest is not None and self._clock.monotonic() < rest.until):
            return False
        return not isinstance(decide(step, sight_of(self._store, step, spec, seen), self._clock.now_ms()), Wait)

    def _begin(self, job: str) -> Future[tuple[str, ...]]:
        if self._threads is None:
            self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="tidemark-upgrade")
        work = self._at_work[job] = self._threads.submit(self._carry, job)
        return work

    def _carry(self, job: str) -> tuple[str, ...]:
        """Take one step after another under the lease, until something has to be waited for."""
        from tidemark.control.upgrade.upgrade_work import UpgradeWork  # it loads what reads and writes Delta tables

        said: list[str] = []
        last: UpgradeStep | None = None
        with held_while(upgrade_lease(self._store, job, self._holder, self._clock)) as lease:
            work = UpgradeWork(self._store, self._clock, self._by, said.append)
            for _ in range(_MOVES):
                if not lease.take():
                    break
                # Under the lease everything is looked at again: who had it before may have done the same.
                seen = self._observer.observe(job)
                step = seen.upgrade
                if step is not None and last is not None and step != last:
                    # The end once more with the reason: it may be the only step that somebody sees of a sensor's ticks.
                    said.append(step.text(told="" if step.ended else last.reason))
                last = step
                if step is None or step.ended or isinstance(work.advance(step, seen), Wait):
                    break
        return tuple(said)

    def _rest(self, job: str) -> None:
        before = self._rests.get(job)
        seconds = min(2 * before.seconds, _LONGEST_REST_SECONDS) if before is not None else _FIRST_REST_SECONDS
        self._rests[job] = _Rest(self._clock.monotonic() + seconds, seconds)


def upgrading_reconciler(store: JobStore, launchers: Mapping[str, Launcher], clock: Clock = SYSTEM_CLOCK) -> Reconciler:
    """Return a reconciler that also goes on with upgrades that nobody else goes on with.

    Args:
        store: the root store.
        launchers: by the name that specs have.
        clock: processing time.
    """
    holder = new_holder()
    carrier = UpgradeCarrier(store, Observer(store, launchers), clock, holder=holder, by=who())
    return Reconciler(store, launchers, clock, holder, upgrades=carrier)

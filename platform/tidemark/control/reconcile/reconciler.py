"""Brings jobs to where their specs want them: looks, plans, writes down what it is about to do, does it.

Any number may run at once and any may die at any point. A lease keeps them from doing the same work; the attempts and the job's log keep
two drivers apart whatever happens.
"""

from __future__ import annotations

import logging
import secrets
import threading
import traceback
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final, Protocol

from tidemark.clock import SYSTEM_CLOCK, Clock
from tidemark.control.desired.attempts import abandon_attempt, create_attempt, delete_attempts
from tidemark.control.desired.spec_store import current_user
from tidemark.control.model.launcher import Launcher
from tidemark.control.model.records import Attempt, ControlStatus, Failure, Lease, ProcessHandle
from tidemark.control.model.spec import SpecGeneration
from tidemark.control.observed.leases import release_lease, take_lease
from tidemark.control.observed.observe import Observation, Observer, job_names, write_control_status
from tidemark.control.reconcile.actions import AbandonAttempt, Action, Kill, LaunchAttempt, PruneAttempts, RequestStop, WriteStatus
from tidemark.control.reconcile.effective_status import STATES
from tidemark.control.reconcile.plan import after_failure, plan
from tidemark.errors import LaunchError, StoreError, TidemarkError
from tidemark.state.encoding.redaction import redacted, without_secrets
from tidemark.state.log.process_identity import current_owner
from tidemark.state.store.store import JobStore

logger = logging.getLogger("tidemark")

_ROUNDS: Final = 4
"""So many plans for one job in one pass: enough for "killed, gone, failed, started again"."""

_THREADS: Final = 32
"""Jobs looked at at once where the store is a network away; on a disk threads only get in each other's way."""


@dataclass(frozen=True)
class JobResult:
    """What a pass did for one job.

    ``lease_held_elsewhere`` means that another reconciler has its lease; ``steps``, in words, are those of its upgrade.
    """

    job: str
    actions: tuple[Action, ...] = ()
    lease_held_elsewhere: bool = False
    steps: tuple[str, ...] = ()


@dataclass(frozen=True)
class ReconcileReport:
    """One pass: what was known of each job that has a spec before anything was done, what was done, and what could not be done."""

    observations: tuple[Observation, ...]
    results: tuple[JobResult, ...]
    errors: Mapping[str, TidemarkError]

    @property
    def acted(self) -> tuple[JobResult, ...]:
        """The jobs for which something was done."""
        return tuple(done for done in self.results if done.actions or done.steps)


class UpgradeSteps(Protocol):
    """Takes the steps of jobs' upgrades that are due, such as ``UpgradeWorker``."""

    def run_due_steps(self, seen: Observation) -> tuple[str, ...]:
        """Take the steps of one job's upgrade that are due; return in words what was done, nothing where nothing was.

        Raises:
            TidemarkError: what prevents the next step.
        """


class Reconciler:
    """Carries out plans.

    Args:
        store: the root store.
        launchers: by the name that specs have.
        clock: processing time.
        holder: name of this reconciler for the others; one of its own for every object by default.
        upgrades: goes on with upgrades that nobody else goes on with; they are left alone by default.
    """

    def __init__(
        self,
        store: JobStore,
        launchers: Mapping[str, Launcher],
        clock: Clock = SYSTEM_CLOCK,
        holder: str | None = None,
        *,
        upgrades: UpgradeSteps | None = None,
    ) -> None:
        self._store = store
        self._launchers = launchers
        self._clock = clock
        self._observer = Observer(store, launchers)
        self.holder = holder or new_holder()
        self._upgrades = upgrades

    def reconcile_all(self, jobs: Iterable[str] | None = None, *, stop: threading.Event | None = None) -> ReconcileReport:
        """Look at jobs and do what is to be done; one job's trouble is reported and does not keep the others from their turn.

        Args:
            jobs: their names; all of the store by default.
            stop: ends the pass early, between two jobs.

        Raises:
            StoreError: the store cannot be reached at all.
        """
        names = tuple(job_names(self._store) if jobs is None else jobs)
        seen: list[Observation] = []
        results: list[JobResult] = []
        errors: dict[str, TidemarkError] = {}
        for name, observed in self._observe_all(names):
            if stop is not None and stop.is_set():
                break
            if isinstance(observed, TidemarkError):
                errors[name] = observed
                continue
            if observed.generation is None:
                continue
            seen.append(observed)
            try:
                results.append(self._reconcile(observed))
                results[-1] = self._with_upgrade(results[-1], observed)
            except Exception as error:  # noqa: BLE001 - whatever it is, it is this job's, and the others have their turn
                errors[name] = _of_job(name, error)
        if errors and not seen and all(isinstance(error, StoreError) for error in errors.values()):
            raise next(iter(errors.values()))
        return ReconcileReport(tuple(seen), tuple(results), errors)

    def _observe_all(self, names: tuple[str, ...]) -> Iterable[tuple[str, Observation | TidemarkError]]:
        if self._store.location.scheme == "file" or len(names) < 2:
            return ((name, self._observe(name)) for name in names)
        with ThreadPoolExecutor(min(_THREADS, len(names)), thread_name_prefix="tidemark-look") as pool:
            return zip(names, pool.map(self._observe, names), strict=True)

    def _observe(self, name: str) -> Observation | TidemarkError:
        try:
            return self._observer.observe(name)
        except Exception as error:  # noqa: BLE001 - as in reconcile_all
            return _of_job(name, error)

    def _reconcile(self, seen: Observation) -> JobResult:
        """Do what is to be done for one job, under its lease."""
        spec = seen.generation
        if spec is None or not plan(spec, seen, self._clock.now_ms()):
            return JobResult(seen.job)
        lease = take_lease(self._store, seen.job, holder=self.holder, now=self._clock.now_ms(), owner=current_owner())
        if lease is None:
            return JobResult(seen.job, lease_held_elsewhere=True)
        try:
            done = self._act(seen.job, lease)
        except Exception:
            # Others may be able to do it; what went wrong here is said, whatever becomes of the lease.
            with suppress(TidemarkError):
                release_lease(self._store, seen.job, lease)
            raise
        release_lease(self._store, seen.job, lease)
        return JobResult(seen.job, done)

    def _with_upgrade(self, done: JobResult, seen: Observation) -> JobResult:
        """Go on with the job's upgrade, and do what comes of that for its driver; return what was done with what was before."""
        for _ in range(_ROUNDS):
            if self._upgrades is None or seen.active_upgrade is None:
                break
            # What was done before has changed what there is to see.
            seen = self._observer.observe(done.job) if done.actions else seen
            steps = self._upgrades.run_due_steps(seen)
            for text in steps:
                logger.info("%s: %s", done.job, text)
            if not steps:
                break
            seen = self._observer.observe(done.job)
            after = self._reconcile(seen)
            done = JobResult(done.job, done.actions + after.actions, after.lease_held_elsewhere, done.steps + steps)
        return done

    def _act(self, job: str, lease: Lease) -> tuple[Action, ...]:
        """Look and do, until nothing is left to do at once."""
        done: list[Action] = []
        for _ in range(_ROUNDS):
            # Under the lease everything is looked at again: who had it before may have done the same.
            seen = self._observer.observe(job)
            now = self._clock.now_ms()
            if seen.generation is None or now >= lease.until:
                break
            actions = plan(seen.generation, seen, now)
            if actions and seen.process == "gone" and seen.handle is not None:
                # What it left running, before its end is written down: if this one dies between the two, the next one sees to it.
                self._launcher(seen.handle.launcher).kill(seen.handle)
            carried_out = self._carry_out(seen.generation, seen, actions, lease=lease)
            done += carried_out
            if not actions or len(carried_out) < len(actions) or all(isinstance(action, RequestStop | Kill) for action in actions):
                break
        return tuple(done)

    def _carry_out(self, spec: SpecGeneration, seen: Observation, actions: tuple[Action, ...], *, lease: Lease) -> tuple[Action, ...]:
        """Do one action after another; stops before the first that another reconciler was faster with."""
        done: list[Action] = []
        for action in actions:
            if self._clock.now_ms() >= lease.until or not self._do(spec, seen.job, action):
                break
            done.append(action)
        return tuple(done)

    def _do(self, spec: SpecGeneration, job: str, action: Action) -> bool:
        match action:
            case WriteStatus(status):
                write_control_status(self._store, status)
                logger.info("%s: %s%s%s", job, STATES[status.lifecycle], f", {status.reason}" if status.reason else "", _cause(status))
            case AbandonAttempt(attempt):
                return abandon_attempt(self._store, job, attempt, by=self.holder, at=self._clock.now_ms())
            case LaunchAttempt():
                return self._start(spec, job, action)
            case RequestStop(how, process):
                logger.info("%s: asks %s to stop (%s)", job, _process_text(process), how)
                self._launcher(process.launcher).ask_to_stop(process)
            case Kill(why, process):
                logger.warning("%s: kills %s: %s", job, _process_text(process), why)
                self._launcher(process.launcher).kill(process)
            case PruneAttempts(below):
                delete_attempts(self._store, job, below)
        return True

    def _start(self, spec: SpecGeneration, job: str, action: LaunchAttempt) -> bool:
        """Create the attempt, say so, launch, say what was launched; after a death between any two of these the next pass goes on."""
        launcher = self._launcher(spec.spec.launcher)
        attempt = Attempt(action.attempt, spec.generation, self._clock.now_ms(), self.holder, action.why, action.takeover)
        if not create_attempt(self._store, job, attempt):
            return False
        status = action.status
        write_control_status(self._store, status)
        logger.info("%s: starts attempt %d: %s", job, attempt.number, action.why)
        try:
            process = self._launched(launcher, spec, attempt)
        except LaunchError as error:
            # Nobody else may launch it, and this one did not: make sure of that, then it has failed.
            if abandon_attempt(self._store, job, attempt.number, by=self.holder, at=self._clock.now_ms()):
                now = self._clock.now_ms()
                failed = Failure(now, attempt.number, attempt.at, None, error.code, str(error), error.transient)
                write_control_status(self._store, after_failure(spec, status, failed, now))
            logger.warning("%s: attempt %d was not launched: %s", job, attempt.number, error)
            return False
        write_control_status(self._store, replace(status, process=process))
        return True

    def _launched(self, launcher: Launcher, spec: SpecGeneration, attempt: Attempt) -> ProcessHandle:
        try:
            return launcher.launch(spec, attempt, self._store.uri)
        except TidemarkError:
            raise
        except Exception as error:  # noqa: BLE001 - nothing runs, so it is the launch that failed, and is tried again
            raise LaunchError(
                f"launcher {spec.spec.launcher!r} failed: {type(error).__name__}: {redacted(str(error))}",
                fix="check that what the job's spec names exists and can be read (folder, code_paths, variables)",
                job=spec.spec.job,
                place=_raised_at(error),
            ) from without_secrets(error)

    def _launcher(self, name: str) -> Launcher:
        found = self._launchers.get(name)
        if found is None:
            raise LaunchError(
                f"this reconciler has no launcher {name!r}",
                fix=f"let one that has it act on the job, or submit it with one of these: {', '.join(sorted(self._launchers))}",
            )
        return found


def new_holder() -> str:
    """Return a name for one reconciler: who runs it, and what sets it apart from others of the same user."""
    return f"{current_user()}/{secrets.token_hex(4)}"


def _of_job(job: str, error: Exception) -> TidemarkError:
    """Return an error of one job as one that says so; what nobody foresaw, too."""
    if isinstance(error, TidemarkError):
        return error.with_job(job)
    found = TidemarkError(
        f"it failed in a way that was not foreseen: {type(error).__name__}: {redacted(str(error))}",
        fix="see what of the job's spec or of its machine leads to it; the other jobs are looked after",
        job=job,
        place=_raised_at(error),
    )
    found.__cause__ = without_secrets(error)
    return found


def _raised_at(error: Exception) -> str | None:
    """Return where an error was raised, as file and line."""
    frames = traceback.extract_tb(error.__traceback__)
    return f"{frames[-1].filename}:{frames[-1].lineno}" if frames else None


def _process_text(process: ProcessHandle) -> str:
    return f"process {process.pid if process.pid is not None else process.application} on host {process.host!r}"


def _cause(status: ControlStatus) -> str:
    """Return the first line of the error that an attempt failed with; a status that says no failure has none."""
    if status.error is None or status.lifecycle not in {"failing", "failed"}:
        return ""
    return f": {(status.error.message.splitlines() or [status.error.code])[0]}"

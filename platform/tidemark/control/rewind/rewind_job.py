"""Rewinds of submitted jobs: a running job is stopped first, and started again by the process that completes the rewind."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tidemark.clock import SYSTEM_CLOCK, Clock
from tidemark.control.client.job_client import JobClient
from tidemark.control.client.waiting import Goal, Waiting
from tidemark.control.desired.request_log import log_request
from tidemark.control.desired.spec_store import current_user, read_spec
from tidemark.control.model.launcher import Launcher
from tidemark.control.model.spec import SpecGeneration
from tidemark.control.model.view import JobView
from tidemark.control.rewind.publishing import publisher
from tidemark.control.rewind.rename_replay import is_rename_replay, reapply_renames, renames_text
from tidemark.crashpoints import crash_point
from tidemark.errors import RewindError
from tidemark.savepoints.model.restore_history import is_restore_due
from tidemark.savepoints.model.rewind_journal import RewindJournal, is_rewound_to, read_rewind
from tidemark.savepoints.rewind.rewind_abort import abort_rewind
from tidemark.savepoints.rewind.rewinding import OnProgress, require_possible, rewind
from tidemark.state.log.joblog import newest_epoch
from tidemark.state.log.records import EpochRecord
from tidemark.state.store.layout import job_folder
from tidemark.state.store.store import JobStore


@dataclass(frozen=True)
class RewindResult:
    """The result of a rewind: the job's newest epoch; the spec with which it was started again and its view, None if it was not started."""

    head: EpochRecord
    started: SpecGeneration | None = None
    view: JobView | None = None


@dataclass(frozen=True)
class Rewinder:
    """Rewinds jobs of a store that may run.

    Args:
        store: the root store.
        launchers: launchers of drivers, by name.
        timeout_ms: how long to wait for a job to stop, and then for it to run again.
        by: who requests it; ``user@host`` by default.
        clock: processing time.
        on_progress: called with the text of each step of a rewind.
        on_status: called with the job's view whenever it changes while it is stopped or started.
    """

    store: JobStore
    launchers: Mapping[str, Launcher]
    timeout_ms: int
    by: str = ""
    clock: Clock = SYSTEM_CLOCK
    on_progress: OnProgress | None = None
    on_status: Callable[[JobView], None] | None = None

    def rewind(self, job: str, name: str, *, stop: bool, why: str = "") -> RewindResult:
        """Rewind a job to a savepoint with its tables. Called again after a crash it continues, and starts the job that it had stopped.

        Args:
            job: the job's name.
            name: the savepoint.
            stop: stop a running job first, and start it again, also without a supervisor; else it must not run.
            why: the reason.

        Raises:
            NotReachedError: the job did not stop in time, or was rewound and did not start in time; the request stays in effect.
            TidemarkError: as ``savepoints.rewinding.rewind``. What can be checked is checked before the job is stopped.
        """
        newest = read_spec(self.store, job) if stop else None
        last = newest_epoch(self.store, job)
        client = JobClient(self.store, self.by, self.clock)
        starts = newest is not None and (newest.spec.wanted == "running" or newest.spec.for_rewind)
        if starts:
            require_possible(self.store, job, name, clock=self.clock)
            made = client.stop(job, "finish", why or f"rewind to {name}", for_rewind=True)
            crash_point("rewind-stopping")
            self._wait(made, "ended")
            # Not a job that a user has just stopped.
            starts = made.spec.for_rewind
        head = self._revert_job(job, name, why, starts=starts)
        crash_point("rewind-done")
        submitted = read_spec(self.store, job)
        # If this call repeats a completed rewind, the epoch before it is no longer known.
        before = None if last is None or is_rewound_to(last, name) else last
        again = reapply_renames(submitted.spec.restore, head, savepoint=name, before=before) if submitted is not None else None
        if again is None:
            self._drop_pending_restore(job, name, renames=True)
        if not starts:
            if newest is not None:
                self._report(f"{job} stays suspended as before; to start it: `tidemark start {job}`")
            if again is not None:
                self._report(
                    f"its code has renamed parts of the rewound state ({renames_text(again)}): submit the old code before starting it, "
                    f"or replay the renames: `tidemark resume {job}`, then `tidemark rewind {job} --to {name} --stop`"
                )
            return RewindResult(head)
        if again is not None:
            self._report(f"replaying the renames that its code has made since: {renames_text(again)}")
        started = client.start(job, why or f"rewound to {name}", restore=again)
        return RewindResult(head, started, self._wait(started, "running"))

    def abort(self, job: str) -> RewindJournal:
        """Abort a rewind that has not reverted a table yet, and start the job if it was stopped for it.

        Raises:
            TidemarkError: as ``savepoints.rewind_abort.abort_rewind``.
        """
        log_request(self.store, job, "abort of a rewind", by=self.by or current_user(), clock=self.clock)
        journal = abort_rewind(self.store, job, clock=self.clock, on_progress=self._report)
        self._restart_job(job, f"the rewind to {journal.savepoint} was aborted")
        return journal

    def _revert_job(self, job: str, name: str, why: str, *, starts: bool) -> EpochRecord:
        """Rewind a job that does not run; if the rewind is refused, start the job again if it was stopped for it."""
        folder = self.store.at(job_folder(job))

        log_request(self.store, job, f"rewind to savepoint {name}", by=self.by or current_user(), why=why, clock=self.clock)

        def begun() -> None:
            # Only after the journal is written: a rewind that is refused before leaves the job unchanged.
            if read_rewind(folder) is not None:
                self._drop_pending_restore(job, name, renames=False)

        try:
            return rewind(
                self.store,
                job,
                name,
                by=self.by or current_user(),
                why=why,
                clock=self.clock,
                on_progress=self.on_progress,
                publish=publisher(self.store, job),
                require=begun,
            )
        except RewindError:
            if starts and read_rewind(folder) is None:
                # Only the stop has to be undone.
                self._restart_job(job, f"the rewind to {name} was refused")
            raise

    def _restart_job(self, job: str, why: str) -> None:
        """Start a job that was stopped for a rewind which was refused or aborted; does not wait for its driver."""
        submitted = read_spec(self.store, job)
        if submitted is not None and submitted.spec.for_rewind:
            JobClient(self.store, self.by, self.clock).start(job, why)
            self._report(f"{job} was stopped for it, and is to run again (by a supervisor, or `tidemark start {job}`)")

    def _drop_pending_restore(self, job: str, name: str, *, renames: bool) -> None:
        """Withdraw a restore that was requested before and not made: the driver would restore other state than that of the tables.

        Args:
            job: the job's name.
            name: the savepoint.
            renames: whether to withdraw rename replays, too; before the rewind they are still needed to know the names.
        """
        submitted, folder = read_spec(self.store, job), self.store.at(job_folder(job))
        pending = submitted.spec.restore if submitted is not None else None
        if pending is None or not pending.identity or (is_rename_replay(pending) and (not renames or pending.savepoint == name)):
            return
        head = newest_epoch(self.store, job)
        # A job without an epoch cannot be rewound; the rewind raises that next.
        if head is not None and is_restore_due(folder, head, pending):
            JobClient(self.store, self.by, self.clock).drop_restore(job, pending, f"rewind to {name}")
            self._report(f"the pending restore from savepoint {pending.savepoint} was withdrawn")

    def _report(self, text: str) -> None:
        if self.on_progress is not None:
            self.on_progress(text)

    def _wait(self, made: SpecGeneration, goal: Goal) -> JobView:
        waiting = Waiting(self.store, self.launchers, self.clock)
        view = waiting.until(made.spec.job, goal, generation=made.generation, timeout_ms=self.timeout_ms, on_progress=self.on_status)
        if self.on_status is not None:
            self.on_status(view)
        return view

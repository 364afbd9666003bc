"""Requests to a job: each writes a new generation of its spec, which reconcilers act on later."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from tidemark.clock import SYSTEM_CLOCK, Clock
from tidemark.control.client.autoscaler_change import AutoscalerChange
from tidemark.control.desired.attempts import newest_attempt
from tidemark.control.desired.spec_store import change_spec, current_user, require_spec
from tidemark.control.model.records import ACTIVE, ControlStatus, attempt_of
from tidemark.control.model.spec import JobSpec, MissingEpochsRequest, SpecGeneration, StopMode
from tidemark.control.model.upgrade_records import record_stop, require_spec_unheld
from tidemark.control.observed.observe import read_control_status, status_or_error
from tidemark.control.reconcile.effective_status import STATES
from tidemark.errors import DefinitionError
from tidemark.savepoints.model.restore import Restore
from tidemark.state.encoding.free_text import require_no_secret
from tidemark.state.log.joblog import newest_epoch
from tidemark.state.log.progress import MissingEpochs
from tidemark.state.store.store import JobStore


@dataclass(frozen=True)
class JobClient:
    """Submits, starts, stops and restarts jobs by writing their specs.

    Args:
        store: the root store.
        by: who requests it; ``user@host`` by default.
        clock: processing time.
    """

    store: JobStore
    by: str = ""
    clock: Clock = SYSTEM_CLOCK

    def submit(self, spec: JobSpec, why: str = "", *, missing_epochs: MissingEpochs | None = None) -> SpecGeneration:
        """Write a job's spec, whether the job exists or not.

        The number of requested restarts is kept, and of a fork what makes it one: its origin, the folder of its tables, and the restore
        that it begins with. A failed job is started again if ``missing_epochs`` is given.

        Args:
            spec: the new spec.
            why: the reason.
            missing_epochs: as for ``start``.

        Raises:
            DefinitionError: the spec is invalid.
            UpgradeError: an upgrade of the job has suspended it, and would overwrite the spec, or would go back for other code.
            CorruptStoreError: the job's log is damaged.
        """

        def change(newest: SpecGeneration | None) -> JobSpec:
            if newest is None:
                return replace(spec, missing_epochs=request)
            status = read_control_status(self.store, spec.job)
            failed = status is not None and (status.lifecycle == "failed" or self._failed_unreconciled(status))
            restarts = max(spec.restarts, newest.spec.restarts + (failed and request is not None))
            changed = replace(_as_fork(spec, newest.spec), restarts=restarts, missing_epochs=request)
            require_spec_unheld(self.store, spec.job, "submit it again", spec=changed)
            return changed

        request = self._missing_epochs(spec.job, missing_epochs)
        return change_spec(self.store, spec.job, change, by=self._by, why=why or "submitted", clock=self.clock)

    def start(
        self, job: str, why: str = "", *, restore: Restore | None = None, missing_epochs: MissingEpochs | None = None
    ) -> SpecGeneration:
        """Request that a job runs; a failed one is started again, also if no reconciler has seen the failure yet.

        A job whose input has ended stays finished, unless it was rewound to before that end. A job that was just stopped, before a
        reconciler saw that, gets a new driver: whether its old one ended for the stop or failed before is not known.

        Args:
            job: the job's name.
            why: the reason.
            restore: the savepoint to restore from; None keeps the spec's.
            missing_epochs: what to do about epochs that an output no longer holds; applies only after the epoch that is the newest now.

        Raises:
            UnknownJobError: the job was never submitted.
            UpgradeError: an upgrade of the job has suspended it, and starts it itself or leaves it stopped.
            CorruptStoreError: the job's log is damaged.
        """

        def of_newest(newest: SpecGeneration | None) -> JobSpec:
            made = newest or require_spec(self.store, job)
            require_spec_unheld(self.store, job, f"`tidemark start {job}`")
            spec, status = made.spec, read_control_status(self.store, job)
            lifecycle = status.lifecycle if status is not None else "created"
            unseen = status is not None and status.generation < made.generation and lifecycle in {*ACTIVE, "failing"}
            again = (
                lifecycle == "failed"
                or (status is not None and self._failed_unreconciled(status))
                or (spec.wanted == "suspended" and unseen)
            )
            again = again or (lifecycle == "finished" and self._is_before_end_of_input(job))
            return replace(
                spec,
                wanted="running",
                for_rewind=False,
                restarts=spec.restarts + again,
                restore=restore or spec.restore,
                missing_epochs=request,
            )

        require_spec(self.store, job)
        request = self._missing_epochs(job, missing_epochs)
        return change_spec(self.store, job, of_newest, by=self._by, why=why or "start", clock=self.clock)

    def stop(self, job: str, how: StopMode = "finish", why: str = "", *, for_rewind: bool = False) -> SpecGeneration:
        """Request that a job's driver ends, and that no other is started; an upgrade that is under way goes back, and does not start one.

        Args:
            job: the job's name.
            how: after the current epoch; after all input, with all windows closed; or at once.
            why: the reason.
            for_rewind: only until a rewind is done; a job that is already suspended stays so.

        Raises:
            UnknownJobError: the job was never submitted.
            DefinitionError: ``how`` is ``drain`` and the job does not run, or a text contains a secret.
        """

        def change(spec: JobSpec) -> JobSpec:
            self._require_drainable(job, how)
            if for_rewind and spec.wanted == "suspended":
                return spec
            return replace(spec, wanted="suspended", stop=how, for_rewind=for_rewind)

        require_spec(self.store, job)
        self._require_drainable(job, how)
        if not for_rewind:
            require_no_secret(job, by=self._by, why=why)
            # Before the spec: a process that carries the upgrade out in between continues from this record, or is seen to be further.
            record_stop(self.store, job, by=self._by, why=why, now=self.clock.now_ms())
        return self._change(job, change, why or {"finish": "stop", "drain": "stop --drain", "now": "cancel"}[how])

    def rescale(self, job: str, parallelism: int | None, why: str = "") -> SpecGeneration:
        """Request another parallelism from the driver's next epoch on, without a restart; None is as the job has it.

        Raises:
            UnknownJobError: the job was never submitted.
            DefinitionError: it is less than 1.
        """
        text = "as the job has it" if parallelism is None else str(parallelism)
        return self._change(job, lambda spec: replace(spec, parallelism=parallelism), why or f"rescale to {text}")

    def autoscale(self, job: str, change: AutoscalerChange, why: str = "") -> SpecGeneration:
        """Request other settings of a job's autoscaler.

        Raises:
            UnknownJobError: the job was never submitted.
            DefinitionError: the settings are invalid.
        """
        return self._change(job, lambda spec: replace(spec, autoscaler=change.of(spec.autoscaler)), why or "autoscale")

    def drop_restore(self, job: str, restore: Restore, why: str) -> SpecGeneration:
        """Withdraw a restore that was requested and not made; another one that was requested since stays.

        Raises:
            UnknownJobError: the job was never submitted.
        """
        return self._change(job, lambda spec: replace(spec, restore=None) if spec.restore == restore else spec, why)

    def restart(self, job: str, why: str = "") -> SpecGeneration:
        """Request a new driver, also of a failed or suspended job; it fails on missing epochs.

        Raises:
            UnknownJobError: the job was never submitted.
            UpgradeError: an upgrade of the job has suspended it.
        """

        def change(spec: JobSpec) -> JobSpec:
            require_spec_unheld(self.store, job, f"`tidemark restart {job}`")
            return replace(spec, wanted="running", for_rewind=False, restarts=spec.restarts + 1, missing_epochs=None)

        return self._change(job, change, why or "restart")

    @property
    def _by(self) -> str:
        return self.by or current_user()

    def _require_drainable(self, job: str, how: StopMode) -> None:
        status = read_control_status(self.store, job)
        if how == "drain" and (status is None or status.lifecycle not in {*ACTIVE, "failing"}):
            raise DefinitionError(
                f"job {job!r} does not run ({STATES[status.lifecycle] if status is not None else 'created'}), so it cannot drain",
                fix=f"start it first: `tidemark start {job}`",
                job=job,
            )

    def _failed_unreconciled(self, status: ControlStatus) -> bool:
        """Return whether the newest attempt's driver ended with a permanent error, and no reconciler has written that yet."""
        if status.lifecycle not in ACTIVE:
            return False
        driver, _ = status_or_error(self.store, status.job)
        failed = driver is not None and driver.state == "failed" and not driver.error_transient
        return failed and driver is not None and attempt_of(driver.owner) == newest_attempt(self.store, status.job)

    def _missing_epochs(self, job: str, how: MissingEpochs | None) -> MissingEpochsRequest | None:
        head = newest_epoch(self.store, job) if how is not None else None
        return MissingEpochsRequest(how, head.lineage, head.epoch) if how is not None and head is not None else None

    def _is_before_end_of_input(self, job: str) -> bool:
        """Return whether a finished job was rewound since."""
        head = newest_epoch(self.store, job)
        return head is not None and not head.end_of_input

    def _change(self, job: str, change: Callable[[JobSpec], JobSpec], why: str) -> SpecGeneration:
        require_spec(self.store, job)

        def of_newest(newest: SpecGeneration | None) -> JobSpec:
            return change((newest or require_spec(self.store, job)).spec)

        return change_spec(self.store, job, of_newest, by=self._by, why=why, clock=self.clock)


def _as_fork(spec: JobSpec, fork: JobSpec) -> JobSpec:
    """Return a spec that was submitted for a fork, with what it keeps of the fork's; for another job the spec itself.

    Without these a driver would write to the tables that the code names, which are those of the job that was forked.
    """
    if fork.outputs_root is None:
        return spec
    root = spec.outputs_root or fork.outputs_root
    return replace(spec, outputs_root=root, forked=spec.forked or fork.origin, restore=spec.restore or fork.restore)

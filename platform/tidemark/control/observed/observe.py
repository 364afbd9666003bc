"""Observes a job at one moment: a few small files, and whether its process is alive. No decision is made here."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tidemark.control.desired.attempts import read_attempt, read_claim
from tidemark.control.desired.spec_store import read_generation
from tidemark.control.model.autoscaler_records import AutoscalerRecord, read_record
from tidemark.control.model.driver_starts import read_start
from tidemark.control.model.driver_warnings import read_warning
from tidemark.control.model.launcher import Launcher, ProcessState
from tidemark.control.model.paths import (
    ATTEMPTS,
    AUTOSCALER,
    CLAIMS,
    CONTROL,
    CONTROL_STATUS,
    SPECS,
    STARTS,
    UPGRADE_BLOCKER,
    UPGRADES,
    WARNINGS,
    number_in,
)
from tidemark.control.model.records import Attempt, Claim, ControlStatus, DriverStart, DriverWarning, ErrorInfo, ProcessHandle, attempt_of
from tidemark.control.model.spec import SpecGeneration
from tidemark.control.model.standby_view import StandbyView, standby_of
from tidemark.control.model.upgrade_blocker import UpgradeBlocker, read_blocker
from tidemark.control.model.upgrade_records import UpgradeStep, read_step
from tidemark.errors import CorruptStoreError
from tidemark.names import is_name
from tidemark.state.log.heartbeat import Heartbeat, read_heartbeat
from tidemark.state.log.process_identity import is_known_dead
from tidemark.state.log.progress import EpochProgress
from tidemark.state.status.status import JobStatus, read_status
from tidemark.state.store.documents import read_document, write_document
from tidemark.state.store.layout import job_folder
from tidemark.state.store.store import JobStore, ListedFile

logger = logging.getLogger("tidemark")

STATUS_KIND = "control-status"


@dataclass(frozen=True)
class Observation:
    """A job at one moment.

    Args:
        job: its name.
        generation: the newest spec; None for a job that was never submitted.
        control: the status that reconcilers last wrote.
        attempt: the newest attempt.
        attempt_spec: the spec that it was created for.
        claim: the claim of that attempt.
        driver: the last status of the job's driver, of any attempt.
        heartbeat: the driver's last heartbeat, of any attempt.
        heartbeat_process_gone: whether the process of that heartbeat is known to have ended.
        handle: the newest attempt's process, from its launcher, its claim or its heartbeat; None if unknown.
        process: whether that is alive; None without a handle.
        exit_code: its exit code, if known.
        start: progress of the start of the newest attempt's driver.
        warning: warning of the newest attempt's driver.
        upgrade: the newest step of its newest upgrade.
        blocker: what blocks the next step of an upgrade that is under way.
        standby: the state of its standby; None if the spec asks for none.
        autoscaler: the newest record of its autoscaler.
        autoscaler_number: the number of that record, 0 without one; also of one that is damaged.
        damage: why the driver's status cannot be read; None if it can, or was never written.
    """

    job: str
    generation: SpecGeneration | None = None
    control: ControlStatus | None = None
    attempt: Attempt | None = None
    attempt_spec: SpecGeneration | None = None
    claim: Claim | None = None
    driver: JobStatus | None = None
    heartbeat: Heartbeat | None = None
    heartbeat_process_gone: bool = False
    handle: ProcessHandle | None = None
    process: ProcessState | None = None
    exit_code: int | None = None
    start: DriverStart | None = None
    warning: DriverWarning | None = None
    upgrade: UpgradeStep | None = None
    blocker: UpgradeBlocker | None = None
    standby: StandbyView | None = None
    autoscaler: AutoscalerRecord | None = None
    autoscaler_number: int = 0
    damage: ErrorInfo | None = None

    @property
    def active_upgrade(self) -> UpgradeStep | None:
        """The step of the upgrade that is under way, None if there is none."""
        return self.upgrade if self.upgrade is not None and not self.upgrade.ended else None

    @property
    def current_heartbeat(self) -> Heartbeat | None:
        """The heartbeat of the newest attempt's driver, None if it has sent none."""
        return (
            self.heartbeat
            if self.heartbeat is not None and self.attempt is not None and self._is_current(attempt_of(self.heartbeat.owner))
            else None
        )

    @property
    def current_driver_status(self) -> JobStatus | None:
        """The status of the newest attempt's driver, None if it has written none."""
        return self.driver if self.driver is not None and self._is_current(attempt_of(self.driver.owner)) else None

    @property
    def current_progress(self) -> EpochProgress | None:
        """The job's newest epoch by the newest attempt's driver; None if that driver failed.

        It may have failed before it read the log, and its status then repeats an earlier driver's.
        """
        driver = self.current_driver_status
        return driver.last if driver is not None and driver.state != "failed" else None

    def _is_current(self, number: int | None) -> bool:
        return self.attempt is not None and number == self.attempt.number


@dataclass
class _JobCache:
    """Immutable records of a job. ``newest`` is the newest spec's listing, which differs for a later job of the same name."""

    newest: ListedFile | None = None
    specs: dict[int, SpecGeneration] = field(default_factory=dict)
    attempt: Attempt | None = None
    claim: Claim | None = None
    upgrade: UpgradeStep | None = None
    autoscaler: tuple[int, AutoscalerRecord | None] = (0, None)


class Observer:
    """Observes jobs repeatedly, and reads immutable records only once.

    Args:
        store: the root store.
        launchers: by name, to probe processes.
    """

    def __init__(self, store: JobStore, launchers: Mapping[str, Launcher]) -> None:
        self._store = store
        self._launchers = launchers
        self._jobs: dict[str, _JobCache] = {}

    def observe(self, job: str) -> Observation:
        """Return the observation of a job.

        Raises:
            CorruptStoreError: one of its files is damaged.
            FormatError: a newer release wrote one of them.
            StoreError: the store cannot be reached.
        """
        folder = self._store.at(job_folder(job))
        listed = folder.list(CONTROL)
        paths = [file.path for file in listed]
        self._reset_if_replaced(job, listed)
        attempt = self._attempt(job, _newest(ATTEMPTS, paths))
        claim = self._claim(job, attempt.number) if attempt is not None and _holds(CLAIMS, paths, attempt.number) else None
        control = read_control_status(self._store, job) if CONTROL_STATUS in paths else None
        begun = attempt is not None and _holds(STARTS, paths, attempt.number)
        warned = attempt is not None and _holds(WARNINGS, paths, attempt.number)
        # The heartbeat before the status: a final status is then never older than a released heartbeat.
        heartbeat = read_heartbeat(folder)
        driver, damage = status_or_error(self._store, job)
        attempt_spec = self._spec(job, attempt.generation) if attempt is not None else None
        launched_by = attempt_spec.spec.launcher if attempt_spec is not None else "local"
        handle = _handle(attempt, control, claim, _process_of(heartbeat, launched_by))
        launcher = self._launchers.get(handle.launcher) if handle is not None else None
        process = None if handle is None else "unknown" if launcher is None else launcher.probe(handle)
        upgrade = self._upgrade(job, _newest(UPGRADES, paths))
        blocked = upgrade is not None and not upgrade.ended and UPGRADE_BLOCKER in paths
        generation = self._spec(job, _newest(SPECS, paths))
        return Observation(
            job=job,
            generation=generation,
            control=control,
            attempt=attempt,
            attempt_spec=attempt_spec,
            claim=claim,
            driver=driver,
            heartbeat=heartbeat,
            heartbeat_process_gone=heartbeat is not None and is_known_dead(heartbeat.owner),
            handle=handle,
            process=process,
            exit_code=launcher.exit_code(handle) if launcher is not None and handle is not None and process == "gone" else None,
            start=read_start(self._store, job, attempt.number) if attempt is not None and begun else None,
            warning=read_warning(self._store, job, attempt.number) if attempt is not None and warned else None,
            upgrade=upgrade,
            blocker=read_blocker(self._store, upgrade) if upgrade is not None and blocked else None,
            standby=standby_of(generation, handle),
            autoscaler=self._autoscaler(job, _newest(AUTOSCALER, paths)),
            autoscaler_number=_newest(AUTOSCALER, paths),
            damage=damage,
        )

    def _reset_if_replaced(self, job: str, listed: Sequence[ListedFile]) -> None:
        """Clear the cache of a job that was deleted and submitted again under the same name."""
        known = self._jobs.setdefault(job, _JobCache())
        if known.newest not in listed:
            # Also if the cached spec was deleted because many newer ones exist: all are read again.
            known = self._jobs[job] = _JobCache()
        known.newest = max((file for file in listed if number_in(SPECS, file.path) is not None), default=None)

    def _spec(self, job: str, number: int) -> SpecGeneration | None:
        specs = self._jobs[job].specs
        if number in specs or not number:
            return specs.get(number)
        found = read_generation(self._store, job, number)
        if found is not None:
            # The newest two matter: the running one and the desired one.
            for key in [key for key in specs if key < number - 1]:
                del specs[key]
            specs[number] = found
        return found

    def _upgrade(self, job: str, number: int) -> UpgradeStep | None:
        known = self._jobs[job].upgrade
        if not number or (known is not None and known.number == number):
            return known if number else None
        try:
            found = read_step(self._store, job, number)
        except CorruptStoreError as error:
            # Its driver is still reconciled; the process that carries out the upgrade raises the error.
            logger.warning("%s: the step of its upgrade cannot be read: %s", job, error)
            return None
        if found is not None:
            self._jobs[job].upgrade = found
        return found

    def _autoscaler(self, job: str, number: int) -> AutoscalerRecord | None:
        if self._jobs[job].autoscaler[0] != number:
            self._jobs[job].autoscaler = (number, read_record(self._store, job, number))
        return self._jobs[job].autoscaler[1]

    def _attempt(self, job: str, number: int) -> Attempt | None:
        known = self._jobs[job].attempt
        if known is not None and known.number == number:
            return known
        found = read_attempt(self._store, job, number) if number else None
        if found is not None:
            self._jobs[job].attempt = found
        return found

    def _claim(self, job: str, number: int) -> Claim | None:
        known = self._jobs[job].claim
        if known is not None and known.attempt == number:
            return known
        found = read_claim(self._store, job, number)
        if found is not None:
            self._jobs[job].claim = found
        return found


def observe(store: JobStore, job: str, launchers: Mapping[str, Launcher]) -> Observation:
    """Return the observation of a job, once. ``store`` is the root store."""
    return Observer(store, launchers).observe(job)


def status_or_error(store: JobStore, job: str) -> tuple[JobStatus | None, ErrorInfo | None]:
    """Return the last status of a job's driver, or the error that it is damaged: the driver writes it again, and is reconciled until then.

    Raises:
        FormatError: a newer release wrote it.
    """
    try:
        return read_status(store, job), None
    except CorruptStoreError as error:
        return None, ErrorInfo(error.code, str(error), error.transient)


def read_control_status(store: JobStore, job: str) -> ControlStatus | None:
    """Return the status that reconcilers last wrote of a job; None if there is none, or it is damaged: it is then written again.

    Raises:
        FormatError: a newer release wrote it.
    """
    try:
        return read_document(store.at(job_folder(job)), CONTROL_STATUS, kind=STATUS_KIND, form=ControlStatus)
    except CorruptStoreError as error:
        logger.warning("%s: the control status is written again: %s", job, error)
        return None


def write_control_status(store: JobStore, status: ControlStatus) -> None:
    """Write a job's control status, before the action it announces. ``store`` is the root store."""
    write_document(store.at(job_folder(status.job)), CONTROL_STATUS, kind=STATUS_KIND, value=status)


def job_names(store: JobStore) -> tuple[str, ...]:
    """Return the names of the folders of a root store that may be jobs, sorted; ``observe`` shows whether they are."""
    return tuple(name for name in store.folders() if is_name(name))


def _newest(folder: str, paths: list[str]) -> int:
    return max((number for path in paths if (number := number_in(folder, path)) is not None), default=0)


def _holds(folder: str, paths: list[str], number: int) -> bool:
    return any(number_in(folder, path) == number for path in paths)


def _handle(
    attempt: Attempt | None, control: ControlStatus | None, claim: Claim | None, beating: tuple[int, ProcessHandle] | None
) -> ProcessHandle | None:
    """Return the attempt's process: from its launcher, else from its claim or heartbeat."""
    if attempt is None:
        return None
    if control is not None and control.attempt == attempt.number and control.process is not None:
        return control.process
    if claim is not None and claim.process is not None:
        return claim.process
    return beating[1] if beating is not None and beating[0] == attempt.number else None


def _process_of(beat: Heartbeat | None, launcher: str) -> tuple[int, ProcessHandle] | None:
    """Return the attempt and the process of a heartbeat, None for a driver without an attempt."""
    number = attempt_of(beat.owner) if beat is not None else None
    if beat is None or number is None:
        return None
    return number, ProcessHandle(launcher, beat.owner.host, beat.owner.pid, started=beat.owner.started)

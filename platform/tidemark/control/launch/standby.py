"""A standby driver: its code is loaded and its Spark session is warm; it waits for an attempt, until its job no longer needs it."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tidemark.clock import SYSTEM_CLOCK, Clock
from tidemark.control.desired.attempts import newest_attempt
from tidemark.control.desired.spec_store import read_spec
from tidemark.control.launch.local_launcher import LocalLauncher
from tidemark.control.launch.processes import reap, spawn
from tidemark.control.launch.run_folder import run_folder
from tidemark.control.model.spec import SpecGeneration
from tidemark.control.model.standby_files import OUT, Standby, assigned_attempt, read_standby, write_standby
from tidemark.control.observed.observe import read_control_status
from tidemark.errors import TidemarkError
from tidemark.state.log.heartbeat import read_heartbeat
from tidemark.state.log.process_identity import process_start_token
from tidemark.state.store.layout import job_folder
from tidemark.state.store.store import JobStore

logger = logging.getLogger("tidemark")

_POLL_SECONDS: Final = 0.1
_POLLS_PER_CHECK: Final = 30
_RETRY_MS: Final = 60_000
_ABANDONED_MS: Final = 600_000
"""How long a standby waits for a job without heartbeats."""


def wait_for_attempt(store: JobStore, generation: SpecGeneration, folder: Path, *, clock: Clock = SYSTEM_CLOCK) -> int | None:
    """Mark this process as ready and wait; returns the attempt assigned to it, None if the job no longer needs a standby.

    Args:
        store: the root store.
        generation: the generation of the spec that this process was prepared for.
        folder: folder of the driver's log.
        clock: for the pauses.
    """
    standby = Standby(os.getpid(), process_start_token(os.getpid()) or "", generation.generation, ready=True)
    write_standby(folder, standby)
    logger.info("standing by for %s", generation.spec.job)
    last_seen, polls = clock.now_ms(), 0
    while True:
        number = assigned_attempt(folder, standby)
        if number is not None:
            return number
        polls += 1
        # If the file was just removed to assign an attempt, the assignment follows in a moment.
        if polls % _POLLS_PER_CHECK == 0:
            if read_standby(folder) != standby:
                clock.sleep(1.0)
                return assigned_attempt(folder, standby)
            why, last_seen = _why_not_needed(store, generation), max(last_seen, _last_heartbeat_at(store, generation.spec.job))
            if not why and clock.now_ms() - last_seen >= _ABANDONED_MS:
                why = "the job has no driver"
            if why:
                logger.info("standing by no longer: %s", why)
                return None
        clock.sleep(_POLL_SECONDS)


def _why_not_needed(store: JobStore, generation: SpecGeneration) -> str:
    """Return why a job no longer needs a standby; empty if it does, or if that cannot be determined now."""
    spec = generation.spec
    try:
        newest = read_spec(store, spec.job)
        control = read_control_status(store, spec.job)
    except (TidemarkError, OSError) as error:
        logger.debug("%s", error)
        return ""
    if newest is None or newest.spec.wanted != "running" or newest.generation != generation.generation:
        return "the spec has changed"
    if control is not None and control.lifecycle in {"failed", "finished", "suspended"}:
        return f"the job is {control.lifecycle}"
    return ""


def _last_heartbeat_at(store: JobStore, job: str) -> int:
    """Return the time of the driver's last heartbeat, 0 if none is known, such as when the store does not respond."""
    try:
        beat = read_heartbeat(store.at(job_folder(job)))
    except (TidemarkError, OSError) as error:
        logger.debug("%s", error)
        return 0
    return beat.at if beat is not None else 0


@dataclass
class StandbyKeeper:
    """Keeps a standby running beside a driver, from the driver's first epoch on.

    Args:
        store: the root store.
        generation: the generation of the spec that the driver runs.
        attempt: number of the driver's attempt.
        log: path of the driver's log.
        needed: returns whether the driver's own start is over: a standby's start loads the machine as much.
        clock: limits how often it is tried.
    """

    store: JobStore
    generation: SpecGeneration
    attempt: int
    log: Path
    needed: Callable[[], bool]
    clock: Clock = SYSTEM_CLOCK
    _tried_at: int | None = None
    _pid: int | None = None

    def ensure_standby(self) -> None:
        """Start a standby if there is none, at most once a minute; called every few seconds.

        Raises:
            OSError: no process can be started.
        """
        if self._pid is not None:
            reap(self._pid)
        now = self.clock.now_ms()
        if not self.needed() or (self._tried_at is not None and now - self._tried_at < _RETRY_MS):
            return
        spec, known = self._wanted_spec(), read_standby(self.log.parent)
        if spec is None or (known is not None and known.is_alive and known.generation == spec.generation) or self._was_replaced():
            return
        self._tried_at = now
        self._pid = self._spawn(spec)
        write_standby(self.log.parent, Standby(self._pid, process_start_token(self._pid) or "", spec.generation))

    def _wanted_spec(self) -> SpecGeneration | None:
        """Return the newest spec, None if it needs another driver than this one, or none."""
        own = self.generation
        newest = read_spec(self.store, own.spec.job)
        fits = newest is not None and newest.spec.wanted == "running" and not newest.spec.requires_restart_from(own.spec)
        return newest if fits else None

    def _was_replaced(self) -> bool:
        return newest_attempt(self.store, self.generation.spec.job) != self.attempt

    def _spawn(self, wanted: SpecGeneration) -> int:
        spec = wanted.spec
        logs = self.log.parents[2]
        launcher, scratch = LocalLauncher(logs), run_folder(self.store.uri, spec.job, logs).new_standby_scratch(self.attempt)
        command = launcher.standby_command(wanted, self.store.uri, self.log)
        variables = launcher.standby_environment(spec, scratch, self.log)
        folder = Path(spec.folder).expanduser() if spec.folder is not None else None
        pid = spawn(command, variables, out=self.log.with_name(OUT), folder=folder)
        logger.info("process %d is the standby", pid)
        return pid

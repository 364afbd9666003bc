"""A driver that stands by: its code is loaded and its Spark has run, and it waits for an attempt, or for its job to need none."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tidemark.clock import SYSTEM_CLOCK, Clock
from tidemark.control.desired.attempts import newest_attempt
from tidemark.control.desired.generations import read_spec
from tidemark.control.launch.local_launcher import LocalLauncher
from tidemark.control.launch.processes import spawn, take_note
from tidemark.control.launch.run_folder import run_folder
from tidemark.control.model.spec import SpecGeneration
from tidemark.control.model.standby_files import OUT, Standby, ordered_attempt, read_standby, write_standby
from tidemark.control.observed.observe import read_control_status
from tidemark.errors import TidemarkError
from tidemark.state.log.heartbeat import read_heartbeat
from tidemark.state.log.owners import process_birth
from tidemark.state.store.layout import job_folder
from tidemark.state.store.store import JobStore

logger = logging.getLogger("tidemark")

_LOOK_SECONDS: Final = 0.1
_LOOKS_PER_CHECK: Final = 30
_AGAIN_MS: Final = 60_000
_FORSAKEN_MS: Final = 600_000
"""So long a standby waits beside a job of which nobody gives a sign of life."""


def wait_for_attempt(store: JobStore, generation: SpecGeneration, folder: Path, *, clock: Clock = SYSTEM_CLOCK) -> int | None:
    """Say that this process is ready, and wait; returns the attempt that it was handed, None where the job needs no standby any more.

    Args:
        store: the root store.
        generation: of the spec that this process was made ready for.
        folder: of the driver's log.
        clock: for the pauses.
    """
    standby = Standby(os.getpid(), process_birth(os.getpid()) or "", generation.generation, ready=True)
    write_standby(folder, standby)
    logger.info("stands by for %s", generation.spec.job)
    sign, looks = clock.now_ms(), 0
    while True:
        number = ordered_attempt(folder, standby)
        if number is not None:
            return number
        looks += 1
        # One that was just asked has no file any more, and gets its order in a moment.
        if looks % _LOOKS_PER_CHECK == 0:
            if read_standby(folder) != standby:
                clock.sleep(1.0)
                return ordered_attempt(folder, standby)
            why, sign = _not_needed(store, generation), max(sign, _last_sign(store, generation.spec.job))
            if not why and clock.now_ms() - sign >= _FORSAKEN_MS:
                why = "nobody drives the job"
            if why:
                logger.info("stands by no longer: %s", why)
                return None
        clock.sleep(_LOOK_SECONDS)


def _not_needed(store: JobStore, generation: SpecGeneration) -> str:
    """Return why a job needs no standby any more; nothing where it needs one, or where that cannot be told now."""
    spec = generation.spec
    try:
        newest = read_spec(store, spec.job)
        control = read_control_status(store, spec.job)
    except (TidemarkError, OSError) as error:
        logger.debug("%s", error)
        return ""
    if newest is None or newest.spec.wanted != "running" or newest.generation != generation.generation:
        return "another spec is wanted"
    if control is not None and control.lifecycle in {"failed", "finished", "suspended"}:
        return f"the job is {control.lifecycle}"
    return ""


def _last_sign(store: JobStore, job: str) -> int:
    """Return when the job's driver last gave a sign of life, 0 where none is seen, such as in a store that does not answer."""
    try:
        beat = read_heartbeat(store.at(job_folder(job)))
    except (TidemarkError, OSError) as error:
        logger.debug("%s", error)
        return 0
    return beat.at if beat is not None else 0


@dataclass
class StandbyKeeper:
    """Keeps a standby beside a driver, from the driver's first epoch on.

    Args:
        store: the root store.
        generation: of the spec that the driver runs.
        attempt: the driver's.
        log: the driver's.
        needed: whether the driver is far enough for one: a start takes as much of the machine as its own.
        clock: for how often it is tried.
    """

    store: JobStore
    generation: SpecGeneration
    attempt: int
    log: Path
    needed: Callable[[], bool]
    clock: Clock = SYSTEM_CLOCK
    _tried_at: int | None = None
    _pid: int | None = None

    def keep(self) -> None:
        """Start a standby where there is none, at most once a minute; called every few seconds.

        Raises:
            OSError: no process can be started.
        """
        if self._pid is not None:
            take_note(self._pid)
        now = self.clock.now_ms()
        if not self.needed() or (self._tried_at is not None and now - self._tried_at < _AGAIN_MS):
            return
        wanted, known = self._wanted(), read_standby(self.log.parent)
        if wanted is None or (known is not None and known.lives and known.generation == wanted.generation) or self._was_replaced():
            return
        self._tried_at = now
        self._pid = self._spawn(wanted)
        write_standby(self.log.parent, Standby(self._pid, process_birth(self._pid) or "", wanted.generation))

    def _wanted(self) -> SpecGeneration | None:
        """Return the newest spec, None where it wants another driver than this one, or none."""
        own = self.generation
        newest = read_spec(self.store, own.spec.job)
        fits = newest is not None and newest.spec.wanted == "running" and not newest.spec.runs_otherwise_than(own.spec)
        return newest if fits else None

    def _was_replaced(self) -> bool:
        return newest_attempt(self.store, self.generation.spec.job) != self.attempt

    def _spawn(self, wanted: SpecGeneration) -> int:
        spec = wanted.spec
        logs = self.log.parents[2]
        launcher, scratch = LocalLauncher(logs), run_folder(self.store.uri, spec.job, logs).scratch_of_standby(self.attempt)
        command = launcher.standby_command(wanted, self.store.uri, self.log)
        variables = launcher.standby_environment(spec, scratch, self.log)
        folder = Path(spec.folder).expanduser() if spec.folder is not None else None
        pid = spawn(command, variables, out=self.log.with_name(OUT), folder=folder)
        logger.info("process %d stands by", pid)
        return pid

"""Rewinds of submitted jobs: one that runs is stopped first, and started again afterwards, whoever comes to the end of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tidemark.clock import SYSTEM_CLOCK, Clock
from tidemark.control.generations import read_spec, who
from tidemark.control.launcher import Launcher
from tidemark.control.spec import SpecGeneration
from tidemark.control.view import JobView
from tidemark.control.waiting import Waiting
from tidemark.control.wishes import Wishes
from tidemark.crashpoints import crash_point
from tidemark.savepoints.rewinding import Tell, require_possible, rewind
from tidemark.state.records import EpochRecord
from tidemark.state.store import JobStore


@dataclass(frozen=True)
class Rewound:
    """What a rewind has come to: the job's newest epoch, and the spec by which it was started again; None where it was not."""

    head: EpochRecord
    started: SpecGeneration | None = None


@dataclass(frozen=True)
class Rewinder:
    """Rewinds jobs of a store that may run.

    Args:
        store: the root store.
        launchers: what can start drivers, by name.
        timeout_ms: how long to wait for a job to stop.
        by: who does it; ``user@host`` by default.
        clock: the time.
        tell: is told of each step of a rewind, in words.
        show: is shown a job that is to stop, whenever it looks different.
    """

    store: JobStore
    launchers: Mapping[str, Launcher]
    timeout_ms: int
    by: str = ""
    clock: Clock = SYSTEM_CLOCK
    tell: Tell | None = None
    show: Callable[[JobView], None] | None = None

    def rewind(self, job: str, name: str, *, stop: bool, why: str = "") -> Rewound:
        """Put a job back to a savepoint with its tables. Called again after a crash it goes on, and starts the job that it has stopped.

        Args:
            job: the job's name.
            name: the savepoint.
            stop: stop a job that runs first, and start it again; else it must not run.
            why: what for.

        Raises:
            NotReachedError: the job did not stop in time; it still is to.
            TidemarkError: as ``savepoints.rewinding.rewind``. What can be told before is told before the job is stopped.
        """
        newest = read_spec(self.store, job) if stop else None
        wishes = Wishes(self.store, self.by, self.clock)
        starts = newest is not None and (newest.spec.wanted == "running" or newest.spec.for_rewind)
        if starts:
            require_possible(self.store, job, name, clock=self.clock)
            made = wishes.stop(job, "finish", why or f"rewind to {name}", for_rewind=True)
            crash_point("rewind-stopping")
            waiting = Waiting(self.store, self.launchers, self.clock)
            waiting.until(job, "ended", generation=made.generation, timeout_ms=self.timeout_ms, tell=self.show)
            # Not one that its owner stopped just now.
            starts = made.spec.for_rewind
        head = rewind(self.store, job, name, by=self.by or who(), why=why, clock=self.clock, tell=self.tell)
        crash_point("rewind-done")
        return Rewound(head, wishes.start(job, why or f"rewound to {name}") if starts else None)

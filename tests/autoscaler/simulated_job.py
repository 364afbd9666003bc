"""A job in a simulation: input arrives, epochs read and process it, the policy looks once per sample; time is a number.

An epoch takes a fixed time, and the time for its rows at the rate of the parallelism. The next one begins at the trigger's interval, or at
once if the epoch took longer.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from tidemark.control.autoscaler.policy import Situation, evaluate
from tidemark.control.model.autoscaler_records import LoadSample, ScalingDecision, ScalingEvaluation
from tidemark.control.model.autoscaler_settings import AutoscalerSettings

MINUTE = 60_000
HOUR = 60 * MINUTE
DAY = 24 * HOUR
MONDAY = 1_700_438_400_000
"""A Monday, 2023-11-20 00:00 UTC."""

Load = Callable[[int], float]
"""Rows per second that arrive, by milliseconds since the simulation began."""


def levels(*given: tuple[float, float]) -> Load:
    """Return a load of levels: each is the minute from which it holds, and rows per second."""
    return lambda at: next(rate for minute, rate in reversed(given) if at >= minute * MINUTE)


@dataclass
class SimulatedJob:
    """The job, its clock and its autoscaler.

    Args:
        load: of the input.
        settings: of the autoscaler.
        cores: upper bound of the parallelism.
        parallelism: at the beginning.
        capacity: rows per second that a parallelism processes.
        rows_per_epoch: the usual bound of an epoch's intake.
        own_bound: a bound on an epoch's rows that intake cannot raise.
        backlog: rows that wait at the beginning.
        trigger_ms: the interval.
        fixed_ms: what an epoch takes without rows.
        knows_backlog: whether its source reports one.
    """

    load: Load
    settings: AutoscalerSettings = field(default_factory=lambda: AutoscalerSettings(mode="act"))
    cores: int = 16
    parallelism: int = 1
    intake: float = 1.0
    capacity: Callable[[int], float] = lambda parallelism: 1_000.0 * parallelism
    rows_per_epoch: float = 100_000.0
    own_bound: float = math.inf
    backlog: float = 0.0
    trigger_ms: int = 10_000
    fixed_ms: int = 200
    knows_backlog: bool = True
    now: int = MONDAY
    due: int = MONDAY
    driver: str = "a"
    reported: float = 0.0
    read: float = 0.0
    epochs: int = 0
    busy_ms: int = 0
    samples: list[LoadSample] = field(default_factory=list)
    decisions: list[ScalingDecision] = field(default_factory=list)
    evaluations: list[ScalingEvaluation] = field(default_factory=list)
    backlogs: list[tuple[int, float]] = field(default_factory=list)
    """When it was sampled, milliseconds since the beginning, and the rows that waited then."""

    def __post_init__(self) -> None:
        self.reported = self.backlog

    def run(self, duration: int) -> SimulatedJob:
        """Let time pass."""
        end = self.now + duration
        while self.now < end:
            rows = min(self.backlog, self.rows_per_epoch * self.intake, self.own_bound)
            took = round(self.fixed_ms + rows * 1000 / self.capacity(self.parallelism)) if rows else 0
            self.backlog -= rows
            self._pass(took)
            self.read += rows
            self.epochs += bool(rows)
            self.busy_ms += took
            # A driver reports its backlog between epochs.
            self.reported = self.backlog
            self._pass(max(self.trigger_ms - took, 0))
        return self

    def restart(self) -> None:
        """Let another driver take over: its counters begin at 0."""
        self.epochs, self.busy_ms, self.read = 0, 0, 0.0
        self.driver = f"{self.driver}'"

    def backlog_at(self, at: int) -> float:
        """Return the rows that waited at a time since the beginning."""
        return next(rows for when, rows in self.backlogs if when >= at)

    @property
    def parallelisms(self) -> list[int]:
        """Each parallelism that was decided on."""
        return [made.parallelism for made in self.decisions]

    def changes_in(self, begin: int, end: int) -> int:
        """Return how many decisions were made between two times since the beginning."""
        return sum(begin <= made.at - MONDAY < end for made in self.decisions)

    def _pass(self, duration: int) -> None:
        """Let input arrive, and the autoscaler look where a sample is due."""
        end = self.now + duration
        while self.now < end:
            if self.due <= self.now:
                self._look()
                self.due = self.now + self.settings.sample_interval_ms
            until = min(end, self.due)
            self.backlog += self.load(self.now - MONDAY) * (until - self.now) / 1000
            self.now = until

    def _look(self) -> None:
        waiting = round(self.reported) if self.knows_backlog else None
        self.backlogs.append((self.now - MONDAY, self.backlog))
        made = LoadSample(self.now, self.driver, self.epochs, self.busy_ms, round(self.read), self.parallelism, self.intake, waiting)
        kept = max(self.settings.window_ms, self.settings.scale_down_interval_ms) + 2 * self.settings.sample_interval_ms
        while self.samples and self.samples[0].at < self.now - kept:
            del self.samples[0]
        self.samples.append(made)
        found = evaluate(self.samples, self.decisions, self.settings, Situation(self.now, self.trigger_ms, self.cores))
        self.evaluations.append(found.evaluation)
        self.decisions = [*found.earlier]
        if found.decision is not None:
            self.decisions.append(found.decision)
            if self.settings.mode == "act":
                self.parallelism, self.intake = found.decision.parallelism, found.decision.intake


def with_settings(**fields: object) -> AutoscalerSettings:
    """Return settings that act, with other fields."""
    return replace(AutoscalerSettings(mode="act"), **fields)  # type: ignore[arg-type]

"""A run that plans its epochs itself, without a query: it looks for new input, and reads as much as an epoch may."""

from __future__ import annotations

import contextlib
from typing import Final

from tidemark.clock import SYSTEM_CLOCK
from tidemark.spark.loop.job_run import JobRun
from tidemark.spark.sources.planning.epoch_planner import EpochPlanner

_POLL_SECONDS: Final = 0.2
_IDLE_SECONDS: Final = 0.01
"""The least pause after a look that found nothing new, as Spark's."""

_SECONDS_AFTER_EPOCH: Final = 1.0
_SECONDS_PER_COUNT: Final = 5.0
"""How long after a measurement of the backlog the next one follows: where an epoch was run since, and where none was."""


class PlannedRun(JobRun):
    """Runs the epochs that a planner plans, in the calling thread; the machine's clock says when the next one begins."""

    _planner: EpochPlanner
    _counted_at = 0.0
    _has_new_epoch = False

    def run_epochs(self, interval_ms: int | None) -> None:
        """Run the epochs of the input there is, or of what comes until the run ends."""
        self._planner = self.driver.planner()
        with contextlib.closing(self._planner):
            if self.drained_at is not None:
                self._drain(self.drained_at)
            else:
                self._run_continuously((interval_ms or 0) / 1000)

    def _drain(self, at: int) -> None:
        self._planner.fix_end()
        self._planner.look(at)
        while self._planner.has_unread and not self.should_end():
            self.driver.run_planned(self._planner, polled_at=at)

    def _run_continuously(self, interval: float) -> None:
        while not self.should_end():
            begun, at = SYSTEM_CLOCK.monotonic(), self.driver.now()
            if self._planner.look(at):
                if self.intake is not None and self.intake.has_new_bounds:
                    self.gauge.intake = self.intake.apply()
                self.driver.run_planned(self._planner, polled_at=at)
                self._has_new_epoch = True
            else:
                self._note_nothing(at)
            self._count_if_due()
            self._wait(begun + interval)

    def _note_nothing(self, at: int) -> None:
        """Run the epoch without input that is due, after a look at a processing time found nothing new."""
        driver = self.driver
        driver.activity.polled(driver.now())
        with driver.lock:
            driver.read_to_end()
            self.run_deadline(at)

    def _wait(self, until: float) -> None:
        """Wait for the next epoch's time; when a deadline comes before it, look for new input."""
        pause = max(until - SYSTEM_CLOCK.monotonic(), 0.0 if self._planner.has_unread else _IDLE_SECONDS)
        until = SYSTEM_CLOCK.monotonic() + pause
        waiting = self._planner.has_unread
        while (left := until - SYSTEM_CLOCK.monotonic()) > 0 and not self.should_end():
            self.stopping.wait(min(left, _POLL_SECONDS))
            deadline = None if waiting else self.driver.next_deadline()
            at = self.driver.now()
            if deadline is not None and deadline <= at and not self.should_end():
                # What has come waits for the next epoch, whose time is after the deadline.
                waiting = self._planner.look(at)
                if not waiting:
                    self._note_nothing(at)
            self._count_if_due()

    def _count_if_due(self) -> None:
        """Report that the run waits or reads, and measure the backlog, unless that was done just now."""
        pause = _SECONDS_AFTER_EPOCH if self._has_new_epoch else _SECONDS_PER_COUNT
        if SYSTEM_CLOCK.monotonic() - self._counted_at >= pause:
            self.driver.activity.polled(self.driver.now())
            self.measure_backlog(self._planner.progress, new=self._has_new_epoch)
            self._counted_at, self._has_new_epoch = SYSTEM_CLOCK.monotonic(), False

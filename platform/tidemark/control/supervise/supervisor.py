"""The daemon for use without Dagster: a pass over all jobs every few seconds, for months.

Nothing depends on it staying alive: drivers keep running without it, another may run beside it, and the next one resumes from the files.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Final

from tidemark.clock import SYSTEM_CLOCK, Clock, format_ms
from tidemark.control.autoscaler.autoscaler import Autoscaler
from tidemark.control.reconcile.reconciler import Reconciler, ReconcileReport
from tidemark.durations import short_duration
from tidemark.errors import StoreError

logger = logging.getLogger("tidemark")

DEFAULT_INTERVAL_MS: Final = 5_000
_LOG_AGAIN_MS: Final = 60_000
_POLL_SECONDS: Final = 0.2
_MIN_WAIT_SECONDS: Final = 0.1

OnPass = Callable[[ReconcileReport, float], None]
"""Called after each pass with its report and its duration in seconds."""


class Supervisor:
    """Makes passes over jobs until it is stopped.

    Args:
        reconciler: makes the passes.
        stop: stops it, at the latest after the current job.
        interval_ms: time between the starts of two passes.
        on_pass: called after every pass.
        autoscaler: samples the load of the jobs after every pass, and scales them; None for none.
        driver_ended: whether a driver has ended since the last pass; polled several times a second, the next pass then starts early.
        clock: processing time.
    """

    def __init__(
        self,
        reconciler: Reconciler,
        stop: threading.Event,
        *,
        interval_ms: int = DEFAULT_INTERVAL_MS,
        on_pass: OnPass | None = None,
        autoscaler: Autoscaler | None = None,
        driver_ended: Callable[[], bool] = lambda: False,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._reconciler = reconciler
        self._stop = stop
        self._interval_ms = interval_ms
        self._on_pass = on_pass
        self._autoscaler = autoscaler
        self._driver_ended = driver_ended
        self._clock = clock
        self._unreachable_since: float | None = None
        self._logged_at = 0.0
        self._known_errors: dict[str, str] = {}

    def run(self, *, passes: int | None = None) -> None:
        """Make passes until stopped, or ``passes`` times."""
        done = 0
        while not self._stop.is_set():
            begun = self._clock.monotonic()
            self.pass_once()
            done += 1
            if done == passes:
                return
            self._wait_for_next_pass(took=self._clock.monotonic() - begun)

    def _wait_for_next_pass(self, *, took: float) -> None:
        """Wait for the next pass, less long if a driver ends.

        It also waits after a pass that took longer than the interval, and at least as long as the pass took if drivers end one after the
        other, to leave the machine to other programs.
        """
        left = max(self._interval_ms / 1000 - took, _MIN_WAIT_SECONDS)
        least = min(left, max(took, _MIN_WAIT_SECONDS))
        if self._stop.wait(least):
            return
        left -= least
        while left > 0 and not self._driver_ended() and not self._stop.wait(min(left, _POLL_SECONDS)):
            left -= _POLL_SECONDS

    def pass_once(self) -> ReconcileReport | None:
        """Make one pass; None if the store cannot be reached, which is logged at first and then once a minute."""
        begun = self._clock.monotonic()
        try:
            report = self._reconciler.reconcile_all(stop=self._stop)
            if self._autoscaler is not None:
                self._autoscaler.advance(report.observations)
        except StoreError as error:
            self._log_unreachable(error)
            return None
        except Exception:
            # An unexpected error must not end the supervisor, since all other jobs depend on it.
            logger.exception("a pass failed; the next one continues")
            return None
        self._log_reachable()
        self._log_errors(report)
        if self._on_pass is not None:
            self._on_pass(report, self._clock.monotonic() - begun)
        return report

    def _log_unreachable(self, error: StoreError) -> None:
        now = self._clock.monotonic()
        if self._unreachable_since is None:
            self._unreachable_since = now
            logger.error("the job store cannot be reached; drivers keep running, and it is retried: %s", error)
        elif now - self._logged_at >= _LOG_AGAIN_MS / 1000:
            logger.error("the job store has been unreachable for %s: %s", short_duration(_ms(now - self._unreachable_since)), error)
        else:
            return
        self._logged_at = now

    def _log_reachable(self) -> None:
        if self._unreachable_since is not None:
            took = _ms(self._clock.monotonic() - self._unreachable_since)
            logger.info("the job store is reachable again after %s, at %s", short_duration(took), format_ms(self._clock.now_ms()))
            self._unreachable_since = None

    def _log_errors(self, report: ReconcileReport) -> None:
        """Log errors of jobs, once for each change."""
        found = {job: str(error) for job, error in report.errors.items()}
        for job, text in found.items():
            if self._known_errors.get(job) != text:
                logger.error("%s cannot be reconciled: %s", job, text)
        for job in self._known_errors.keys() - found.keys():
            logger.info("%s is reconciled again", job)
        self._known_errors = found


def _ms(seconds: float) -> int:
    return int(seconds) * 1000

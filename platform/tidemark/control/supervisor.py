"""The daemon for those without Dagster: a pass over all jobs every few seconds, for months.

Nothing depends on it staying alive: drivers run on without it, another one may run beside it, and the next one goes on from the files.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Final

from tidemark.clock import SYSTEM_CLOCK, Clock, format_ms
from tidemark.control.reconciler import Reconciler, Report
from tidemark.durations import short_duration
from tidemark.errors import StoreError

logger = logging.getLogger("tidemark")

DEFAULT_INTERVAL_MS: Final = 5_000
_SAY_AGAIN_MS: Final = 60_000

Saw = Callable[[Report, float], None]
"""Called after each pass with what it saw and did, and the seconds it took."""


class Supervisor:
    """Passes over jobs until it is told to stop.

    Args:
        reconciler: what a pass is.
        stop: ends it, at the latest after the job at hand.
        interval_ms: between the beginnings of two passes.
        saw: told of every pass.
        clock: the time.
    """

    def __init__(
        self,
        reconciler: Reconciler,
        stop: threading.Event,
        *,
        interval_ms: int = DEFAULT_INTERVAL_MS,
        saw: Saw | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._reconciler = reconciler
        self._stop = stop
        self._interval_ms = interval_ms
        self._saw = saw
        self._clock = clock
        self._unreachable_since: float | None = None
        self._said_at = 0.0
        self._known_errors: dict[str, str] = {}

    def run(self, *, passes: int | None = None) -> None:
        """Pass over the jobs until told to stop, or so many times."""
        done = 0
        while not self._stop.is_set():
            begun = self._clock.monotonic()
            self.pass_once()
            done += 1
            if done == passes:
                return
            left = self._interval_ms / 1000 - (self._clock.monotonic() - begun)
            # Also after a pass that took longer: other programs want the machine, too.
            self._stop.wait(max(left, 0.1))

    def pass_once(self) -> Report | None:
        """Pass over the jobs once; None where the store cannot be reached, which is said at first and then once a minute."""
        begun = self._clock.monotonic()
        try:
            report = self._reconciler.pass_over(stop=self._stop)
        except StoreError as error:
            self._say_unreachable(error)
            return None
        except Exception:
            # A supervisor that ends because of one job's odd trouble leaves all others alone.
            logger.exception("a pass failed; the next one goes on")
            return None
        self._say_reachable()
        self._say_errors(report)
        if self._saw is not None:
            self._saw(report, self._clock.monotonic() - begun)
        return report

    def _say_unreachable(self, error: StoreError) -> None:
        now = self._clock.monotonic()
        if self._unreachable_since is None:
            self._unreachable_since = now
            logger.error("the job store cannot be reached; drivers run on, and it is tried again: %s", error)
        elif now - self._said_at >= _SAY_AGAIN_MS / 1000:
            logger.error("the job store cannot be reached since %s: %s", short_duration(_ms(now - self._unreachable_since)), error)
        else:
            return
        self._said_at = now

    def _say_reachable(self) -> None:
        if self._unreachable_since is not None:
            took = _ms(self._clock.monotonic() - self._unreachable_since)
            logger.info("the job store is back after %s, at %s", short_duration(took), format_ms(self._clock.now_ms()))
            self._unreachable_since = None

    def _say_errors(self, report: Report) -> None:
        """Say what is wrong with jobs, once for each change."""
        found = {job: str(error) for job, error in report.errors.items()}
        for job, text in found.items():
            if self._known_errors.get(job) != text:
                logger.error("%s cannot be looked after: %s", job, text)
        for job in self._known_errors.keys() - found.keys():
            logger.info("%s is looked after again", job)
        self._known_errors = found


def _ms(seconds: float) -> int:
    return int(seconds) * 1000

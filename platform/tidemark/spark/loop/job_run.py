"""One run of a job under one term: epochs of the input, and epochs without input when a deadline is due, until the run ends."""

from __future__ import annotations

import contextlib
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping

from tidemark.crashpoints import crash_point
from tidemark.errors import FencedError, StoreError, TidemarkError
from tidemark.spark.loop.driver import JobDriver
from tidemark.spark.resources.sampler import measuring
from tidemark.spark.sources.adaptive_intake import AdaptiveIntake
from tidemark.spark.sources.backlog import backlog_of_sources, rows_or_files_read
from tidemark.spark.sources.intake_limits import greatest_share
from tidemark.spark.sources.requested_intake import IntakeShare, RequestedIntake
from tidemark.state.encoding.redaction import without_secrets
from tidemark.state.status.driver_load import LoadGauge


class JobRun(ABC):
    """Runs epochs until the end.

    Args:
        driver: of the job.
        stopping: asks for a stop after the current epoch.
        fenced: set when a newer driver has taken the job over.
        done: whether the run has had as many epochs as it may have.
    """

    def __init__(self, driver: JobDriver, *, stopping: threading.Event, fenced: threading.Event, done: Callable[[], bool]) -> None:
        self.driver = driver
        self.stopping = stopping
        self.drained_at: int | None = None
        self.intake: IntakeShare | None = None
        self.gauge = LoadGauge(0)
        self._fenced = fenced
        self._done = done
        self._write_backlog: Callable[[], None] = lambda: None

    def run(
        self,
        interval_ms: int | None,
        *,
        end_of_input: bool,
        adaptive_intake: bool = False,
        intake: Callable[[], float | None] | None = None,
    ) -> None:
        """Run epochs until the end, and write a status that says how the run ended.

        Args:
            interval_ms: between epochs; None drains the sources.
            end_of_input: after the drain, close all windows.
            adaptive_intake: adapt the intake of an epoch to the time that the last ones took.
            intake: returns the share of its usual bounds that an epoch may read, unless that adapts itself.
        """
        driver = self.driver
        try:
            driver.prepare()
            # A drain reads the input that is available when it starts.
            self.drained_at = driver.now() if interval_ms is None else None
            if interval_ms is not None:
                self._run_on(interval_ms, adaptive=adaptive_intake, requested=intake)
            with measuring(driver):
                self.run_epochs(interval_ms)
            crash_point("query-ended")
            self._require_term()
            if self.drained_at is not None and not self.should_end():
                self._after_drain(self.drained_at, end_of_input=end_of_input)
            self._require_term()
            ended_early = self.should_end()
        except BaseException as error:
            failure = driver.translate_error(error) if isinstance(error, Exception) else error
            driver.write_status("failed" if isinstance(failure, TidemarkError) else "stopped", failure)
            if failure is error:
                raise
            raise failure from without_secrets(error)
        finally:
            driver.close()
        driver.write_status("stopped" if ended_early or interval_ms is not None else "finished")

    @abstractmethod
    def run_epochs(self, interval_ms: int | None) -> None:
        """Run the epochs of the input, and in a continuous run those without; return when the run is over, or the sources are drained.

        Args:
            interval_ms: between epochs; None drains the sources.
        """

    def should_end(self) -> bool:
        """Return whether no other epoch may begin."""
        return self.stopping.is_set() or self._fenced.is_set() or self._done()

    def measure_backlog(self, progress: Mapping[str, object] | None, *, new: bool) -> None:
        """Measure the backlog of the sources and write it to the status; a running epoch does that at its end.

        Args:
            progress: Spark's of the last batch, None without a query.
            new: whether an epoch has ended since the last measurement.
        """
        driver, sources = self.driver, tuple(self.driver.job.sources.values())
        read = rows_or_files_read(sources, driver.files, progress) if new else None
        self.gauge.observe_backlog(driver.elapsed(), backlog_of_sources(sources, driver.files_read, progress), read=read)
        if driver.lock.acquire(blocking=False):
            try:
                with contextlib.suppress(FencedError, StoreError):
                    self._write_backlog()
            finally:
                driver.lock.release()

    def run_deadline(self, at: int, *, anyway: bool = False) -> None:
        """Run an epoch without input where a deadline is due.

        Args:
            at: a processing time at which certainly no input was waiting.
            anyway: also where none is due.
        """
        deadline = self.driver.next_deadline()
        if anyway or (deadline is not None and deadline <= at):
            self.driver.run_without_input(at=at)

    def _require_term(self) -> None:
        if self._fenced.is_set():
            raise FencedError(
                "a newer driver took the job over, so this run has ended",
                fix="leave the job to that driver; `tidemark status` names it",
            )

    def _run_on(self, interval_ms: int, *, adaptive: bool, requested: Callable[[], float | None] | None) -> None:
        sources = tuple(self.driver.job.sources.values())
        context = self.driver.session.sparkContext
        self.gauge = LoadGauge(interval_ms, cores=lambda: context.defaultParallelism, max_intake=greatest_share(sources))
        if adaptive:
            self.intake = AdaptiveIntake(interval_ms, sources)
        elif requested is not None:
            self.intake = RequestedIntake(requested)
            self.gauge.intake = self.intake.share
        self._write_backlog = self.driver.run_on(self.gauge, self.intake)

    def _after_drain(self, at: int, *, end_of_input: bool) -> None:
        """Run the epochs without input that are due once all input available at the drain's start is read."""
        driver = self.driver
        differs = driver.read_to_end()
        if not end_of_input:
            # What became known only now would be lost with this run.
            self.run_deadline(at, anyway=differs)
        elif not driver.ended:
            driver.run_without_input(at=driver.now(), end_of_input=True)

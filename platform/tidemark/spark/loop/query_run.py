"""One run of a job under one term: each batch of Spark's query is an epoch, and epochs without input run between the batches."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from pyspark.errors import PySparkException, StreamingQueryException

from tidemark.crashpoints import crash_point
from tidemark.errors import FencedError, StoreError, TidemarkError
from tidemark.spark.env.session import local_checkpoints
from tidemark.spark.loop.caught_up import CaughtUpProbe
from tidemark.spark.loop.driver import JobDriver
from tidemark.spark.loop.query_ending import end_query
from tidemark.spark.sources.adaptive_intake import AdaptiveIntake
from tidemark.spark.sources.backlog import backlog_of_sources, rows_or_files_read
from tidemark.state.encoding.redaction import without_secrets
from tidemark.state.status.driver_load import LoadGauge

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

logger = logging.getLogger("tidemark")

_POLL_SECONDS = 0.2
_POLLS_PER_CHECK = 5
_POLLS_PER_COUNT = 25
_ENDING_SECONDS = 60.0


class QueryRun:
    """Runs epochs until the end.

    Args:
        driver: of the job.
        stopping: asks for a stop after the current epoch.
        fenced: set when a newer driver has taken the job over.
        done: whether the run has had as many epochs as it may have.
    """

    def __init__(self, driver: JobDriver, *, stopping: threading.Event, fenced: threading.Event, done: Callable[[], bool]) -> None:
        self._driver = driver
        self._stopping = stopping
        self._fenced = fenced
        self._done = done
        self._failure: BaseException | None = None
        self._closing = False
        self._ending = threading.Event()
        self._has_new_bounds = False
        self._drained_at: int | None = None
        self._caught_up_probe = CaughtUpProbe(driver.now)
        self._intake: AdaptiveIntake | None = None
        self._gauge = LoadGauge(0)
        self._polls = 0
        self._reported_at: object = None
        self._write_backlog: Callable[[], None] = lambda: None

    def run(self, interval_ms: int | None, *, end_of_input: bool, adaptive_intake: bool = False) -> None:
        """Run epochs until the end, and write a status that says how the run ended.

        Args:
            interval_ms: between epochs; None drains the sources.
            end_of_input: after the drain, close all windows.
            adaptive_intake: adapt the intake of an epoch to the time that the last ones took.
        """
        driver = self._driver
        try:
            driver.prepare()
            # A drain reads the input that is available when its query starts.
            self._drained_at = driver.now() if interval_ms is None else None
            if interval_ms is not None:
                self._run_on(interval_ms, adaptive=adaptive_intake)
            self._query(interval_ms)
            while self._intake is not None and self._has_new_bounds and not self._should_end():
                self._restart_with_bounds(self._intake)
                self._query(interval_ms)
            crash_point("query-ended")
            self._require_term()
            if self._drained_at is not None and not self._should_end():
                self._after_drain(self._drained_at, end_of_input=end_of_input)
            self._require_term()
            ended_early = self._should_end()
        except BaseException as error:
            failure = driver.translate_error(error) if isinstance(error, Exception) else error
            driver.write_status("failed" if isinstance(failure, TidemarkError) else "stopped", failure)
            if failure is error:
                raise
            raise failure from without_secrets(error)
        finally:
            driver.close()
        driver.write_status("stopped" if ended_early or interval_ms is not None else "finished")

    def _should_end(self) -> bool:
        return self._stopping.is_set() or self._fenced.is_set() or self._done()

    def _require_term(self) -> None:
        if self._fenced.is_set():
            raise FencedError(
                "a newer driver took the job over, so this run has ended",
                fix="leave the job to that driver; `tidemark status` names it",
            )

    def _run_on(self, interval_ms: int, *, adaptive: bool) -> None:
        self._gauge = LoadGauge(interval_ms)
        self._intake = AdaptiveIntake(interval_ms, tuple(self._driver.job.sources.values())) if adaptive else None
        self._write_backlog = self._driver.run_on(self._gauge, self._intake)

    def _restart_with_bounds(self, intake: AdaptiveIntake) -> None:
        """Prepare a query with other bounds, which resumes after the newest epoch as at every start."""
        self._gauge.intake = intake.apply()
        self._driver.prepare_again()
        self._closing, self._has_new_bounds, self._failure, self._caught_up_probe = False, False, None, CaughtUpProbe(self._driver.now)
        self._ending.clear()

    def _query(self, interval_ms: int | None) -> None:
        writer = self._driver.streaming().writeStream.foreachBatch(self._batch).option("checkpointLocation", self._driver.checkpoint_path)
        trigger = writer.trigger(availableNow=True) if interval_ms is None else writer.trigger(processingTime=f"{interval_ms} milliseconds")
        with local_checkpoints(self._driver.session):
            query = trigger.start()
        try:
            self._wait(query, continuous=interval_ms is not None)
        except StreamingQueryException as error:
            if self._failure is None:
                raise
            logger.debug("query ended: %s", error)
        finally:
            self._stop(query)
        if self._failure is not None:
            raise self._failure

    def _wait(self, query: StreamingQuery, *, continuous: bool) -> None:
        while not query.awaitTermination(_POLL_SECONDS):  # type: ignore[arg-type]  # whole seconds in the stub only
            # The current epoch may change the bounds again; the query ends all the same, and another has to follow.
            self._has_new_bounds = self._intake is not None and self._intake.has_new_bounds
            if self._has_new_bounds or self._is_over():
                return
            if continuous:
                self._poll_progress(query)
                self._run_due_timers(query)

    def _poll_progress(self, query: StreamingQuery) -> None:
        """Note that Spark polls for input, and from time to time measure the backlog."""
        self._polls += 1
        if self._polls % _POLLS_PER_CHECK == 0 and _is_between_triggers(query):
            self._driver.activity.polled(self._driver.now())
        if self._polls % _POLLS_PER_CHECK == 0 or self._polls % _POLLS_PER_COUNT == 0:
            progress = query.lastProgress
            at = progress["timestamp"] if progress is not None else None
            # Spark reports a batch once it has ended, and from time to time that there was none.
            if at != self._reported_at or self._polls % _POLLS_PER_COUNT == 0:
                self._measure_backlog(progress, new=at != self._reported_at)
                self._reported_at = at

    def _measure_backlog(self, progress: Mapping[str, object] | None, *, new: bool) -> None:
        driver, sources = self._driver, tuple(self._driver.job.sources.values())
        read = rows_or_files_read(sources, driver.files, progress) if new else None
        self._gauge.observe_backlog(driver.elapsed(), backlog_of_sources(sources, driver.files_read, progress), read=read)
        self._report_backlog()

    def _report_backlog(self) -> None:
        """Write the backlog to the status; a running epoch does that at its end."""
        lock = self._driver.lock
        if lock.acquire(blocking=False):
            try:
                with contextlib.suppress(FencedError, StoreError):
                    self._write_backlog()
            finally:
                lock.release()

    def _run_due_timers(self, query: StreamingQuery) -> None:
        """Run an epoch without input when a deadline is due and no input was waiting at that deadline; asks Spark first."""
        driver, probe = self._driver, self._caught_up_probe
        deadline = driver.next_deadline()
        due = deadline is not None and deadline <= driver.now()
        if not due and not driver.may_have_unread_input:
            return
        since = probe.since
        if since is None or (due and deadline is not None and since < deadline):
            probe.probe(query)
            return
        with driver.lock:
            since = probe.since
            if since is not None:
                driver.read_to_end()
                self._run_deadline(since)

    def _after_drain(self, at: int, *, end_of_input: bool) -> None:
        """Run the epochs without input that are due once all input available at the drain's start is read."""
        driver = self._driver
        differs = driver.read_to_end()
        if not end_of_input:
            # What became known only now would be lost with this run.
            self._run_deadline(at, anyway=differs)
        elif not driver.ended:
            driver.run_without_input(at=driver.now(), end_of_input=True)

    def _run_deadline(self, at: int, *, anyway: bool = False) -> None:
        deadline = self._driver.next_deadline()
        if anyway or (deadline is not None and deadline <= at):
            self._driver.run_without_input(at=at)

    def _stop(self, query: StreamingQuery) -> None:
        """Stop the query between two epochs: the current epoch is finished first, and no other begins."""
        self._closing = True
        with self._driver.lock, contextlib.suppress(PySparkException):
            end_query(query, self._ending)
        self._caught_up_probe.close()

    def _batch(self, batch: DataFrame, number: int) -> None:
        """Run the epoch of a batch, unless the query is to end.

        Nothing is raised: a failure is kept here, and Spark would log a long error for a query that is only to end. Spark takes a batch
        that was not run for done, in a checkpoint that is not used again; the next query reads its input again.
        """
        self._caught_up_probe.batch_started()
        try:
            # The thread that stops the query holds the lock and waits for this thread.
            while not self._is_over():
                if self._driver.lock.acquire(timeout=_POLL_SECONDS):
                    self._run_batch(batch, number)
                    break
        except BaseException as error:  # noqa: BLE001  # raised in the thread that waits for the query
            self._failure = error
        if self._is_over():
            # Otherwise Spark would begin the next batch, and be interrupted in it.
            self._ending.wait(_ENDING_SECONDS)

    def _run_batch(self, batch: DataFrame, number: int) -> None:
        """Run the epoch of a batch under the lock, which the caller has acquired, and release it."""
        try:
            if not self._is_over():
                self._driver.run_batch(batch, number, polled_at=self._drained_at)
        finally:
            self._driver.lock.release()

    def _is_over(self) -> bool:
        """Return whether no other epoch of this query may begin."""
        return self._closing or self._failure is not None or self._should_end()


def _is_between_triggers(query: StreamingQuery) -> bool:
    """Return whether Spark has polled for input and waits for its next trigger; False before its first poll."""
    status = query.status
    return not status["isTriggerActive"] and not str(status["message"]).startswith("Initializing")

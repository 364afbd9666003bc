"""A run whose input is planned by a query of Spark's: each batch is an epoch, and epochs without input run between the batches."""

from __future__ import annotations

import contextlib
import logging
import threading
from typing import TYPE_CHECKING

from pyspark.errors import PySparkException, StreamingQueryException

from tidemark.spark.env.session import local_checkpoints
from tidemark.spark.loop.job_run import JobRun
from tidemark.spark.loop.query.caught_up import CaughtUpProbe
from tidemark.spark.loop.query.query_ending import end_query

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

logger = logging.getLogger("tidemark")

_POLL_SECONDS = 0.2
_POLLS_PER_CHECK = 5
_POLLS_PER_COUNT = 25
_ENDING_SECONDS = 60.0


class QueryRun(JobRun):
    """Runs epochs until the end; the thread of a query runs those with input."""

    _failure: BaseException | None
    _closing: bool
    _has_new_bounds: bool
    _ending: threading.Event
    _caught_up_probe: CaughtUpProbe
    _polls = 0
    _reported_at: object = None

    def run_epochs(self, interval_ms: int | None) -> None:
        """Run the batches of a query, and of another one whenever the bounds of the intake have changed."""
        self._query(interval_ms)
        while self.intake is not None and self._has_new_bounds and not self.should_end():
            self.gauge.intake = self.intake.apply()
            self.driver.prepare_again()
            self._query(interval_ms)

    def _query(self, interval_ms: int | None) -> None:
        """Run the batches of a query, which resumes after the newest epoch as at every start."""
        self._reset()
        writer = self.driver.streaming().writeStream.foreachBatch(self._batch).option("checkpointLocation", self.driver.checkpoint.path)
        trigger = writer.trigger(availableNow=True) if interval_ms is None else writer.trigger(processingTime=f"{interval_ms} milliseconds")
        with local_checkpoints(self.driver.session):
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

    def _reset(self) -> None:
        self._failure, self._closing, self._has_new_bounds = None, False, False
        self._ending, self._caught_up_probe = threading.Event(), CaughtUpProbe(self.driver.now)

    def _wait(self, query: StreamingQuery, *, continuous: bool) -> None:
        while not query.awaitTermination(_POLL_SECONDS):  # type: ignore[arg-type]  # whole seconds in the stub only
            # The current epoch may change the bounds again; the query ends all the same, and another has to follow.
            self._has_new_bounds = self.intake is not None and self.intake.has_new_bounds
            if self._has_new_bounds or self._is_over():
                return
            if continuous:
                self._poll_progress(query)
                self._run_due_timers(query)

    def _poll_progress(self, query: StreamingQuery) -> None:
        """Note that Spark polls for input, and from time to time measure the backlog."""
        self._polls += 1
        if self._polls % _POLLS_PER_CHECK == 0 and _is_between_triggers(query):
            self.driver.activity.polled(self.driver.now())
        if self._polls % _POLLS_PER_CHECK == 0 or self._polls % _POLLS_PER_COUNT == 0:
            progress = query.lastProgress
            at = progress["timestamp"] if progress is not None else None
            # Spark reports a batch once it has ended, and from time to time that there was none.
            if at != self._reported_at or self._polls % _POLLS_PER_COUNT == 0:
                self.measure_backlog(progress, new=at != self._reported_at)
                self._reported_at = at

    def _run_due_timers(self, query: StreamingQuery) -> None:
        """Run an epoch without input when a deadline is due and no input was waiting at that deadline; asks Spark first."""
        driver, probe = self.driver, self._caught_up_probe
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
                self.run_deadline(since)

    def _stop(self, query: StreamingQuery) -> None:
        """Stop the query between two epochs: the current epoch is finished first, and no other begins."""
        self._closing = True
        with self.driver.lock, contextlib.suppress(PySparkException):
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
                if self.driver.lock.acquire(timeout=_POLL_SECONDS):
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
                self.driver.run_batch(batch, number, polled_at=self.drained_at)
        finally:
            self.driver.lock.release()

    def _is_over(self) -> bool:
        """Return whether no other epoch of this query may begin."""
        return self._closing or self._failure is not None or self.should_end()


def _is_between_triggers(query: StreamingQuery) -> bool:
    """Return whether Spark has polled for input and waits for its next trigger; False before its first poll."""
    status = query.status
    return not status["isTriggerActive"] and not str(status["message"]).startswith("Initializing")

"""Running a job: until its sources are drained, or on and on until it is told to stop."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.errors import PySparkException, StreamingQueryException

from tidemark.clock import SYSTEM_CLOCK, Clock
from tidemark.durations import to_ms
from tidemark.errors import DefinitionError, FencedError, TidemarkError
from tidemark.graph.job import Job
from tidemark.spark.driver import JobDriver
from tidemark.spark.housekeeping import beating
from tidemark.spark.session import build_session, engine_settings
from tidemark.state.joblog import JobLog
from tidemark.state.owners import current_owner
from tidemark.state.progress import EpochProgress, format_progress
from tidemark.state.store import JobStore

if TYPE_CHECKING:
    from types import FrameType

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

logger = logging.getLogger("tidemark")

DEFAULT_STORE = ".tidemark/jobs"
STORE_VARIABLE = "TIDEMARK_STORE"
_POLL_SECONDS = 0.2


@dataclass(frozen=True)
class RunResult:
    """What a run did: the epochs it committed, oldest first, and the newest epoch of the job, also when this run had none."""

    job: str
    lineage: str
    epochs: tuple[EpochProgress, ...]
    head: EpochProgress | None

    @property
    def rows_in(self) -> int:
        """Rows read in this run."""
        return sum(epoch.rows_in for epoch in self.epochs)


def run(
    job: Job,
    *,
    store: str | None = None,
    trigger: str | None = None,
    end_of_input: bool = False,
    spark: SparkSession | None = None,
    on_epoch: Callable[[EpochProgress], None] | None = None,
    stop: threading.Event | None = None,
    max_epochs: int | None = None,
    takeover: bool = False,
    run_id: str = "",
    handle_signals: bool = True,
    clock: Clock = SYSTEM_CLOCK,
) -> RunResult:
    """Run a job and return when it is done.

    Without ``trigger`` it drains: reads what is there, in epochs of bounded size, and stops; windows stay open, since more may
    come. With ``trigger`` it runs on, an epoch at most that often, until SIGINT, SIGTERM or ``stop``; the epoch at hand is
    finished first. Whatever ends a run, the next one goes on after the last committed epoch.

    Args:
        job: what to run.
        store: root of the job store; else the job's own, ``$TIDEMARK_STORE``, or ``.tidemark/jobs``.
        trigger: interval between epochs, such as ``"10 seconds"``.
        end_of_input: after the drain, close all windows: no more will ever come. Not with ``trigger``.
        spark: session to run in; else the active one, or one on this machine.
        on_epoch: called with the progress of each epoch after it was published.
        stop: set it from another thread to stop after the epoch at hand.
        max_epochs: stop after so many epochs.
        takeover: take the job from a driver that is still alive; that one is fenced and stops.
        run_id: name of this run, for messages of other drivers.
        handle_signals: stop on SIGINT and SIGTERM; only in the main thread.
        clock: processing time.

    Raises:
        JobRunningError: another driver of this job is alive.
        TidemarkError: of the class that fits what went wrong; nothing of the failed epoch was committed.
    """
    interval = _interval(trigger, end_of_input=end_of_input)
    root = JobStore.open(store or job.store or os.environ.get(STORE_VARIABLE) or DEFAULT_STORE)
    session = spark or build_session(app_name=f"tidemark {job.name}")
    term = JobLog(root.at(job.name), job.name, clock).acquire(current_owner(run_id), takeover=takeover)
    stopping = stop or threading.Event()
    epochs: list[EpochProgress] = []

    def after_epoch(progress: EpochProgress) -> None:
        epochs.append(progress)
        logger.info("%s", format_progress(progress))
        if on_epoch is not None:
            on_epoch(progress)

    try:
        with engine_settings(session), beating(term) as fenced, _signals(stopping, wanted=handle_signals):
            driver = JobDriver(job, spark=session, store=root, term=term, clock=clock, on_epoch=after_epoch)
            running = _Run(driver, stopping, fenced, lambda: max_epochs is not None and len(epochs) >= max_epochs)
            running.go(interval, end_of_input=end_of_input)
            head = epochs[-1] if epochs else (driver.head.progress if driver.head else None)
            return RunResult(job.name, driver.lineage, tuple(epochs), head)
    finally:
        with contextlib.suppress(TidemarkError):
            term.release()


class _Run:
    """One run of a job under one term."""

    def __init__(self, driver: JobDriver, stopping: threading.Event, fenced: threading.Event, done: Callable[[], bool]) -> None:
        self._driver = driver
        self._stopping = stopping
        self._fenced = fenced
        self._done = done
        self._failure: BaseException | None = None
        self._closing = False

    def go(self, interval_ms: int | None, *, end_of_input: bool) -> None:
        """Run epochs until the end, and leave a status that says how it ended."""
        driver = self._driver
        try:
            driver.prepare()
            self._query(interval_ms)
            self._require_term()
            if end_of_input and not self._stopping.is_set() and not self._done():
                driver.run_without_input(end_of_input=True)
        except BaseException as error:
            failure = driver.explain(error) if isinstance(error, Exception) else error
            driver.say("failed" if isinstance(failure, TidemarkError) else "stopped", failure)
            if failure is error:
                raise
            raise failure from error
        finally:
            driver.close()
        driver.say("stopped" if self._stopping.is_set() or interval_ms is not None else "finished")

    def _require_term(self) -> None:
        if self._fenced.is_set():
            raise FencedError(
                "a newer driver took the job over, so this run has ended",
                fix="leave the job to that driver; `tidemark status` names it",
            )

    def _query(self, interval_ms: int | None) -> None:
        writer = self._driver.streaming().writeStream.foreachBatch(self._batch).option("checkpointLocation", self._driver.checkpoint_path)
        trigger = writer.trigger(availableNow=True) if interval_ms is None else writer.trigger(processingTime=f"{interval_ms} milliseconds")
        query = trigger.start()
        try:
            self._wait(query, continuous=interval_ms is not None)
        except StreamingQueryException as error:
            if self._failure is None:
                raise
            logger.debug("query ended: %s", error)
        finally:
            self._stop(query)
        if self._failure is not None and not isinstance(self._failure, _StoppedError):
            raise self._failure

    def _wait(self, query: StreamingQuery, *, continuous: bool) -> None:
        while not query.awaitTermination(_POLL_SECONDS):  # type: ignore[arg-type]  # whole seconds in the stub only
            if self._stopping.is_set() or self._fenced.is_set() or self._done():
                return
            if continuous and self._due(query):
                self._driver.run_without_input()

    def _due(self, query: StreamingQuery) -> bool:
        deadline = self._driver.next_deadline()
        if deadline is None or deadline > self._driver.now():
            return False
        status = query.status
        return not status["isTriggerActive"] and not status["isDataAvailable"]

    def _stop(self, query: StreamingQuery) -> None:
        """Stop the query between two epochs: an epoch at hand is finished first, and none begins any more."""
        self._closing = True
        with self._driver.lock, contextlib.suppress(PySparkException):
            query.stop()

    def _batch(self, batch: DataFrame, number: int) -> None:
        if self._closing or self._done() or self._stopping.is_set() or self._fenced.is_set():
            self._failure = _StoppedError()
            raise self._failure
        try:
            self._driver.run_batch(batch, number)
        except BaseException as error:
            self._failure = error
            raise


class _StoppedError(Exception):
    """A batch came after the run was asked to stop; it is read again by the next run."""


def _interval(trigger: str | None, *, end_of_input: bool) -> int | None:
    if trigger is None:
        return None
    if end_of_input:
        raise DefinitionError(
            "end_of_input=True closes all windows after a drain, but trigger= runs on without an end",
            fix="leave trigger= out to drain, or leave end_of_input out",
        )
    return to_ms(trigger, what="trigger", minimum=0)


@contextlib.contextmanager
def _signals(stopping: threading.Event, *, wanted: bool) -> Iterator[None]:
    """Let SIGINT and SIGTERM ask for a stop; a second one of them interrupts at once."""
    if not wanted or threading.current_thread() is not threading.main_thread():
        yield
        return

    def ask(number: int, _frame: FrameType | None) -> None:
        if stopping.is_set():
            raise KeyboardInterrupt
        logger.info("%s: stopping after the epoch at hand", signal.Signals(number).name)
        stopping.set()

    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)

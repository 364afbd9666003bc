"""The progress of a driver's start and the duration of its stages: one small file per attempt, updated by the driver."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Final

from tidemark.clock import SYSTEM_CLOCK, Clock
from tidemark.control.model.paths import STARTS, numbered
from tidemark.control.model.records import Attempt, DriverStart
from tidemark.errors import TidemarkError
from tidemark.state.store.documents import read_intact_document, write_document
from tidemark.state.store.layout import job_folder
from tidemark.state.store.store import JobStore

logger = logging.getLogger("tidemark")

KIND: Final = "driver-start"

PYTHON: Final = "python"
CODE: Final = "code"
SPARK: Final = "spark"
JVM: Final = "jvm"
SESSION: Final = "session"
"""Stages before those of a run: the process and its imports since the attempt was written, the job's code, then the wait for Spark.

Spark's start as a whole is ``jvm``, which runs in parallel to ``code``, and ``session``."""

FIRST_EPOCH: Final = "first epoch"
"""The last stage: work left from earlier epochs, such as republishing missing ones, is done."""

_ORDER: Final = (PYTHON, CODE, JVM, SESSION, SPARK, "recovery", "checkpoint", FIRST_EPOCH)


def sorted_stages(took: Mapping[str, int]) -> tuple[tuple[str, int], ...]:
    """Return stages in the order in which they run."""
    return tuple(sorted(took.items(), key=lambda item: _ORDER.index(item[0]) if item[0] in _ORDER else len(_ORDER)))


def reached_first_epoch(start: DriverStart | None) -> bool:
    """Return whether a driver is known to have reached its first epoch, committed or not."""
    return start is not None and (start.stage == FIRST_EPOCH or FIRST_EPOCH in start.took)


class StartReport:
    """Measures the stages of a driver's start and keeps its file up to date, without delaying the start.

    Args:
        store: the root store.
        job: the job's name.
        attempt: the driver's attempt; its first stage began when the attempt was written.
        clock: processing time.
    """

    def __init__(self, store: JobStore, job: str, attempt: Attempt, *, clock: Clock = SYSTEM_CLOCK) -> None:
        self._store = store
        self._job = job
        self._clock = clock
        self._lock = threading.Lock()
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="tidemark-start")
        now = clock.now_ms()
        self._began = clock.monotonic()
        self._ended = False
        self._start = DriverStart(attempt.number, attempt.at, CODE, now, {PYTHON: max(0, now - attempt.at)})
        self._put()

    def enter(self, stage: str) -> None:
        """End the current stage and begin another; does nothing after the end of the start."""
        with self._lock:
            self._close(stage)

    def close(self) -> None:
        """End the start: the first epoch is published, or the driver ends. Calling it again does nothing."""
        with self._lock:
            self._close("")
            if not self._ended:
                self._ended = True
                self._writer.shutdown(wait=False)

    @property
    def closed(self) -> bool:
        """Whether the start is done."""
        return self._ended

    def wait(self) -> None:
        """Wait until all stages are written; call it after ``close``."""
        self._writer.shutdown(wait=True)

    @contextmanager
    def in_parallel(self, stage: str) -> Iterator[None]:
        """Measure work in another thread, in parallel to the stages."""
        begun = self._clock.monotonic()
        yield
        with self._lock:
            self._took(stage, begun)

    def _close(self, stage: str) -> None:
        if self._ended:
            return
        self._took(self._start.stage, self._began)
        self._began = self._clock.monotonic()
        self._start = DriverStart(self._start.attempt, self._start.at, stage, self._clock.now_ms(), self._start.took)
        self._put()

    def _took(self, stage: str, begun: float) -> None:
        took = {**self._start.took, stage: round((self._clock.monotonic() - begun) * 1000)}
        self._start = DriverStart(self._start.attempt, self._start.at, self._start.stage, self._start.since, took)

    def _put(self) -> None:
        self._writer.submit(self._write, self._start)

    def _write(self, start: DriverStart) -> None:
        try:
            write_start(self._store, self._job, start)
        except TidemarkError as error:
            # Nothing depends on this file, and the run itself notices that the store does not respond.
            logger.debug("%s", error)


def write_start(store: JobStore, job: str, start: DriverStart) -> None:
    """Write a start's progress, replacing the previous one. ``store`` is the root store."""
    write_document(store.at(job_folder(job)), numbered(STARTS, start.attempt), kind=KIND, value=start)


def read_start(store: JobStore, job: str, attempt: int) -> DriverStart | None:
    """Return the progress of the start of an attempt's driver; None if it is unknown or damaged, since nothing depends on it.

    Raises:
        FormatError: a newer release wrote it.
    """
    return read_intact_document(store.at(job_folder(job)), numbered(STARTS, attempt), kind=KIND, form=DriverStart)

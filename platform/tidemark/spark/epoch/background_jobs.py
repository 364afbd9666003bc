"""Spark jobs of an epoch that run in other threads than its own: in the background, where nothing else in it waits for them, or at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import TYPE_CHECKING

from pyspark import inheritable_thread_target

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

THREADS = 3
"""The jobs of an epoch are many and small; running more at once than there are cores hides their planning time."""


def thread_pool() -> ThreadPoolExecutor:
    """Return the threads of a run; kept from epoch to epoch, since each has its own connection to the JVM."""
    return ThreadPoolExecutor(THREADS, thread_name_prefix="tidemark-beside")


class BackgroundJobs:
    """Work of one epoch.

    Args:
        pool: threads of the run.
        spark: session that the work uses.
    """

    def __init__(self, pool: ThreadPoolExecutor, spark: SparkSession) -> None:
        self._pool = pool
        self._spark = spark
        self._submitted: list[Future[None]] = []

    def submit(self, work: Callable[[], None]) -> None:
        """Start work in another thread; its Spark jobs belong to the calling thread's job group, as if it ran here."""
        self._submitted.append(self._pool.submit(inheritable_thread_target(self._spark)(work)))

    def join(self) -> None:
        """Wait for all work, and raise the error of the first that failed."""
        self.wait()
        for work in self._submitted:
            work.result()

    def discard(self) -> None:
        """Wait for all work, and drop its results and errors."""
        self.wait()
        self._submitted.clear()

    def wait(self) -> None:
        """Wait for all work, without raising its errors."""
        wait(self._submitted)


def run_at_once(pool: ThreadPoolExecutor, spark: SparkSession, work: Sequence[Callable[[], None]]) -> None:
    """Do work, the first of it in this thread, and wait for all; raises the error of the first that failed.

    Args:
        pool: threads of the run.
        spark: session that the work uses.
        work: each a Spark job of its own, which share nothing that they change.
    """
    others = BackgroundJobs(pool, spark)
    for each in work[1:]:
        others.submit(each)
    try:
        for each in work[:1]:
            each()
    finally:
        others.wait()
    others.join()

"""Ends a query between two of its batches, so that nothing fails: Spark logs no error, and no thread is interrupted while it works."""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING, Final

from py4j.protocol import Py4JError

if TYPE_CHECKING:
    from py4j.java_gateway import JavaObject
    from pyspark.sql.streaming.query import StreamingQuery

_POLL_MS: Final = 50
_POLLS: Final = 200


def end_query(query: StreamingQuery, ending: threading.Event) -> None:
    """Stop a query without another batch, and return once it has ended.

    Spark's ``stop`` interrupts the query's thread wherever it is; a broadcast or a file that is being written then fails, and Spark
    logs an error. Here the thread leaves its loop by itself, as it does after ``stop``, and is interrupted only while it waits for its
    next trigger, or if it works for too long.

    Args:
        query: the query.
        ending: set once Spark knows that the query ends; a batch that waits for it may return then.
    """
    # If a later Spark keeps these elsewhere, the query is interrupted at once.
    thread: JavaObject | None = None
    with contextlib.suppress(Py4JError, TypeError):
        thread = _have_leave_its_loop(query)
    ending.set()
    for _ in range(_POLLS):
        if thread is None:
            break
        # Not awaitTermination, which returns as soon as the query is marked as ended.
        thread.join(_POLL_MS)
        if not thread.isAlive():
            return
        if _waits(query):
            break
    query.stop()


def _have_leave_its_loop(query: StreamingQuery) -> JavaObject:
    """Mark the query as ended, as ``stop`` does first, and return its thread; no public call does only this."""
    running = query._jsq.streamingQuery()  # noqa: SLF001
    states = running.getClass().getClassLoader().loadClass("org.apache.spark.sql.execution.streaming.runtime.TERMINATED$")
    running.state().set(states.getField("MODULE$").get(None))
    return running.queryExecutionThread()


def _waits(query: StreamingQuery) -> bool:
    """Return whether the query waits for its next trigger; while it sets up its sources no trigger is active either."""
    status = query.status
    return not status["isTriggerActive"] and str(status["message"]).startswith("Waiting")

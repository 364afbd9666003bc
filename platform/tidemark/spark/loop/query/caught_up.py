"""Whether input is waiting: known for certain only once Spark has polled the sources and found nothing."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery


class CaughtUpProbe:
    """Asks Spark whether the sources of a continuous query are read to their ends.

    Spark answers after a trigger that began later than the question and found no rows. So all input available at the time of the
    question has been read, unless a batch came in between.

    Args:
        now: the time of the job's clock, milliseconds.
    """

    def __init__(self, now: Callable[[], int]) -> None:
        self._now = now
        self._lock = threading.Lock()
        self._batches = 0
        self._since: int | None = None
        self._probing: threading.Thread | None = None

    @property
    def since(self) -> int | None:
        """The newest time at which certainly no input was waiting, milliseconds; None where not known, or a batch has come since."""
        with self._lock:
            return self._since

    def batch_started(self) -> None:
        """Note that a batch has come; called before anything else is done with it."""
        with self._lock:
            self._batches += 1
            self._since = None

    def probe(self, query: StreamingQuery) -> None:
        """Ask Spark, unless a question is open; the answer appears in ``since`` and may take until the next trigger."""
        if self._probing is not None and self._probing.is_alive():
            return
        with self._lock:
            batches = self._batches
        self._probing = threading.Thread(target=self._wait, args=(query, self._now(), batches), name="tidemark-stillness", daemon=True)
        self._probing.start()

    def close(self) -> None:
        """Wait for the open question to end; it ends with its query."""
        if self._probing is not None:
            self._probing.join()

    def _wait(self, query: StreamingQuery, asked: int, batches: int) -> None:
        with contextlib.suppress(PySparkException, Py4JError):
            query.processAllAvailable()
            # A query that has ended answers, too.
            if query.isActive:
                with self._lock:
                    if self._batches == batches:
                        self._since = asked

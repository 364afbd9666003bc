"""A driver's metrics: served as soon as their place is free, and no reason to end a job whose place is not."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from tidemark.clock import SYSTEM_CLOCK, Clock
from tidemark.control.metrics.metric_server import MetricServer, StoredJob, listen_address, serve_metrics
from tidemark.control.model.driver_warnings import delete_warning, write_warning
from tidemark.control.model.records import DriverWarning
from tidemark.errors import DefinitionError, SetupError, TidemarkError
from tidemark.state.store.store import JobStore

logger = logging.getLogger("tidemark")

METRICS_VARIABLE: Final = "TIDEMARK_METRICS"
"""Where the driver answers scrapes, such as ``9464``; nowhere by default."""


class DriverMetrics:
    """Answers scrapes of one job once that is possible.

    Args:
        store: the root store.
        job: the job's name.
        attempt: number of the driver's attempt, whose warning says that metrics are not served.
        address: where to listen, as ``metric_server.listen_address`` reads it.
        clock: processing time.
    """

    def __init__(self, store: JobStore, job: str, attempt: int, address: str, *, clock: Clock = SYSTEM_CLOCK) -> None:
        self._store = store
        self._job = job
        self._attempt = attempt
        self._address = address
        self._clock = clock
        self._server: MetricServer | None = None
        self._logged = ""
        self._written = ""

    def ensure_served(self) -> None:
        """Serve, unless that is done; where it cannot be done, say so once. Called every few seconds while the job runs.

        Raises:
            TidemarkError: the store does not take the warning; the next call writes it.
        """
        if self._server is None:
            try:
                host, port = listen_address(self._address)
                self._server = serve_metrics(StoredJob(self._store, self._job, clock=self._clock), port, host=host)
            except (SetupError, DefinitionError) as error:
                self._warn(f"it runs without metrics: {error}")
                return
            logger.info("metrics at %s", self._server.url)
        if self._written:
            delete_warning(self._store, self._job, self._attempt)
            self._written = ""

    def close(self) -> None:
        """Answer no more."""
        if self._server is not None:
            self._server.close()
            self._server = None

    def _warn(self, text: str) -> None:
        if text != self._logged:
            logger.warning("%s", text)
            self._logged = text
        if text != self._written:
            write_warning(self._store, self._job, DriverWarning(self._attempt, self._clock.now_ms(), text))
            self._written = text


@contextmanager
def driver_metrics(store: JobStore, job: str, attempt: int) -> Iterator[tuple[Callable[[], None], ...]]:
    """Serve a driver's metrics where the environment wants them; yields what is to be called every few seconds."""
    address = os.environ.get(METRICS_VARIABLE)
    if not address:
        yield ()
        return
    metrics = DriverMetrics(store, job, attempt, address)
    try:
        try:
            metrics.ensure_served()
        except TidemarkError as error:
            logger.warning("%s", error)
        yield (metrics.ensure_served,)
    finally:
        metrics.close()

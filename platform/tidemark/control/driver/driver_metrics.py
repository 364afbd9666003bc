"""A driver's metrics endpoint: served as soon as its port is free; a port in use does not end the job."""

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
"""Address of the driver's Prometheus endpoint, such as ``9464``; none by default."""


class DriverMetrics:
    """Serves one job's metrics as soon as the address is free.

    Args:
        store: the root store.
        job: the job's name.
        attempt: number of the driver's attempt, to which a warning is written while metrics are not served.
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
        """Start serving unless it already does; if that fails, warn once. Called every few seconds while the job runs.

        Raises:
            TidemarkError: the warning cannot be written to the store; the next call retries.
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
        """Stop serving."""
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
    """Serve a driver's metrics if ``TIDEMARK_METRICS`` is set; yields functions to call every few seconds in the block."""
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

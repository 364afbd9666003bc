"""Serves metrics to Prometheus over HTTP: of a whole job store by the supervisor, of one job by its driver."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol
from wsgiref.simple_server import WSGIServer

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from tidemark.clock import SYSTEM_CLOCK, Clock
from tidemark.control.metrics.metric_registry import MetricSnapshot, Series, series_of
from tidemark.control.observed.observe import observe
from tidemark.control.view.view_builder import view_of
from tidemark.errors import DefinitionError, SetupError, TidemarkError
from tidemark.state.store.store import JobStore

LOOPBACK = "127.0.0.1"
_MIN_AGE_SECONDS = 1.0
_LOG = logging.getLogger("tidemark.metrics")


class SnapshotSource(Protocol):
    """Provides metric snapshots."""

    def read(self) -> MetricSnapshot:
        """Return the current snapshot.

        Raises:
            TidemarkError: it cannot be read now.
        """
        ...


class StoredJob:
    """Snapshots of one job, read from the store on request, at most once a second.

    Args:
        root: the root store.
        job: the job's name.
        clock: processing time.
    """

    def __init__(self, root: JobStore, job: str, *, clock: Clock = SYSTEM_CLOCK) -> None:
        self._root = root
        self._job = job
        self._clock = clock
        self._lock = threading.Lock()
        self._known: tuple[float, MetricSnapshot] | None = None

    def read(self) -> MetricSnapshot:
        """Return a snapshot of the job from its files.

        Raises:
            StoreError: the store cannot be reached.
            CorruptStoreError: a file is damaged.
        """
        with self._lock:
            now = self._clock.monotonic()
            if self._known is None or now - self._known[0] >= _MIN_AGE_SECONDS:
                view = view_of(observe(self._root, self._job, {}), self._clock.now_ms())
                self._known = now, MetricSnapshot((view,))
            return self._known[1]


class TidemarkCollector(Collector):
    """Provides metrics to Prometheus's client, and whether they could be read (``tidemark_scrape_success``)."""

    def __init__(self, source: SnapshotSource) -> None:
        self._source = source

    def collect(self) -> Iterator[Metric]:
        """Yield all families; called at each scrape. Metrics that cannot be read are left out, so that their series end."""
        read = GaugeMetricFamily("tidemark_scrape_success", "1 if the metrics could be read.")
        try:
            found = list(series_of(self._source.read()))
        except TidemarkError as error:
            _LOG.warning("the metrics cannot be read: %s", error)
            read.add_metric((), 0)
            yield read
            return
        read.add_metric((), 1)
        yield read
        for series in found:
            yield _family(series)

    def describe(self) -> tuple[Metric, ...]:
        """Return nothing, so that registering the collector does not read the store."""
        return ()


@dataclass(frozen=True)
class MetricServer:
    """A running metrics server at ``url``."""

    url: str
    close: Callable[[], None]


def serve_metrics(source: SnapshotSource, port: int, *, host: str = LOOPBACK) -> MetricServer:
    """Serve metrics from a separate thread, until closed.

    The endpoint has no authentication and names jobs, sources and splits, so it is on loopback by default.

    Args:
        source: provides the metrics.
        port: the port; 0 takes a free one.
        host: the address to listen on.

    Raises:
        SetupError: the port is taken, or the address is not this machine's.
    """
    registry = CollectorRegistry(auto_describe=False)
    registry.register(TidemarkCollector(source))
    try:
        server, thread = start_http_server(port, addr=host, registry=registry)
    except (OSError, OverflowError) as error:
        raise SetupError(
            f"metrics cannot be served on {host}:{port}: {error}",
            fix="use another port (of a supervisor `--metrics PORT`, of a driver $TIDEMARK_METRICS), or stop the process that uses it",
        ) from error
    return MetricServer(f"http://{host}:{server.server_port}/metrics", lambda: _close(server, thread))


def listen_address(text: str) -> tuple[str, int]:
    """Return host and port of ``"9464"`` or ``"0.0.0.0:9464"``; without a host loopback.

    Raises:
        DefinitionError: it has neither form.

    >>> listen_address("9464")
    ('127.0.0.1', 9464)
    """
    host, _, port = text.rpartition(":")
    if not port.isdecimal() or int(port) > 65_535:
        raise DefinitionError(f"{text!r} is not a valid address", fix="set a port, or host:port, such as 9464 or 0.0.0.0:9464")
    return host.strip("[]") or LOOPBACK, int(port)


def _family(series: Series) -> Metric:
    info, numbers = series
    family = (CounterMetricFamily if info.kind == "counter" else GaugeMetricFamily)(info.family, info.text, labels=info.labels)
    for labels, value in numbers:
        family.add_metric(labels, value)
    return family


def _close(server: WSGIServer, thread: threading.Thread) -> None:
    server.shutdown()
    server.server_close()
    thread.join()

"""The metrics to export: the newest views, and the supervisor's own metrics. Thread-safe."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from tidemark.control.alerts.delivery.delivery_queue import ReceiverCounts
from tidemark.control.alerts.engine.alert_evaluator import WatchReport
from tidemark.control.metrics.metric_catalog import JOB_METRICS
from tidemark.control.metrics.metric_types import JobMetric, MetricInfo, MetricKind
from tidemark.control.metrics.resource_metrics import RESOURCE_METRICS
from tidemark.control.model.view import JobView

Series = tuple[MetricInfo, Sequence[tuple[tuple[str, ...], float]]]
"""A metric, and its numbers by label values."""


@dataclass(frozen=True)
class MetricSnapshot:
    """A snapshot: ``views`` of jobs; for a supervisor, when its last pass ended (milliseconds), its duration, and its alerts."""

    views: tuple[JobView, ...] = ()
    passed_at: int | None = None
    pass_seconds: float | None = None
    alerts: WatchReport | None = None
    counts: Mapping[str, ReceiverCounts] = field(default_factory=dict)


@dataclass(frozen=True)
class SupervisorMetric:
    """A metric of a supervisor, and how it is read from a snapshot."""

    info: MetricInfo
    read: Callable[[MetricSnapshot], Sequence[tuple[tuple[str, ...], float]]]


class MetricRegistry:
    """Holds the newest snapshot; each pass publishes one, each scrape reads it, without reading the store."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._snapshot = MetricSnapshot()

    def publish(self, snapshot: MetricSnapshot) -> None:
        """Replace the snapshot."""
        with self._lock:
            self._snapshot = snapshot

    def read(self) -> MetricSnapshot:
        """Return the newest snapshot."""
        with self._lock:
            return self._snapshot


def series_of(snapshot: MetricSnapshot) -> Iterator[Series]:
    """Yield every metric that has numbers, with all of them."""
    for info in ALL_METRICS:
        numbers = numbers_of(info, snapshot)
        if numbers:
            yield info, numbers


def numbers_of(info: MetricInfo, snapshot: MetricSnapshot) -> Sequence[tuple[tuple[str, ...], float]]:
    """Return the numbers of one metric."""
    return _READERS[info](snapshot)


def _info(stem: str, unit: str, text: str, *labels: str, kind: MetricKind = "gauge") -> MetricInfo:
    return MetricInfo(stem, unit, kind, labels, text, "Supervisor")


def _number(value: float | None) -> Sequence[tuple[tuple[str, ...], float]]:
    return () if value is None else (((), value),)


def _firing(snapshot: MetricSnapshot) -> Sequence[tuple[tuple[str, ...], float]]:
    if snapshot.alerts is None:
        return ()
    counts = Counter((job, item.rule, item.severity) for job, items in snapshot.alerts.firing.items() for item in items)
    return [(labels, count) for labels, count in sorted(counts.items())]


SUPERVISOR_METRICS: Final[tuple[SupervisorMetric, ...]] = (
    SupervisorMetric(
        _info("supervisor_jobs", "", "Jobs in the store."),
        lambda snapshot: _number(None if snapshot.passed_at is None else len(snapshot.views)),
    ),
    SupervisorMetric(
        _info("supervisor_pass_timestamp", "seconds", "When the last pass over the jobs ended."),
        lambda snapshot: _number(None if snapshot.passed_at is None else snapshot.passed_at / 1000),
    ),
    SupervisorMetric(
        _info("supervisor_pass_duration", "seconds", "How long the last pass took."), lambda snapshot: _number(snapshot.pass_seconds)
    ),
    SupervisorMetric(
        _info("supervisor_tells", "", "1 if it is the one of several supervisors that sends alerts."),
        lambda snapshot: _number(None if snapshot.alerts is None else float(snapshot.alerts.is_leader)),
    ),
    SupervisorMetric(_info("alerts_firing", "", "Firing alerts, by rule and severity.", "job", "rule", "severity"), _firing),
    SupervisorMetric(
        _info("alerts_waiting", "", "Messages that a receiver has not accepted yet.", "receiver"),
        lambda snapshot: () if snapshot.alerts is None else [((name,), count) for name, count in sorted(snapshot.alerts.pending.items())],
    ),
    SupervisorMetric(
        _info("alert_messages", "", "Messages that a receiver accepted.", "receiver", kind="counter"),
        lambda snapshot: [((name,), counts.sent) for name, counts in sorted(snapshot.counts.items())],
    ),
    SupervisorMetric(
        _info("alert_failures", "", "Failed attempts to send.", "receiver", kind="counter"),
        lambda snapshot: [((name,), counts.failed) for name, counts in sorted(snapshot.counts.items())],
    ),
)


def _of_jobs(metric: JobMetric) -> Callable[[MetricSnapshot], Sequence[tuple[tuple[str, ...], float]]]:
    return lambda snapshot: [
        ((view.job, *labels), float(value))
        for view in snapshot.views
        # Nothing else is known of a damaged job: its counters would drop to 0, and rise again once it is readable.
        if view.state != "damaged" or metric.covers_damaged
        for labels, value in metric.read(view)
    ]


_READERS: Final[Mapping[MetricInfo, Callable[[MetricSnapshot], Sequence[tuple[tuple[str, ...], float]]]]] = {
    **{metric.info: _of_jobs(metric) for metric in (*JOB_METRICS, *RESOURCE_METRICS)},
    **{metric.info: metric.read for metric in SUPERVISOR_METRICS},
}
ALL_METRICS: Final[tuple[MetricInfo, ...]] = tuple(_READERS)

"""Publishes a supervisor's passes as metrics, and sends alerts.

Alerts have a separate thread, so that an unresponsive receiver never delays the start of a driver.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from tidemark.clock import SYSTEM_CLOCK, Clock
from tidemark.control.alerts.delivery.alert_config import AlertConfig
from tidemark.control.alerts.engine.alert_evaluator import AlertWatch, WatchReport
from tidemark.control.metrics.metric_registry import MetricRegistry, MetricSnapshot
from tidemark.control.model.view import JobView
from tidemark.control.observed.observe import Observation
from tidemark.control.view.view_builder import view_of, views_of
from tidemark.errors import TidemarkError
from tidemark.state.store.store import JobStore

_LOG = logging.getLogger("tidemark.alerts")


@dataclass(frozen=True)
class _PassSnapshot:
    """The views and errors of a pass, until alerts are evaluated."""

    views: tuple[JobView, ...]
    unreadable: Mapping[str, TidemarkError]


class AlertReporter:
    """Receives the result of each pass of a supervisor. A context manager: alerts are evaluated from entry to exit.

    Args:
        root: the root store.
        config: rules and receivers.
        registry: where metrics are published.
        holder: a unique name of this process.
        clock: processing time.
    """

    def __init__(self, root: JobStore, config: AlertConfig, registry: MetricRegistry, *, holder: str, clock: Clock = SYSTEM_CLOCK) -> None:
        self._watch = AlertWatch(root, settings=config.settings, receivers=config.receivers, holder=holder, clock=clock)
        self._registry = registry
        self._clock = clock
        self._changed = threading.Condition()
        self._next: _PassSnapshot | None = None
        self._ended = False
        self._last_report: WatchReport | None = None
        self._thread = threading.Thread(target=self._run, name="tidemark-alerts", daemon=True)

    def __enter__(self) -> Self:
        """Start the alert thread."""
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Evaluate the last pass, and release the lease so that another supervisor can continue at once."""
        with self._changed:
            self._ended = True
            self._changed.notify()
        self._thread.join()

    def submit(self, observations: Sequence[Observation], unreadable: Mapping[str, TidemarkError], *, seconds: float) -> None:
        """Submit a pass; returns at once. If passes are faster than receivers, only the newest is evaluated.

        Args:
            observations: of all supervised jobs.
            unreadable: errors of jobs whose files cannot be read; the observation of a job takes precedence.
            seconds: duration of the pass.
        """
        now = self._clock.now_ms()
        views = tuple(view_of(observation, now) for observation in observations)
        self._registry.publish(
            MetricSnapshot(
                views_of(observations, unreadable, now),
                passed_at=now,
                pass_seconds=seconds,
                alerts=self._last_report,
                counts=self._watch.counts,
            )
        )
        observed = {view.job for view in views}
        with self._changed:
            self._next = _PassSnapshot(views, {job: error for job, error in unreadable.items() if job not in observed})
            self._changed.notify()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._next is not None or self._ended)
                seen, self._next = self._next, None
            if seen is None:
                break
            try:
                self._last_report = self._watch.evaluate(seen.views, unreadable=seen.unreadable)
            except TidemarkError as error:
                _LOG.warning("alerts wait for the next pass: %s", error)
            except Exception:  # noqa: BLE001 - see below
                # A failure of alerts must not end supervision.
                _LOG.exception("alerts wait for the next pass")
        try:
            self._watch.close()
        except TidemarkError as error:
            _LOG.warning("the lease of the alerts was not released and expires: %s", error)

"""A sensor that alerts when a submitted job is unhealthy: each tick evaluates the rules of ``tidemark supervise --alerts``."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from threading import Lock

import dagster as dg

from tidemark.assets.definitions.broken_code import code_evaluations
from tidemark.assets.definitions.job_health import UNKNOWN, HealthVerdict, health_verdict, unreadable_verdict
from tidemark.assets.definitions.reconcile_sensors import ReconcileSensor, find_reconcile_sensor
from tidemark.assets.definitions.start_operations import start_operation
from tidemark.assets.values.store_location import store_location
from tidemark.clock import SYSTEM_CLOCK, Clock
from tidemark.control import (
    DEFAULT_RULES,
    RESTARTS_MS,
    UNHEALTHY,
    Alert,
    AlertSettings,
    AlertWatch,
    Grouping,
    JobView,
    Launcher,
    Observer,
    Receiver,
    RuleName,
    RuleSettings,
    WatchReport,
    current_user,
    job_names,
    launchers_here,
    view_of,
)
from tidemark.errors import AlertError, StoreError, TidemarkError
from tidemark.resources.alerts import AlertResource
from tidemark.sensors.health.dev_command import DevCommand
from tidemark.sensors.health.health_report import health_evaluations
from tidemark.sensors.store_sensor import open_root, store_sensor
from tidemark.state import JobStore

HEALTH_RULES: tuple[RuleName, ...] = ("health", "restarts", "check", "savepoint", "memory", "gc")
"""The sensor's default rules. Lag and late rows have separate sensors, which know a job's definition."""

_NAMED = 20
_PATIENCE_S = 20.0
"""How long a tick waits for an earlier one that still sends alerts."""


def build_job_health_sensor(
    store: str | dg.EnvVar,
    *,
    jobs: Iterable[str] | None = None,
    name: str = "tidemark_job_health",
    rules: Collection[RuleName] = HEALTH_RULES,
    broken: Mapping[str, str] | None = None,
    alert_key: str | None = "alerts",
    every: str | timedelta = "30 seconds",
    launchers: Callable[[], Mapping[str, Launcher]] = launchers_here,
    default_status: dg.DefaultSensorStatus = dg.DefaultSensorStatus.RUNNING,
    clock: Clock = SYSTEM_CLOCK,
) -> dg.SensorDefinition:
    """Return a sensor that shows jobs' states, and alerts when one fails, restarts repeatedly, hangs or sends no heartbeat.

    It also alerts on failed checks that ``build_check_sensor`` passed on, and on savepoints that are too old. Alerts are stored in the job
    store: one is sent when it fires and when it resolves, retried until its receiver has accepted it, and suppressed by silences.
    Use either a supervisor (``--alerts``) or this sensor for alerts of a job: of those that watch it the holder of its lease sends new
    alerts to its own receivers, and alerts pending for the other's receivers stay until that one holds the lease.

    The health of the code location's jobs is reported as their check ``job_runs``, so that the assets of an unhealthy job turn red.

    Args:
        store: folder or bucket of the job stores.
        jobs: names of the jobs; all of the store by default.
        name: the sensor's name.
        rules: the rules that it evaluates.
        broken: jobs whose code cannot be loaded, with the error, shown at each tick.
        alert_key: key of the resource that alerts go through; None sends none.
        every: time between ticks.
        launchers: returns launchers that can probe drivers, by name; called at the first tick.
        default_status: whether the sensor runs as soon as it is deployed.
        clock: processing time.

    Raises:
        DurationError: ``every`` cannot be read.
    """
    names = tuple(jobs) if jobs is not None else None
    # Found where definitions load: the first tick may come after the end of the `dagster dev` that started this process.
    dev = DevCommand()
    known: list[_HealthState] = []

    def evaluate(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        if not known:
            known.append(_HealthState(open_root(store), launchers(), names, rules, dev, clock=clock))
        views, errors = known[0].read_views()
        for job, error in errors.items():
            context.log.warning("%s cannot be read: %s", job, error)
        parts = [_summary(views, errors)]
        if alert_key is not None:
            receiver: AlertResource = getattr(context.resources, alert_key)
            parts += known[0].send_alerts(receiver, views, errors)
        parts += [f"the code of {code} cannot be loaded: {error}" for code, error in (broken or {}).items()]
        sensor = partial(_reconcile_sensor, context, store)
        place, repository = store_location(store), context.repository_def
        events = health_evaluations(
            context, lambda job: _verdict(job, views, errors, names, store=place, sensor=sensor, repository=repository)
        )
        return dg.SensorResult(skip_reason="; ".join(parts), asset_events=[*events, *code_evaluations(context.instance, broken or {})])

    return store_sensor(
        evaluate,
        name=name,
        description="Alerts when a streaming job fails, restarts repeatedly, hangs, or sends no heartbeat.",
        every=every,
        default_status=default_status,
        resource_keys={alert_key} if alert_key is not None else (),
    )


@dataclass
class _ResourceDelivery:
    """Delivers through the current tick's resource, of which each tick has a new one; ``sent`` has the titles of its alerts."""

    resource: AlertResource | None = None
    sent: list[str] = field(default_factory=list)

    def send(self, alert: Alert) -> None:
        if self.resource is None:
            raise AlertError("no tick of the sensor is running", fix="the next tick sends it", job=alert.job)
        self.resource.send(alert)
        self.sent.append(alert.title)


class _HealthState:
    """The state kept between ticks: immutable records of jobs, and the lease of the alerts.

    Dagster gives up on a tick after a minute, and begins the next one while the first still runs: alerts are evaluated by one at a time.
    """

    def __init__(
        self,
        root: JobStore,
        launchers: Mapping[str, Launcher],
        names: tuple[str, ...] | None,
        rules: Collection[RuleName],
        dev: DevCommand,
        *,
        clock: Clock,
    ) -> None:
        self._root = root
        self._names = names
        self._clock = clock
        self._lock = Lock()
        self._dev = dev
        self._observer = Observer(root, launchers)
        self._delivery = _ResourceDelivery()
        self._watch = AlertWatch(
            root,
            settings=_settings(rules),
            receivers={"dagster": Receiver(self._delivery)},
            holder=f"{current_user()}/{secrets.token_hex(4)}",
            jobs=names,
            clock=clock,
        )

    def read_views(self) -> tuple[list[JobView], dict[str, TidemarkError]]:
        """Return the views of jobs that were submitted or have run, and the errors of those that cannot be read."""
        views: list[JobView] = []
        errors: dict[str, TidemarkError] = {}
        for name in job_names(self._root) if self._names is None else self._names:
            try:
                seen = self._observer.observe(name)
            except TidemarkError as error:
                errors[name] = error
                continue
            if seen.generation is not None or seen.driver is not None:
                views.append(view_of(seen, self._clock.now_ms()))
        if errors and not views and all(isinstance(error, StoreError) for error in errors.values()):
            raise next(iter(errors.values()))
        return views, errors

    def send_alerts(self, receiver: AlertResource, views: list[JobView], errors: Mapping[str, TidemarkError]) -> list[str]:
        """Evaluate the rules, send alerts, and return in words what was sent and what waits.

        The code server of a `dagster dev` that was killed sends nothing, and leaves the alerts to the next one at once.
        """
        if not self._lock.acquire(timeout=_PATIENCE_S):
            return ["alerts wait: an earlier tick is still sending some"]
        try:
            if self._dev.has_ended:
                self._watch.close()
                return ["alerts are left to others: the dagster dev that started this process has ended"]
            self._delivery.resource, self._delivery.sent = receiver, []
            try:
                report = self._watch.evaluate(views, unreadable=errors)
            finally:
                self._delivery.resource = None
            return [*(f"sent: {title}" for title in self._delivery.sent), *_pending_text(report)]
        finally:
            self._lock.release()


def _verdict(
    job: str,
    views: list[JobView],
    errors: Mapping[str, TidemarkError],
    names: tuple[str, ...] | None,
    *,
    store: str,
    sensor: Callable[[str], ReconcileSensor | None],
    repository: dg.RepositoryDefinition | None,
) -> HealthVerdict | None:
    """Return the verdict on a job of the code location; None for a transient error, or a job that is not observed."""
    if job in errors:
        return None if errors[job].transient else unreadable_verdict(errors[job])
    view = next((view for view in views if view.job == job), None)
    if view is not None:
        return health_verdict(view, store, partial(sensor, job), operation=start_operation(repository, job))
    return UNKNOWN if names is None or job in names else None


def _reconcile_sensor(context: dg.SensorEvaluationContext, store: str | dg.EnvVar, job: str) -> ReconcileSensor | None:
    repository, origin = context.repository_def, context.code_location_origin
    if repository is None:
        return None
    location = origin.location_name if origin is not None else None
    return find_reconcile_sensor(context.instance, repository, store, job, location=location)


def _settings(rules: Collection[RuleName]) -> AlertSettings:
    """Return the settings of the chosen rules. Ticks are half a minute apart, so changes do not wait to be grouped with the next tick's."""
    chosen = {name: settings if name in rules else RuleSettings(enabled=False) for name, settings in DEFAULT_RULES.items()}
    return AlertSettings(chosen, Grouping(wait_ms=0))


def _summary(views: list[JobView], errors: Mapping[str, TidemarkError]) -> str:
    unwell = [view for view in views if view.health in UNHEALTHY]
    upgrading = [view for view in views if view.lifecycle == "upgrading" and view.health not in UNHEALTHY]
    text = f"{len(views)} jobs, {len(unwell)} unhealthy"
    named = [_job_text(view) for view in (unwell + upgrading)[:_NAMED]] + [
        f"{job} cannot be read: {error}" for job, error in list(errors.items())[:_NAMED]
    ]
    return "; ".join((text, *named))


def _job_text(view: JobView) -> str:
    restarts = view.failures_since(view.at - RESTARTS_MS)
    parts = [f"{view.job} is {view.health} ({view.lifecycle})", view.reason, view.error.message if view.error is not None else ""]
    parts.append(f"failed {restarts} times in 10 minutes" if restarts > 1 else "")
    parts.append(f"last heartbeat {view.heartbeat_age_ms // 1000} s ago" if view.heartbeat_age_ms is not None else "")
    return ", ".join(part for part in parts if part)


def _pending_text(report: WatchReport) -> list[str]:
    if not report.is_leader:
        return ["another process sends the alerts"]
    others, waiting = report.left_to_others, sum(report.pending.values())
    shown = ", ".join(others[:_NAMED]) + (f" and {len(others) - _NAMED} more" if len(others) > _NAMED else "")
    parts = [f"another process sends the alerts of {shown}"] if others else []
    return [*parts, *([f"{waiting} alerts wait for their receiver"] if waiting else [])]

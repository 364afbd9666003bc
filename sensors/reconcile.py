"""A sensor that reconciles jobs with their specs: each tick is one pass of a reconciler."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from types import MappingProxyType

import dagster as dg

from tidemark.assets.definitions.job_health import HealthVerdict, health_verdict, unreadable_verdict
from tidemark.assets.definitions.reconcile_sensors import ReconcileSensor, reconciled_by
from tidemark.assets.definitions.start_operations import start_operation
from tidemark.assets.values.store_location import store_location
from tidemark.clock import SYSTEM_CLOCK, Clock
from tidemark.control import (
    AbandonAttempt,
    Action,
    Autoscaler,
    Kill,
    LaunchAttempt,
    Launcher,
    PruneAttempts,
    Reconciler,
    ReconcileReport,
    RequestStop,
    ScalingDecision,
    WriteStatus,
    launchers_here,
    upgrading_reconciler,
    view_of,
)
from tidemark.errors import CorruptStoreError, FormatError
from tidemark.sensors.health.health_report import health_evaluations
from tidemark.sensors.store_sensor import open_root, store_sensor

PASS_SECONDS = 20.0
"""The time after which a tick reconciles no further job; Dagster's limit for a tick is a minute."""

_NAMED = 20


def build_reconcile_sensor(
    store: str | dg.EnvVar,
    *,
    jobs: Iterable[str] | None = None,
    name: str = "tidemark_reconcile",
    every: str | timedelta = "15 seconds",
    launchers: Callable[[], Mapping[str, Launcher]] = launchers_here,
    default_status: dg.DefaultSensorStatus = dg.DefaultSensorStatus.RUNNING,
    clock: Clock = SYSTEM_CLOCK,
) -> dg.SensorDefinition:
    """Return a sensor that starts, stops and restarts the drivers of jobs, continues upgrades and scales, as ``tidemark supervise`` does.

    Supervisors and sensors may run side by side: leases keep them from acting on the same job. Drivers are separate processes; they keep
    running when Dagster ends. They inherit the environment of the code location.

    It runs as soon as it is deployed: without it no driver that died is restarted. If several deployments load the code location, such as
    a laptop's and production's, set all but one to ``DefaultSensorStatus.STOPPED``, or use separate stores.

    It reports the health of the code location's jobs as their check ``job_runs``.

    Args:
        store: folder or bucket of the job stores.
        jobs: names of the jobs; all of the store by default.
        name: the sensor's name.
        every: time between ticks. A driver that died is seen at the next one.
        launchers: returns launchers of drivers, by name; called at the first tick.
        default_status: whether the sensor runs as soon as it is deployed.
        clock: processing time.

    Raises:
        DurationError: ``every`` cannot be read.
    """
    names = tuple(jobs) if jobs is not None else None
    known: list[tuple[Reconciler, Autoscaler]] = []

    def evaluate(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        if not known:
            # It caches immutable records of jobs, so it is kept between ticks.
            root = open_root(store)
            known.append((upgrading_reconciler(root, launchers(), clock), Autoscaler(root, clock)))
        reconciler, autoscaler = known[0]
        with _stop_after(PASS_SECONDS) as stop:
            report = reconciler.reconcile_all(names, stop=stop)
        scaled = autoscaler.advance(report.observations)
        for job, error in report.errors.items():
            context.log.warning("%s cannot be reconciled: %s", job, error)
        verdicts = _verdicts(report, store_location(store), clock.now_ms(), ReconcileSensor(name, is_on=True), context.repository_def)
        events = health_evaluations(context, verdicts.get)
        return dg.SensorResult(skip_reason=summary(report, scaled, ended=stop.is_set()), asset_events=events)

    return store_sensor(
        evaluate,
        name=name,
        description="Starts, stops and restarts the drivers of streaming jobs according to their specs.",
        every=every,
        default_status=default_status,
        metadata=reconciled_by(store, names),
    )


def _verdicts(
    report: ReconcileReport, store: str, now: int, sensor: ReconcileSensor, repository: dg.RepositoryDefinition | None
) -> dict[str, HealthVerdict]:
    """Return verdicts on the jobs as observed before any action; transient errors give no verdict."""
    verdicts = {
        seen.job: health_verdict(view_of(seen, now), store, lambda: sensor, operation=start_operation(repository, seen.job))
        for seen in report.observations
    }
    damaged = {job: error for job, error in report.errors.items() if isinstance(error, CorruptStoreError | FormatError)}
    return verdicts | {job: unreadable_verdict(error) for job, error in damaged.items()}


def summary(report: ReconcileReport, scaled: Mapping[str, ScalingDecision] = MappingProxyType({}), *, ended: bool = False) -> str:
    """Return the summary of a pass, with the decisions of the autoscaler by job."""
    acted = report.acted
    parts = [f"{len(report.observations)} jobs observed, {len(acted)} acted on"]
    parts += [f"{done.job}: {', '.join((*map(_action_text, done.actions), *done.steps))}" for done in acted[:_NAMED]]
    parts += [f"{job}: autoscaler {made.kind} {made.text}" for job, made in list(scaled.items())[:_NAMED]]
    busy = sum(done.lease_held_elsewhere for done in report.results)
    parts += [f"{busy} are reconciled by other processes"] if busy else []
    parts += [f"{job}: {error}" for job, error in list(report.errors.items())[:_NAMED]]
    parts += ["time limit reached; the next tick observes all jobs again"] if ended else []
    return "; ".join(parts)


def _action_text(action: Action) -> str:
    match action:
        case WriteStatus(status):
            return f"{status.lifecycle}" + (f" ({status.reason})" if status.reason else "")
        case LaunchAttempt(attempt, why):
            return f"started attempt {attempt} ({why})"
        case RequestStop(how):
            return f"asked to stop ({how})"
        case Kill(why):
            return f"killed ({why})"
        case AbandonAttempt(attempt):
            return f"abandoned attempt {attempt}"
        case PruneAttempts():
            return "deleted old attempts"


@contextmanager
def _stop_after(seconds: float) -> Iterator[threading.Event]:
    """Yield an event that is set after the given seconds."""
    event = threading.Event()
    timer = threading.Timer(seconds, event.set)
    timer.daemon = True
    timer.start()
    try:
        yield event
    finally:
        timer.cancel()

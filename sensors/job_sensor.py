"""A sensor on a job's small files: reads the status, decides, alerts, requests runs. Starts no JVM."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING

import dagster as dg

from tidemark.assets.streams.translator import group_of
from tidemark.assets.values.store_location import store_location
from tidemark.control import Alert
from tidemark.durations import to_ms
from tidemark.errors import DefinitionError
from tidemark.graph import Job
from tidemark.resources.alerts import AlertResource
from tidemark.sensors.sensor_cursor import SensorCursor, decode_cursor
from tidemark.state import JobStatus, JobStore, read_status

if TYPE_CHECKING:
    SensorTarget = str | Sequence[str] | dg.AssetSelection | Sequence[dg.AssetsDefinition] | dg.JobDefinition | dg.AssetsDefinition | None


@dataclass(frozen=True)
class PlannedRun:
    """A run to request: ``key`` keeps Dagster from starting it twice; ``partition`` if the target has partitions."""

    key: str
    tags: dict[str, str] = field(default_factory=dict)
    partition: str | None = None


@dataclass(frozen=True)
class Decision:
    """The decision of a tick. It is data, so that deciding needs neither Dagster's daemon nor a receiver of alerts.

    Dagster writes ``events`` before it submits ``runs``.
    """

    summary: str
    cursor: SensorCursor | None = None
    alerts: tuple[Alert, ...] = ()
    runs: tuple[PlannedRun, ...] = ()
    events: tuple[dg.AssetMaterialization, ...] = ()


Decide = Callable[[JobStore, JobStatus, SensorCursor | None, dg.SensorEvaluationContext], Decision]
"""Decides from the root store, the job's status, the last cursor and the tick's context. Called only after a first committed epoch."""


@dataclass(frozen=True)
class SensorOptions:
    """Options of all sensors on jobs.

    Args:
        store: folder or bucket of job stores, also as ``dg.EnvVar``; the job's own by default.
        target: assets or job that the sensor may start; it starts nothing by default.
        alert_key: key of the resource that alerts go through; None sends none.
        every: time between ticks.
        default_status: whether the sensor runs as soon as it is deployed. By default one that only reports does
            (``build_progress_sensor``), and one that alerts or requests runs does not.
    """

    store: str | dg.EnvVar | None = None
    target: SensorTarget = None
    alert_key: str | None = "alerts"
    every: str | timedelta = "1 minute"
    default_status: dg.DefaultSensorStatus | None = None


def job_sensor(job: Job, *, name: str, description: str, options: SensorOptions, decide: Decide) -> dg.SensorDefinition:
    """Return a sensor on a job.

    Alerts are sent before the cursor moves: a receiver that fails fails the tick, and the next one sends again.

    Raises:
        DefinitionError: no store is known.
        DurationError: ``every`` cannot be read.
    """
    store = options.store if options.store is not None else job.store
    if store is None:
        raise DefinitionError(f"sensor {name!r} has no job store", fix="pass store=..., or Job(store=...)", job=job.name)

    def evaluate(context: dg.SensorEvaluationContext, **_: object) -> dg.SensorResult:
        # When called directly, as in unit tests, Dagster also passes the resources by name.
        root = JobStore.open(store_location(store, job.name))
        status = read_status(root, job.name)
        if status is None or status.last is None:
            return dg.SensorResult(skip_reason=f"job {job.name!r} has committed no epoch yet")
        decision = decide(root, status, decode_cursor(context.cursor), context)
        if options.alert_key is not None and decision.alerts:
            receiver: AlertResource = getattr(context.resources, options.alert_key)
            for alert in decision.alerts:
                receiver.send(alert)
        return _result(decision, wanted=options.target is not None)

    return dg.SensorDefinition(
        name=name,
        evaluation_fn=evaluate,
        description=description,
        minimum_interval_seconds=max(1, to_ms(options.every, what="every", minimum=1000) // 1000),
        default_status=options.default_status or dg.DefaultSensorStatus.STOPPED,
        required_resource_keys={options.alert_key} if options.alert_key is not None else set(),
        target=options.target,
    )


def sensor_name(job: Job, what: str, given: str | None) -> str:
    """Return a sensor's name: the given one, or the job's name with a suffix."""
    return given or f"{group_of(job.name)}_{what}"


def _result(decision: Decision, *, wanted: bool) -> dg.SensorResult:
    cursor = decision.cursor.encode() if decision.cursor is not None else None
    if not (wanted and decision.runs):
        return dg.SensorResult(skip_reason=decision.summary, cursor=cursor, asset_events=list(decision.events))
    requests = [dg.RunRequest(run_key=run.key, tags=run.tags, partition_key=run.partition) for run in decision.runs]
    return dg.SensorResult(run_requests=requests, cursor=cursor, asset_events=list(decision.events))

"""A sensor that alerts when a job's watermark falls too far behind, with the source or split that holds it back."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

import dagster as dg

from tidemark.assets.report.lag import LEVELS, LagReference, Level, SourceLag, Thresholds, lag_thresholds, source_lags
from tidemark.clock import SYSTEM_CLOCK, Clock, format_ms
from tidemark.control import Alert
from tidemark.durations import format_duration
from tidemark.graph import Job
from tidemark.sensors.job_sensor import Decision, PlannedRun, SensorOptions, job_sensor, sensor_name
from tidemark.sensors.sensor_cursor import SensorCursor
from tidemark.state import DEFAULT_LEASE_MS, EpochProgress, JobStatus, JobStore, job_folder, read_heartbeat, silent_since


def build_watermark_lag_sensor(
    job: Job,
    *,
    name: str | None = None,
    warn_after: str | timedelta | None = None,
    error_after: str | timedelta | None = None,
    reference: LagReference = "processing_time",
    options: SensorOptions | None = None,
    clock: Clock = SYSTEM_CLOCK,
) -> dg.SensorDefinition:
    """Return a sensor that alerts when a source's watermark is behind, once per change of its level.

    The lag is that of the newest epoch, so an idle job that commits nothing raises no alert. For a job that is running or failed by its
    status and has sent no heartbeat for a lease, the lag counts up to now. With a target in the options the sensor requests a run when a
    lag gets worse.

    Args:
        job: the job.
        name: the sensor's name; ``<job>_watermark_lag`` by default.
        warn_after: lag from which to warn; five times the largest out-of-orderness bound, at least 5 minutes, by default.
        error_after: lag from which it is an error; three times that by default.
        reference: compare with the epoch's processing time, or with the newest event (for historical data).
        options: store, target, alerts, interval, status.
        clock: processing time, for the age of heartbeats.

    Raises:
        DefinitionError: no store is known.
        DurationError: a duration cannot be read, or the error's is less than the warning's.
    """
    limits = lag_thresholds(job, warn_after=warn_after, error_after=error_after)

    def decide(root: JobStore, status: JobStatus, cursor: SensorCursor | None, _: dg.SensorEvaluationContext) -> Decision:
        return decide_lag(job, status, cursor, limits=limits, reference=reference, stall=_stall(root, status, clock.now_ms()))

    return job_sensor(
        job,
        name=sensor_name(job, "watermark_lag", name),
        description=f"Alerts when the watermark of `{job.name}` is {format_duration(limits.warn_ms)} behind or more "
        f"({format_duration(limits.error_ms)}: error).",
        options=options or SensorOptions(),
        decide=decide,
    )


@dataclass(frozen=True)
class Stall:
    """A driver that should be alive and has sent no heartbeat ``since`` then, observed at ``now``; milliseconds."""

    since: int
    now: int


def _stall(root: JobStore, status: JobStatus, now_ms: int) -> Stall | None:
    if status.state not in {"running", "failed"}:
        return None
    beat = read_heartbeat(root.at(job_folder(status.job)))
    since = silent_since(beat, status.heartbeat_at, now_ms=now_ms, lease_ms=DEFAULT_LEASE_MS)
    return None if since is None else Stall(since, now_ms)


def decide_lag(
    job: Job,
    status: JobStatus,
    cursor: SensorCursor | None,
    *,
    limits: Thresholds,
    reference: LagReference = "processing_time",
    stall: Stall | None = None,
) -> Decision:
    """Return the decision of a tick.

    Args:
        job: the job.
        status: its status, with an epoch.
        cursor: the previous tick's cursor; ``said`` has the last reported level of each source.
        limits: the thresholds.
        reference: what the watermark is compared with.
        stall: set if the driver should be alive and sends no heartbeat.
    """
    head = status.last
    if head is None:
        return Decision("no epoch yet", cursor)
    known = dict(cursor.said) if cursor is not None else {}
    # A lag that continues is reported again in another lineage; one that does not is resolved.
    reported = known if cursor is not None and cursor.lineage == head.lineage else {}
    lags = {lag.source: lag for lag in source_lags(head, reference, now_ms=None if stall is None else stall.now)}
    levels: dict[str, Level] = {name: limits.level(lags[name].lag_ms if name in lags else None) for name in head.sources}
    # A source that the job no longer reads has no lag.
    levels.update((name, "ok") for name, level in known.items() if name not in head.sources and level != "ok")
    changed = [name for name in levels if {known.get(name, "ok"), reported.get(name, "ok")} != {levels[name]}]
    note = "" if stall is None else f"; the job is {status.state}, and has sent no heartbeat since {format_ms(stall.since)}"
    if cursor is not None and (cursor.lineage, cursor.epoch) == (head.lineage, head.epoch) and not changed:
        return Decision(f"no epoch after {head.epoch}{note}", cursor)
    alerts = tuple(_alert(job, head, name=name, lag=lags.get(name), level=levels[name], limits=limits, note=note) for name in changed)
    worse = any(_rank(levels[name]) > _rank(reported.get(name, "ok")) for name in head.sources)
    # One stall may get worse and request a run more than once.
    silence = "" if stall is None else f":silent-{stall.since}:{max(levels.values(), key=_rank, default='ok')}"
    key = f"{job.name}:watermark-lag:{head.lineage}:{head.epoch}{silence}"
    return Decision(
        summary=_summary(head, lags, reference) + note,
        cursor=SensorCursor(head.lineage, head.epoch, said={name: levels[name] for name in head.sources}),
        alerts=alerts,
        runs=(PlannedRun(key, {"tidemark/reason": "watermark lag"}),) if worse else (),
    )


def _rank(level: str) -> int:
    return [str(known) for known in LEVELS].index(level) if level in LEVELS else 0


def _summary(head: EpochProgress, lags: dict[str, SourceLag], reference: LagReference) -> str:
    worst = next(iter(lags.values()), None)
    against = "processing time" if reference == "processing_time" else "the newest event"
    return f"epoch {head.epoch}: " + (
        f"{worst.describe()}, against {against}" if worst is not None else "no watermark yet, or the end of input"
    )


def _alert(job: Job, head: EpochProgress, *, name: str, lag: SourceLag | None, level: Level, limits: Thresholds, note: str) -> Alert:
    facts: dict[str, object] = {
        "source": name,
        "lag_ms": lag.lag_ms if lag is not None else None,
        "watermark_ms": lag.watermark if lag is not None else None,
        "held_by": lag.held_by if lag is not None else None,
        "epoch": head.epoch,
        "lineage": head.lineage,
        "warn_after_ms": limits.warn_ms,
        "error_after_ms": limits.error_ms,
    }
    without = "has no watermark that could lag" if name in head.sources else "is no longer read"
    text = lag.describe() if lag is not None else f"source {name!r} {without}"
    if level == "ok":
        return Alert("resolved", f"Watermark of {job.name} / {name} has caught up", f"{text} at epoch {head.epoch}{note}", job.name, facts)
    limit = format_duration(limits.error_ms if level == "error" else limits.warn_ms)
    detail = f"{text} at epoch {head.epoch}; the limit is {limit}{note}"
    return Alert(level, f"Watermark of {job.name} / {name} is behind", detail, job.name, facts)

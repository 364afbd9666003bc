"""A sensor that tells when a job's watermark falls too far behind, and which source or split holds it back."""

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
    """Return a sensor that alerts when a source's watermark is behind, once per change for better or worse.

    The lag is that of the newest epoch, so a job that has nothing to read and commits nothing raises no alarm. One that says that it
    runs, or that has failed, and gives no sign of life for a lease does: its lag counts up to now. With a target in the options the
    sensor asks for a run when a lag gets worse.

    Args:
        job: the job.
        name: the sensor's; ``<job>_watermark_lag`` by default.
        warn_after: lag from which to warn; five times the greatest out-of-orderness bound, at least 5 minutes, by default.
        error_after: lag from which it is an error; three times that by default.
        reference: compare with the epoch's processing time, or with the newest event seen (for data of long ago).
        options: store, target, alerts, interval, status.
        clock: by which a heartbeat is old.

    Raises:
        DefinitionError: no store is known.
        DurationError: a duration cannot be read, or the error comes before the warning.
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
    """A driver that should be alive and is silent ``since`` then; ``now`` is when that was seen. Milliseconds."""

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
    """Return what a tick does.

    Args:
        job: the job.
        status: its status, with an epoch.
        cursor: what the tick before left; ``said`` holds the level of each source that was last told.
        limits: from when on to warn.
        reference: what the watermark is compared with.
        stall: where the driver is silent and should not be.
    """
    head = status.last
    if head is None:
        return Decision("no epoch yet", cursor)
    known = dict(cursor.said) if cursor is not None else {}
    # A lag that goes on is told again in another lineage; one that is gone there is gone.
    told = known if cursor is not None and cursor.lineage == head.lineage else {}
    lags = {lag.source: lag for lag in source_lags(head, reference, now_ms=None if stall is None else stall.now)}
    levels: dict[str, Level] = {name: limits.level(lags[name].lag_ms if name in lags else None) for name in head.sources}
    # A source that the job does not read any more lags no more.
    levels.update((name, "ok") for name, level in known.items() if name not in head.sources and level != "ok")
    changed = [name for name in levels if {known.get(name, "ok"), told.get(name, "ok")} != {levels[name]}]
    note = "" if stall is None else f"; the job is {status.state}, and there is no heartbeat since {format_ms(stall.since)}"
    if cursor is not None and (cursor.lineage, cursor.epoch) == (head.lineage, head.epoch) and not changed:
        return Decision(f"no epoch after {head.epoch}{note}", cursor)
    alerts = tuple(_alert(job, head, name=name, lag=lags.get(name), level=levels[name], limits=limits, note=note) for name in changed)
    worse = any(_rank(levels[name]) > _rank(told.get(name, "ok")) for name in head.sources)
    # One silence may get worse and ask for a run more than once.
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
    without = "has no watermark that could lag" if name in head.sources else "is not read any more"
    text = lag.describe() if lag is not None else f"source {name!r} {without}"
    if level == "ok":
        return Alert("resolved", f"Watermark of {job.name} / {name} has caught up", f"{text} at epoch {head.epoch}{note}", job.name, facts)
    limit = format_duration(limits.error_ms if level == "error" else limits.warn_ms)
    told = f"{text} at epoch {head.epoch}; the limit is {limit}{note}"
    return Alert(level, f"Watermark of {job.name} / {name} is behind", told, job.name, facts)

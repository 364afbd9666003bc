"""Builds the view of a job that commands, metrics and alerts share from an observation. Pure; no file is read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Final

from tidemark.clock import format_ms
from tidemark.control.model.records import ErrorInfo
from tidemark.control.model.sanitizing import safe_label
from tidemark.control.model.spec import describe_request
from tidemark.control.model.upgrade_blocker import UpgradeBlocker
from tidemark.control.model.upgrade_records import UpgradeStep, code_text, step_timeout_ms
from tidemark.control.model.view import (
    UNHEALTHY,
    AutoscalerView,
    Backpressure,
    Health,
    JobView,
    KeyedView,
    RowCounts,
    SourceView,
    SplitView,
    UpgradeView,
)
from tidemark.control.observed.observe import Observation
from tidemark.control.reconcile.effective_status import UNWATCHED_MS, EffectiveStatus, effective_status, error_of, last_heartbeat_at
from tidemark.control.view.advice import advice_for
from tidemark.errors import CorruptStoreError, FormatError, TidemarkError
from tidemark.semantics.watermarks.likely_seconds import seconds_warning
from tidemark.state.log.joblog import DEFAULT_LEASE_MS
from tidemark.state.log.progress import EpochProgress, SourceProgress
from tidemark.state.log.totals import Totals, empty_totals, late_by_operator
from tidemark.state.status.driver_load import Backlog, Load, Recent
from tidemark.state.status.resources import Resources
from tidemark.state.status.status import JobStatus

_EVALUATED_INTERVALS: Final = 5
"""So many intervals of the autoscaler after its last evaluation, that is outdated."""


def view_of(observation: Observation, now: int, *, store: str | None = None) -> JobView:
    """Return the view of a job.

    Args:
        observation: its observation.
        now: processing time, milliseconds.
        store: the root store's URI if the commands in the view's advice need it, else None.
    """
    status = effective_status(observation, now)
    control, driver, beat, spec = observation.control, observation.driver, observation.heartbeat, observation.generation
    last = driver.last if driver is not None else None
    load = driver.load if driver is not None else None
    health = _health(observation, status, now)
    # While an epoch runs, or without a driver, the lag grows although no epoch reports it.
    behind = health in UNHEALTHY or (beat is not None and beat.busy_since is not None)
    totals = driver.totals if driver is not None else empty_totals()
    sources = {name: _source(item, totals["sources"].get(name, {}), now if behind else None) for name, item in _sources(last).items()}
    recent = recent_load(observation, load, now)
    driver_lifecycle = control.lifecycle if control is not None else "created" if spec is not None else status.lifecycle
    active = observation.active_upgrade
    if active is not None:
        reason = "; ".join(filter(None, (str(active), status.reason)))
        status = replace(status, state="upgrading", lifecycle="upgrading", since=active.upgrade.at, reason=reason)
    elif status.lifecycle == "suspended" and health == "starting" and spec is not None:
        # A start was requested and will be acted on: the state before is outdated.
        status = replace(status, state="starting", lifecycle="starting", since=spec.at, reason=describe_request(spec))
    advice = advice_for(observation.job, status, health, submitted=spec is not None, store=store)
    if observation.damage is not None:
        # Reconcilers still act on it; only its driver's status is unknown.
        health, status = "damaged", replace(status, state="damaged", reason="its status cannot be read", error=observation.damage)
    return JobView(
        job=observation.job,
        at=now,
        lifecycle=status.lifecycle,
        health=health,
        since=status.since,
        spec=spec.spec if spec is not None else None,
        generation=spec.generation if spec is not None else 0,
        generation_seen=control.generation if control is not None else 0,
        attempt=observation.attempt.number if observation.attempt is not None else 0,
        process=observation.handle,
        process_state=observation.process,
        heartbeat_at=last_heartbeat_at(observation),
        lineage=last.lineage if last is not None else "",
        epoch=last.epoch if last is not None else None,
        epoch_at=last.processing_time if last is not None else None,
        epoch_ms=last.duration_ms if last is not None else None,
        started_at=driver.started_at if driver is not None else None,
        watermark=last.watermark if last is not None else None,
        lag_ms=max((source.lag_ms for source in sources.values() if source.lag_ms is not None), default=None),
        sources=sources,
        totals=totals,
        rows=_rows(totals),
        rows_per_second=recent.rows_in if recent is not None else None,
        rows_out_per_second=recent.rows_out if recent is not None else None,
        late_share=_late_share(last),
        judges_lateness=last.judges_of_lateness if last is not None else (),
        state_rows=sum(item.state_rows for item in last.operators.values()) if last is not None else 0,
        state_bytes=sum(item.state_bytes for item in last.operators.values()) if last is not None else 0,
        state_files=sum(item.state_files for item in last.operators.values()) if last is not None else 0,
        keyed=_keyed(last),
        pressure=_pressure(observation, load, recent),
        failures=control.failures if control is not None else (),
        restarts_done=control.restarts_done if control is not None else 0,
        next_start_at=control.next_start_at if control is not None else None,
        reason=status.reason,
        error=status.error or (error_of(driver) if driver is not None else None),
        start=observation.start,
        warning="; ".join(_warnings(observation, now)),
        end_of_input=last.end_of_input if last is not None else False,
        driver_lifecycle=driver_lifecycle,
        upgrade=_upgrade(observation.upgrade, observation.blocker) if observation.upgrade is not None else None,
        state=status.state,
        advice=advice,
        standby=observation.standby,
        autoscaler=_autoscaler(observation, recent, now),
        resources=_resources(observation, now),
    )


def views_of(observations: Iterable[Observation], unreadable: Mapping[str, TidemarkError], now: int) -> tuple[JobView, ...]:
    """Return the views of the jobs that a pass observed, and of damaged jobs with an unreadable file.

    Args:
        observations: observations of jobs.
        unreadable: errors by job; the observation of a job takes precedence, and errors that are not of an unreadable file are ignored.
        now: processing time, milliseconds.
    """
    views = [view_of(observation, now) for observation in observations]
    observed = {view.job for view in views}
    damaged = {
        job: error for job, error in unreadable.items() if job not in observed and isinstance(error, CorruptStoreError | FormatError)
    }
    return (*views, *(damaged_view(job, error, now) for job, error in damaged.items()))


def damaged_view(job: str, error: TidemarkError, now: int) -> JobView:
    """Return the view of a job with an unreadable file, with the error that names it."""
    info = ErrorInfo(error.code, str(error), error.transient)
    return JobView(job, now, "created", "damaged", error=info, state="damaged", reason="one of its files cannot be read")


def _warnings(observation: Observation, now: int) -> Iterator[str]:
    if observation.warning is not None and observation.process != "gone":
        yield observation.warning.text
    if observation.driver is not None:
        yield from (f"{item.work} is deferred since {format_ms(item.since)}: {item.why}" for item in observation.driver.put_off)
        sources = _sources(observation.driver.last).items()
        yield from filter(None, (seconds_warning(safe_label(name), item.watermark, now) for name, item in sources))


def _upgrade(step: UpgradeStep, blocker: UpgradeBlocker | None) -> UpgradeView:
    upgrade = step.upgrade
    code = code_text(upgrade.before if step.heading == "rolled-back" else upgrade.after)
    against = (blocker.text, blocker.since) if blocker is not None else ("", None)
    return UpgradeView(upgrade.identity, step.step, step.at, step.heading, code, step.ended, str(step), *against)


def _autoscaler(observation: Observation, recent: Recent | None, now: int) -> AutoscalerView | None:
    spec, record = observation.generation, observation.autoscaler
    if spec is None or spec.spec.autoscaler.mode == "off":
        return None
    settings = spec.spec.autoscaler
    if record is None:
        return AutoscalerView(settings.mode)
    found = record.evaluation
    current = recent is not None and found is not None and now - found.at <= _EVALUATED_INTERVALS * settings.sample_interval_ms
    return AutoscalerView(settings.mode, found if current else None, record.decisions[-1] if record.decisions else None, record.totals)


def _health(observation: Observation, status: EffectiveStatus, now: int) -> Health:
    """Return the health of the job's driver; during an upgrade a stopped driver counts as starting."""
    found = _health_of_driver(observation, status, now)
    step, spec = observation.active_upgrade, observation.generation
    if step is None or spec is None or found in UNHEALTHY:
        return found
    if now - step.at >= step_timeout_ms(step, spec.spec) + UNWATCHED_MS:
        return "unwatched"
    return "starting" if found == "stopped" else found


def _health_of_driver(observation: Observation, status: EffectiveStatus, now: int) -> Health:
    control, spec = observation.control, observation.generation
    if spec is None:
        return _health_unsubmitted(status)
    if status.unrecorded and status.state in {"dead", "starting"}:
        return "starting" if status.state == "starting" else _health_dead(observation, now)
    match status.lifecycle:
        case "failed":
            return "failed"
        case "failing":
            overdue = control is not None and control.next_start_at is not None and now - control.next_start_at >= UNWATCHED_MS
            return "unwatched" if overdue else "failing"
        case "finished":
            return "stopped"
        case "created" | "suspended":
            if spec.spec.wanted == "suspended":
                return "stopped"
            return "unwatched" if now - spec.at >= UNWATCHED_MS else "starting"
        case _:
            return _health_active(observation, now)


def _health_active(observation: Observation, now: int) -> Health:
    """Return the health of a job whose driver is alive as far as is known."""
    control, spec, beat = observation.control, observation.generation, observation.current_heartbeat
    if control is not None and control.suspicion is not None:
        return "hung"
    if beat is None:
        allowed = spec.spec.start_timeout_ms if spec is not None else UNWATCHED_MS
        return "unwatched" if now - _last_heartbeat_of_attempt(observation) >= allowed + UNWATCHED_MS else "starting"
    return "silent" if abs(now - beat.at) >= DEFAULT_LEASE_MS else "ok"


def _health_dead(observation: Observation, now: int) -> Health:
    return "unwatched" if now - _last_heartbeat_of_attempt(observation) >= UNWATCHED_MS else "silent"


def _last_heartbeat_of_attempt(observation: Observation) -> int:
    beat = observation.current_heartbeat
    return beat.at if beat is not None else (observation.attempt.at if observation.attempt is not None else 0)


def _health_unsubmitted(status: EffectiveStatus) -> Health:
    if status.state == "dead":
        return "silent"
    return "failed" if status.state == "failed" else "ok" if status.state == "running" else "stopped"


def _sources(last: EpochProgress | None) -> Mapping[str, SourceProgress]:
    return last.sources if last is not None else {}


def _source(item: SourceProgress, totals: Mapping[str, int], now: int | None) -> SourceView:
    """Return the view of a source; with ``now`` its lag is up to now."""
    return SourceView(
        watermark=item.watermark,
        lag_ms=lag_until(item.watermark, item.lag_ms, now),
        held_by=item.held_by,
        rows_read=totals.get("read", 0),
        rows_malformed=totals.get("malformed", 0),
        splits={
            name: SplitView(split.watermark, lag_until(split.watermark, _split_lag(item, split.watermark), now), split.idle)
            for name, split in item.splits.items()
        },
        bound_ms=_bound(item),
    )


def _bound(item: SourceProgress) -> int | None:
    """Return the bound on out-of-orderness derived from its splits; the lowest, since an idle split's watermark may be anywhere."""
    known = [
        split.max_event_time - split.watermark - 1
        for split in item.splits.values()
        if split.max_event_time is not None and split.watermark is not None
    ]
    return max(min(known), 0) if known else None


def lag_until(watermark: int | None, then: int | None, now: int | None) -> int | None:
    """Return a lag: as it was when the epoch ended, with ``now`` at least up to now; None where there was none then, or no watermark."""
    # Without a lag the input has ended, or no row had an event time yet: then nothing lags up to now either.
    return then if watermark is None or then is None or now is None else max(then, now - watermark)


def _split_lag(item: SourceProgress, watermark: int | None) -> int | None:
    return None if item.lag_ms is None or item.watermark is None or watermark is None else item.lag_ms + item.watermark - watermark


def _rows(totals: Totals) -> RowCounts:
    return RowCounts(
        read=_sum(totals["sources"].values(), "read"),
        out=sum(totals["outputs"].values()),
        late=sum(late_by_operator(totals).values()),
        malformed=_sum(totals["sources"].values(), "malformed"),
        rejected=_sum(totals["filters"].values(), "rejected"),
    )


def _sum(counts: Iterable[Mapping[str, int]], name: str) -> int:
    return sum(count.get(name, 0) for count in counts)


def _resources(observation: Observation, now: int) -> Resources | None:
    """Return a driver's resources; None for one that has ended, or no longer reports."""
    driver = observation.driver
    return driver.resources if driver is not None and driver.state == "running" and _reports(observation, now) else None


def _reports(observation: Observation, now: int) -> bool:
    """Return whether the driver gives signs of life."""
    beat = observation.heartbeat
    return beat is not None and abs(now - beat.at) < DEFAULT_LEASE_MS


def recent_load(observation: Observation, load: Load | None, now: int) -> Recent | None:
    """Return busy share and rates up to now; None for a driver that no longer reports.

    Args:
        observation: of the job.
        load: its load, or the same of some of its rows.
        now: processing time, milliseconds.
    """
    driver, beat = observation.driver, observation.heartbeat
    if load is None or driver is None or beat is None or not _reports(observation, now):
        return None
    runs = now - beat.busy_since if beat.busy_since is not None else None
    return load.recent(since_ms=now - driver.heartbeat_at, epoch_ms=runs)


def _keyed(last: EpochProgress | None) -> dict[str, KeyedView]:
    operators = {} if last is None else last.operators
    return {
        uid: KeyedView(item.keys, item.timers, item.timers_fired, item.state_expired)
        for uid, item in operators.items()
        if item.is_process_function
    }


def _late_share(last: EpochProgress | None) -> float | None:
    return last.rows_late / last.rows_judged if last is not None and last.rows_judged else None


def _pressure(observation: Observation, load: Load | None, recent: Recent | None) -> Backpressure:
    beat = observation.heartbeat
    waiting = load.waiting if load is not None and recent is not None else {}
    return Backpressure(
        busy_since=beat.busy_since if beat is not None else None,
        busy_share=recent.busy_share if recent is not None else None,
        looked_at=beat.looked_at if beat is not None else None,
        waiting_files=_known_sum(item.files for item in waiting.values()),
        waiting_bytes=_known_sum(item.bytes for item in waiting.values()),
        waiting_rows=_known_sum(item.rows for item in waiting.values()),
        waiting=waiting,
        catch_up_ms=load.catch_up_ms if load is not None and recent is not None and not _all_is_read(observation.driver, waiting) else None,
        intake=load.intake if load is not None else 1.0,
    )


def _all_is_read(driver: JobStatus | None, waiting: Mapping[str, Backlog]) -> bool:
    """Return whether every source reports its backlog and all are empty: a lag then comes from the input itself."""
    if driver is None or driver.last is None or not driver.last.sources:
        return False
    backlogs = [_known_counts(waiting.get(name, Backlog())) for name in driver.last.sources]
    return all(counts and not any(counts) for counts in backlogs)


def _known_counts(waiting: Backlog) -> list[int]:
    return [count for count in (waiting.files, waiting.bytes, waiting.rows) if count is not None]


def _known_sum(values: Iterable[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None

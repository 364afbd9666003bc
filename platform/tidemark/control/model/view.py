"""A job as commands, metrics and alerts show it: one object, made by ``view_builder.view_of``.

Times are milliseconds since 1970-01-01 UTC, sizes are bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from tidemark.control.model.autoscaler_records import ScalingDecision, ScalingEvaluation
from tidemark.control.model.autoscaler_settings import AutoscalerMode
from tidemark.control.model.launcher import ProcessState
from tidemark.control.model.records import DriverStart, ErrorInfo, Failure, Lifecycle, ProcessHandle
from tidemark.control.model.spec import JobSpec
from tidemark.control.model.standby_view import StandbyView
from tidemark.control.model.upgrade_records import Step
from tidemark.state.log.totals import Totals, empty_totals
from tidemark.state.status.driver_load import Backlog
from tidemark.state.status.resources import Resources

JobState = Literal["created", "starting", "running", "draining", "upgrading", "stopped", "failing", "failed", "finished", "dead", "damaged"]
"""A job's state, in the one word that every command, page and metric uses. It is derived from all that is visible at the time.

``created``: submitted, never started. ``draining``: its driver was asked to end. ``upgrading``: the same, to restart with other code, or
an upgrade is under way. ``stopped``: as requested. ``failing``: its driver failed, and a reconciler will restart it. ``failed``: it will
not be restarted until requested. ``finished``: its input has ended for good. ``dead``: its driver has ended or is lost, and no reconciler
has handled that. ``damaged``: its spec, its status or another file of it cannot be read."""

Health = Literal["ok", "starting", "stopped", "hung", "silent", "failing", "failed", "unwatched", "damaged"]
"""``stopped``: as requested, or its input ended. ``hung``: suspected to hang. ``silent``: its driver should be alive and sends no
heartbeat. ``unwatched``: no reconciler acts on it, so desired and actual state differ, or a failure goes unseen. ``damaged``: a file of
it cannot be read. Unless that is only its driver's status, no reconciler can act on it."""

UNHEALTHY: frozenset[Health] = frozenset(("hung", "silent", "failing", "failed", "unwatched", "damaged"))


@dataclass(frozen=True)
class SplitView:
    """One split of a source at the last epoch."""

    watermark: int | None
    lag_ms: int | None
    idle: bool


@dataclass(frozen=True)
class SourceView:
    """One source: ``lag_ms`` as ``JobView.lag_ms``; ``rows_*`` are totals; ``held_by`` is the split with the lowest watermark.

    ``bound_ms`` is the bound on out-of-orderness: how far its watermark always is behind its newest event.
    """

    watermark: int | None
    lag_ms: int | None
    held_by: str | None
    rows_read: int
    rows_malformed: int
    splits: Mapping[str, SplitView] = field(default_factory=dict)
    bound_ms: int | None = None


@dataclass(frozen=True)
class KeyedView:
    """What a process function keeps, and what happened in its last epoch: timers that fired, entries of state that expired."""

    keys: int = 0
    timers: int = 0
    timers_fired: int = 0
    state_expired: int = 0


@dataclass(frozen=True)
class RowCounts:
    """Total rows since the lineage began."""

    read: int = 0
    out: int = 0
    late: int = 0
    malformed: int = 0
    rejected: int = 0


@dataclass(frozen=True)
class Backpressure:
    """Back-pressure: since when an epoch runs, the share of time in which one runs, and the input backlog.

    ``busy_share`` is 1 when epochs follow one another without a pause, and falls to 0 while the job is idle. Backlogs are None where no
    source reports them; ``waiting`` has them by source. ``catch_up_ms`` is the time until a backlog is read (``Load``), None if there is
    none or that is unknown; ``intake`` is the share of its usual bound that an epoch may read. For a driver without a heartbeat all of
    this is unknown.
    """

    busy_since: int | None = None
    busy_share: float | None = None
    looked_at: int | None = None
    waiting_files: int | None = None
    waiting_bytes: int | None = None
    waiting_rows: int | None = None
    waiting: Mapping[str, Backlog] = field(default_factory=dict)
    catch_up_ms: int | None = None
    intake: float = 1.0


@dataclass(frozen=True)
class UpgradeView:
    """A job's newest upgrade: its step, since when, and the end it is heading for or has reached.

    ``heading`` is one of its two ends, ``code`` the job's code then, and ``text`` all of it in one line. ``trouble`` is the error that has
    blocked its next step since ``trouble_since``, with its fix; empty for none.
    """

    identity: str
    step: Step
    at: int
    heading: str
    code: str
    ended: bool
    text: str
    trouble: str = ""
    trouble_since: int | None = None


@dataclass(frozen=True)
class AutoscalerView:
    """The autoscaler of a job: its mode, what it found last, its newest decision, and the number of its decisions by kind.

    ``evaluation`` is None if the job does not run, or nothing evaluates it: no supervisor runs.
    """

    mode: AutoscalerMode
    evaluation: ScalingEvaluation | None = None
    decision: ScalingDecision | None = None
    totals: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class AlertView:
    """An alert that fires, notified or not: its rule, what of (a source, a check; empty: the job), since when, its text as of now.

    Whether it fires is as a supervisor or a sensor evaluated it last; ``since`` is None if a release before this one wrote it.
    """

    rule: str
    subject: str
    severity: Literal["warn", "error"]
    since: int | None
    text: str


@dataclass(frozen=True)
class JobView:
    """A job at one moment, ``at``.

    Args:
        job: its name.
        at: when it was observed.
        lifecycle: the lifecycle state that reconcilers wrote; for a job without a spec, that of its driver. ``upgrading`` while an
            upgrade is under way, ``starting`` also for a suspended job that was just requested to start, and between a driver that ended
            as requested and the next one. A driver that is dead, though no reconciler has written that, makes it ``failing``, or
            ``failed`` if it ended with a permanent error.
        since: since when, None if it was not recorded.
        health: its health.
        spec: its desired state; None for a job that was never submitted.
        generation: the newest generation, 0 without a spec.
        generation_seen: the generation that reconcilers last acted on.
        attempt: number of the newest attempt.
        process: of the driver.
        process_state: whether it lives; None without a process.
        heartbeat_at: the driver's last heartbeat.
        lineage: of the last epoch.
        epoch: the last committed one; None before the first.
        epoch_at: its processing time.
        epoch_ms: its duration.
        started_at: when the driver started.
        watermark: the lowest of the sources'.
        lag_ms: processing time minus watermark. While the driver is healthy and idle, that of the last epoch, so that a source without
            new data raises no alarm; else up to now.
        sources: by name.
        totals: rows by source, filter, operator and output.
        rows: total rows.
        rows_per_second: read, over the last epochs.
        rows_out_per_second: written, over the last epochs.
        late_share: share of late rows among what operators read to which rows may be late, in the last epoch; None if they read none.
        judges_lateness: the uids of these operators: windows, deduplications, and joins of elements.
        state_rows: in all operators.
        state_bytes: in all operators.
        state_files: in all operators.
        keyed: of the process functions, by uid.
        pressure: its back-pressure.
        failures: the newest, oldest first.
        restarts_done: restarts after failures, in total.
        next_start_at: when a failing job is restarted.
        reason: the reason of its state.
        error: the last error, None while it runs well.
        start: the progress of the newest driver's start, and the duration of its stages; None if unknown.
        warning: features its driver runs without, and work it defers until a problem is fixed; empty for none.
        end_of_input: whether its input has ended for good.
        driver_lifecycle: its driver's lifecycle state as reconcilers last wrote it; differs from ``lifecycle`` only in those cases.
        upgrade: the newest upgrade.
        state: its state, in the one word that commands show.
        standby: the state of its standby; None if the spec asks for none.
        autoscaler: what its autoscaler found and did; None for a job without a spec, and if that is off.
        resources: of the driver and its executors, as it last measured them; None for a driver that does not report, or has not yet.
        alerts: the alerts that fire, the worst first; read by ``job_views``, since they are evaluated from views.
        advice: what the user has to do while no reconciler acts: which command starts it again; empty for nothing.
    """

    job: str
    at: int
    lifecycle: Lifecycle
    health: Health
    since: int | None = None
    spec: JobSpec | None = None
    generation: int = 0
    generation_seen: int = 0
    attempt: int = 0
    process: ProcessHandle | None = None
    process_state: ProcessState | None = None
    heartbeat_at: int | None = None
    lineage: str = ""
    epoch: int | None = None
    epoch_at: int | None = None
    epoch_ms: int | None = None
    started_at: int | None = None
    watermark: int | None = None
    lag_ms: int | None = None
    sources: Mapping[str, SourceView] = field(default_factory=dict)
    totals: Totals = field(default_factory=empty_totals)
    rows: RowCounts = RowCounts()
    rows_per_second: float | None = None
    rows_out_per_second: float | None = None
    late_share: float | None = None
    judges_lateness: tuple[str, ...] = ()
    state_rows: int = 0
    state_bytes: int = 0
    state_files: int = 0
    keyed: Mapping[str, KeyedView] = field(default_factory=dict)
    pressure: Backpressure = Backpressure()
    failures: tuple[Failure, ...] = ()
    restarts_done: int = 0
    next_start_at: int | None = None
    reason: str = ""
    error: ErrorInfo | None = None
    start: DriverStart | None = None
    warning: str = ""
    end_of_input: bool = False
    driver_lifecycle: Lifecycle = "created"
    upgrade: UpgradeView | None = None
    state: JobState = "created"
    advice: str = ""
    standby: StandbyView | None = None
    autoscaler: AutoscalerView | None = None
    resources: Resources | None = None
    alerts: tuple[AlertView, ...] = ()

    @property
    def heartbeat_age_ms(self) -> int | None:
        """The age of the last heartbeat; never negative, since clocks differ."""
        return None if self.heartbeat_at is None else max(0, self.at - self.heartbeat_at)

    def failures_since(self, instant: int) -> int:
        """Return how many of the known failures were seen from an instant on."""
        return sum(failure.at >= instant for failure in self.failures)

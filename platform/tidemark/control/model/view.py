"""A job as commands, metrics and alerts show it: one object, made by ``view_builder.view_of``.

Times are milliseconds since 1970-01-01 UTC, sizes are bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from tidemark.control.model.launcher import ProcessState
from tidemark.control.model.records import DriverStart, ErrorInfo, Failure, Lifecycle, ProcessHandle
from tidemark.control.model.spec import JobSpec
from tidemark.control.model.standby_view import StandbyView
from tidemark.control.model.upgrade_records import Step
from tidemark.state.log.totals import Totals, empty_totals
from tidemark.state.status.driver_load import Backlog

JobState = Literal["created", "starting", "running", "draining", "upgrading", "stopped", "failing", "failed", "finished", "dead", "damaged"]
"""Where a job is, in the one word that every command, page and metric uses. It is derived from all that can be seen at that moment.

``created``: submitted, never started. ``draining``: its driver was asked to end. ``upgrading``: the same, to be started with other code,
or an upgrade is under way. ``stopped``: as wanted. ``failing``: its driver failed, and a reconciler will start it again. ``failed``: it
will not be started until it is requested. ``finished``: its input has ended for good. ``dead``: its driver has ended or is lost, and no
reconciler has dealt with that. ``damaged``: its spec, its status or another file of it cannot be read."""

Health = Literal["ok", "starting", "stopped", "hung", "silent", "failing", "failed", "unwatched", "damaged"]
"""``stopped``: as wanted, or its input ended. ``hung``: suspected to hang. ``silent``: its driver should be alive and gives no sign of
life. ``unwatched``: no reconciler acts on it, so what is wanted and what is differ, or a failure goes unseen. ``damaged``: a file of it
cannot be read. Unless that is only what its driver last wrote, no reconciler can act on it."""

UNHEALTHY: frozenset[Health] = frozenset(("hung", "silent", "failing", "failed", "unwatched", "damaged"))


@dataclass(frozen=True)
class SplitView:
    """One split of a source at the last epoch."""

    watermark: int | None
    lag_ms: int | None
    idle: bool


@dataclass(frozen=True)
class SourceView:
    """One source: ``lag_ms`` as ``JobView.lag_ms``; ``rows_*`` are totals; ``held_by`` is the split with the least watermark.

    ``bound_ms`` is how far its watermark is behind its newest event as a matter of course: the bound on out-of-orderness.
    """

    watermark: int | None
    lag_ms: int | None
    held_by: str | None
    rows_read: int
    rows_malformed: int
    splits: Mapping[str, SplitView] = field(default_factory=dict)
    bound_ms: int | None = None


@dataclass(frozen=True)
class RowCounts:
    """Rows in all, since the lineage began."""

    read: int = 0
    out: int = 0
    late: int = 0
    malformed: int = 0
    rejected: int = 0


@dataclass(frozen=True)
class Backpressure:
    """Back-pressure: since when the current epoch runs, for which share of the time one runs, and what input waits.

    ``busy_share`` is 1 when epochs follow one another without a pause, and falls to 0 as the job rests. What waits is None where no source
    tells; ``waiting`` has it by source. ``catch_up_ms`` is how long it takes until a backlog is read (``Load``), None where there is
    none or that is not known; ``intake`` the share of its usual bound that an epoch may read. Of a driver without a heartbeat nothing of
    this is known.
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
    """A job's newest upgrade: the step it is at, since when, and what it is heading for; of one that has ended, how.

    ``heading`` is one of its two ends, ``code`` what the job has then, and ``text`` all of it in one line. ``trouble`` is what blocks
    its next step since ``trouble_since``, with what to do; empty for nothing that is known.
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
class JobView:
    """A job at one moment, ``at``.

    Args:
        job: its name.
        at: when it was observed.
        lifecycle: where it is, in the words that reconcilers write; of a job without a spec, what its driver says. ``upgrading`` as long
            as an upgrade is under way, ``starting`` also of a suspended one that was just asked for. A driver that is seen to be dead,
            though no reconciler has written that, makes it ``failing``, or ``failed`` where it ended with an error that does not pass.
        since: since when, None if it was not recorded.
        health: how that is to be taken.
        spec: what is wanted; None for a job that was never submitted.
        generation: the newest one, 0 without a spec.
        generation_seen: the one that reconcilers acted on last.
        attempt: number of the newest attempt.
        process: of the driver.
        process_state: whether it lives; None where there is none.
        heartbeat_at: the driver's last sign of life.
        lineage: of the last epoch.
        epoch: the last committed one; None before the first.
        epoch_at: its processing time.
        epoch_ms: how long it took.
        started_at: when the driver started.
        watermark: the least of the sources'.
        lag_ms: processing time minus watermark. While the driver is well and runs no epoch, that of the last epoch, so that a
            source without news raises no alarm; else up to now.
        sources: by name.
        totals: rows by source, filter, operator and output.
        rows: rows in all.
        rows_per_second: read, over the last epochs.
        rows_out_per_second: written, over the last epochs.
        late_share: of the rows that windows saw in the last epoch, those that were late; None where there were none.
        state_rows: in all operators.
        state_bytes: in all operators.
        state_files: in all operators.
        pressure: whether it keeps up.
        failures: the newest, oldest first.
        restarts_done: after failures, in all.
        next_start_at: when a failing job is started again.
        reason: why it is where it is.
        error: the last one, None when it runs well.
        start: how far the start of the newest attempt's driver is, and what its stages took; None where it is not known.
        warning: what its driver has to do without, or puts off until something is mended; empty for nothing.
        end_of_input: whether its input has ended for good.
        driver_lifecycle: where its driver is, as reconcilers last wrote; the same as ``lifecycle`` but in those three cases.
        upgrade: the newest one.
        state: where it is, in one word.
        standby: how the process is that stands by to take it over; None where none is wanted.
        advice: what the operator has to do, as long as it is not done: which command starts it again; empty for nothing.
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
    state_rows: int = 0
    state_bytes: int = 0
    state_files: int = 0
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

    @property
    def heartbeat_age_ms(self) -> int | None:
        """How old the last sign of life is; never negative, since clocks differ."""
        return None if self.heartbeat_at is None else max(0, self.at - self.heartbeat_at)

    def failures_since(self, instant: int) -> int:
        """Return how many failures were seen from an instant on, of those that are still known."""
        return sum(failure.at >= instant for failure in self.failures)

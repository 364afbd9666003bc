"""A job and a runner without Spark: it commits given epochs to the job's small files and to real Delta tables."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

import deltalake
import pyarrow as pa

import tidemark as tm
from tidemark.resources import SparkResource, TidemarkResource
from tidemark.semantics.watermarks.shortfalls import Shortfalls
from tidemark.semantics.windows.windows import WindowAssigner
from tidemark.state.log.progress import (
    EpochProgress,
    FilterProgress,
    LateWindow,
    OperatorProgress,
    OutputProgress,
    SourceProgress,
    SplitProgress,
)
from tidemark.state.log.totals import add_epoch, empty_totals
from tidemark.state.status.history import HistoryWriter
from tidemark.state.status.status import JobStatus, OutputStatus, read_status, write_status
from tidemark.state.store.store import JobStore

MINUTE = 60_000
HOUR = 60 * MINUTE
START = 1_709_510_400_000  # 2024-03-04T00:00:00Z
LATE, REJECTED, MALFORMED = tm.OutputTag("late_trips"), tm.OutputTag("rejected_trips"), tm.OutputTag("malformed_trips")


def make_job(
    folder: Path,
    name: str = "cabs",
    *,
    store: str | None = None,
    windows: WindowAssigner | None = None,
    mode: Literal["append", "upsert"] = "append",
) -> tm.Job:
    """Return a job with a source, a filter, a window, and an output of each kind."""
    trips = tm.source(
        "trips",
        tm.files(str(folder / "landing"), format="json", schema="zone INT, fare DOUBLE, at TIMESTAMP"),
        watermarks=tm.bounded_out_of_orderness("5 minutes", timestamp="at"),
        malformed_to=MALFORMED,
    )
    paid = trips.filter("fare >= 0", rejects_to=REJECTED).uid("paid")
    hourly = (
        paid.key_by("zone")
        .window(windows or tm.tumbling("1 hour"))
        .allowed_lateness("10 minutes")
        .late_to(LATE)
        .aggregate(trips=tm.count(), fares=tm.sum("fare"))
        .uid("hourly")
    )
    return tm.Job(
        name,
        outputs={
            "hourly": tm.delta(hourly, str(folder / "warehouse" / "hourly"), mode=mode),
            "late": tm.delta(hourly.side_output(LATE), str(folder / "warehouse" / "late")),
            "rejected": tm.delta(paid.side_output(REJECTED), str(folder / "warehouse" / "rejected")),
            "malformed": tm.delta(trips.side_output(MALFORMED), str(folder / "warehouse" / "malformed")),
        },
        store=store,
        owners=("team:streams",),
        tags={"domain": "cabs"},
    )


def window_rows(*rows: tuple[int, int, int, int]) -> pa.Table:
    """Return results of the window: (zone, hours after the start, pane, trips)."""
    stamps = pa.timestamp("us", tz="UTC")
    return pa.table(
        {
            "zone": pa.array([row[0] for row in rows], pa.int32()),
            "window_start": pa.array([(START + row[1] * HOUR) * 1000 for row in rows], stamps),
            "window_end": pa.array([(START + (row[1] + 1) * HOUR) * 1000 for row in rows], stamps),
            "trips": pa.array([row[3] for row in rows], pa.int64()),
            "fares": pa.array([10.0 * row[3] for row in rows], pa.float64()),
            "pane_timing": pa.array(["ON_TIME" if row[2] == 0 else "LATE" for row in rows]),
            "pane_index": pa.array([row[2] for row in rows], pa.int32()),
        }
    )


def side_rows(count: int) -> pa.Table:
    """Return so many side output rows."""
    return pa.table({"zone": pa.array([1] * count, pa.int32()), "fare": pa.array([-1.0] * count, pa.float64())})


@dataclass(frozen=True)
class FakeEpoch:
    """What one epoch writes; the counts that follow from it balance, unless ``lost`` rows are made to vanish."""

    windows: pa.Table
    late: int = 0
    rejected: int = 0
    malformed: int = 0
    accepted: int = 10
    lost: int = 0
    late_windows: tuple[int, ...] = ()
    refired: tuple[int, ...] = ()
    early: int = 0
    behind_ms: int = 300_001
    held_by: str | None = None
    shortfalls: tuple[int, ...] = ()
    changes: Mapping[str, int] = field(default_factory=dict)

    def progress(self, number: int, lineage: str) -> EpochProgress:
        """Return the progress the engine would report."""
        passed = self.accepted + self.late
        newest = START + (number + 1) * HOUR
        watermark = newest - self.behind_ms
        source = SourceProgress(
            rows_read=passed + self.rejected + self.malformed + self.lost,
            rows_passed=passed + self.rejected,
            rows_malformed=self.malformed,
            watermark=watermark,
            lag_ms=newest - watermark,
            held_by=self.held_by,
            splits={"": SplitProgress(passed, watermark, newest, idle=False)},
        )
        operator = OperatorProgress(
            rows_in=passed,
            rows_accepted=self.accepted,
            rows_late=self.late,
            watermark=watermark,
            panes_on_time=self.windows.num_rows,
            panes_late=0,
            panes_early=self.early,
            windows_closed=1,
            oldest_open_window=START + number * HOUR,
            state_rows=7,
            state_bytes=700,
            state_files=1,
            late_to="late_trips",
            late_windows=self.late_windows,
            refired_windows=self.refired,
            shortfalls={"late": Shortfalls.of(self.shortfalls, 10 * MINUTE)} if self.shortfalls else {},
            most_late=tuple(LateWindow(start, start + HOUR, 1) for start in self.late_windows),
        )
        rows = {"hourly": self.windows.num_rows, "late": self.late, "rejected": self.rejected, "malformed": self.malformed}
        outputs = {name: OutputProgress(count, 1, 100 * count, "delta") for name, count in rows.items()}
        return EpochProgress(
            job="cabs",
            lineage=lineage,
            epoch=number,
            processing_time=newest,
            duration_ms=500,
            rows_in=source.rows_read,
            rows_out=sum(rows.values()),
            sources={"trips": source},
            filters={"paid": FilterProgress(passed + self.rejected, passed, self.rejected, "rejected_trips")},
            operators={"hourly": operator},
            outputs={**outputs, "hourly": replace(outputs["hourly"], changes=self.changes)},
        )


@dataclass(frozen=True)
class FakeRun:
    """What a run gives back."""

    lineage: str
    epochs: tuple[EpochProgress, ...]
    head: EpochProgress | None


@dataclass
class FakeEngine:
    """Commits epochs one after the other, as many per run as are queued."""

    store: Path
    lineage: str = "l1"
    queue: list[FakeEpoch] = field(default_factory=list)
    runs: list[str] = field(default_factory=list)

    def run(self, job: tm.Job, on_epoch: Callable[[EpochProgress], None], run_id: str) -> FakeRun:
        """Commit what is queued."""
        self.runs.append(run_id)
        root = JobStore.open(str(self.store))
        epochs = tuple(self._commit(job, root, epoch, on_epoch) for epoch in self.queue)
        self.queue.clear()
        status = read_status(root, job.name)
        # As of the real one, its result need not have all epochs.
        return FakeRun(self.lineage, epochs[-1:], status.last if status is not None else None)

    def _commit(self, job: tm.Job, root: JobStore, epoch: FakeEpoch, on_epoch: Callable[[EpochProgress], None]) -> EpochProgress:
        before = read_status(root, job.name)
        number = before.last.epoch + 1 if before is not None and before.last is not None and before.lineage == self.lineage else 0
        progress = replace(epoch.progress(number, self.lineage), job=job.name)
        tables = {
            "hourly": epoch.windows,
            "late": side_rows(epoch.late),
            "rejected": side_rows(epoch.rejected),
            "malformed": side_rows(epoch.malformed),
        }
        for name, rows in tables.items():
            if rows.num_rows:
                deltalake.write_deltalake(_path(job, name), rows, mode="append")
        HistoryWriter(root, job.name).append(progress)
        write_status(root, status_after(job, progress, before))
        on_epoch(progress)
        return progress


def status_after(job: tm.Job, progress: EpochProgress, before: JobStatus | None) -> JobStatus:
    """Return the status after one more epoch."""
    totals = before.totals if before is not None and before.lineage == progress.lineage else empty_totals()
    return JobStatus(
        job=job.name,
        lineage=progress.lineage,
        state="finished",
        heartbeat_at=progress.processing_time,
        started_at=START,
        last=progress,
        totals=add_epoch(totals, progress),
        outputs={name: OutputStatus("delta", _path(job, name)) for name in job.outputs},
    )


def commit_status(job: tm.Job, store: Path | str, epochs: Sequence[FakeEpoch], *, lineage: str = "l1") -> JobStatus:
    """Write status and history as if these epochs followed the last ones; no tables."""
    root = JobStore.open(str(store))
    status = read_status(root, job.name)
    for epoch in epochs:
        number = status.last.epoch + 1 if status is not None and status.last is not None and status.lineage == lineage else 0
        progress = replace(epoch.progress(number, lineage), job=job.name)
        HistoryWriter(root, job.name).append(progress)
        status = status_after(job, progress, status)
        write_status(root, status)
    if status is None:
        raise ValueError("no epoch given")
    return status


ENGINES: dict[str, FakeEngine] = {}
"""Engines by store: a resource's fields are configuration, which cannot hold one."""


class FakeTidemark(TidemarkResource):
    """The resource with the fake engine of its store behind it."""

    def run_job(self, job: tm.Job, *, store: str, on_epoch: Callable[[EpochProgress], None], run_id: str) -> FakeRun:
        return ENGINES[store].run(job, on_epoch, run_id)


def fake_resource(store: Path) -> FakeTidemark:
    """Return a resource, with a new engine for its store if there is none."""
    ENGINES.setdefault(str(store), FakeEngine(store))
    return FakeTidemark(store=str(store), spark=SparkResource())


def _path(job: tm.Job, output: str) -> str:
    sink = job.outputs[output].sink
    return str(getattr(sink, "path"))  # noqa: B009 - not every sink has one

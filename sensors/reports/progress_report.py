"""The reports on one submitted job: observations that aggregate epochs, and partitions that are complete or were corrected."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import dagster as dg

from tidemark.assets.definitions.bound_job import BoundJob
from tidemark.assets.report.complete_partitions import PartitionMark, complete_partitions, touched_partitions
from tidemark.assets.report.late_rows import late_row_metadata
from tidemark.assets.report.output_metadata import chart_metadata, summarised_metrics
from tidemark.assets.report.run_report import RunReport
from tidemark.assets.report.watermark_chart import MAX_POINTS
from tidemark.assets.streams.job_streams import StreamData
from tidemark.assets.values.metadata_values import MetadataValues
from tidemark.sensors.reports.partition_events import PARTITIONS_AT_ONCE, partition_materializations
from tidemark.sensors.reports.progress_cursor import JobMark
from tidemark.sensors.reports.reported_events import ReportedEvents
from tidemark.sensors.reports.waiting_metadata import waiting_metadata
from tidemark.state import EpochProgress, JobStatus, JobStore, empty_totals, epoch_numbered, epochs_after, read_history

EPOCHS_AT_ONCE = 1000
"""Maximum epochs that one observation covers, also the first observation of a job."""

CHART_MS = 3_600_000
"""Observations have the chart at most once in this time of the clock, since Dagster keeps each."""

Event = dg.AssetObservation | dg.AssetMaterialization


@dataclass(frozen=True)
class JobReport:
    """The events of one job, and its mark after them."""

    events: tuple[Event, ...]
    mark: JobMark


def is_due(status: JobStatus, mark: JobMark | None, *, now: int, interval_ms: int) -> bool:
    """Return whether to observe a job: there are new epochs, and the last observation is old enough."""
    head = status.last
    if head is None:
        return False
    if mark is None or mark.lineage != head.lineage:
        return True
    # After the clock is set back, observations must not be delayed.
    return mark.epoch != head.epoch and not 0 <= now - mark.at < interval_ms


def has_corrections(status: JobStatus, mark: JobMark) -> bool:
    """Return whether there are epochs whose corrections of partitions were not reported."""
    return status.last is not None and (status.last.lineage, status.last.epoch) != mark.corrected_to


def report_epochs(
    root: JobStore, job: BoundJob, status: JobStatus, mark: JobMark | None, *, now: int, reported: ReportedEvents
) -> JobReport | None:
    """Return an observation of each output over the epochs since the mark.

    None if the history has no epoch after the mark yet.

    Args:
        root: the root store.
        job: the job.
        status: its status.
        mark: how far it was reported; None for a new job.
        now: processing time, milliseconds.
        reported: what Dagster knows already.

    Raises:
        CorruptStoreError: the history is damaged.
        FormatError: a newer release wrote it.
    """
    name = job.job.name
    if mark is None:
        epochs: Sequence[EpochProgress] = read_history(root, name, EPOCHS_AT_ONCE)
    else:
        epochs = epochs_after(root, name, mark.lineage, mark.epoch, limit=EPOCHS_AT_ONCE, splits=False)
    if not epochs:
        return None
    events: list[Event] = []
    chart = _chart(root, name, epochs, mark, now)
    for stream in job.streams:
        key = job.keys.get(stream.name)
        new = reported.not_observed(key, epochs) if key is not None else ()
        if key is not None and new:
            report = _report(job, status, new)
            numbers = {**summarised_metrics(stream, report), **late_row_metadata(stream, report, job.keys, job.partitions)}
            metadata = {**chart, **numbers, **waiting_metadata(status)}
            events.append(dg.AssetObservation(asset_key=key, metadata=metadata))
    last = (epochs[-1].lineage, epochs[-1].epoch)
    # The first report includes the corrections so far.
    through, followed = (mark.through, mark.corrected_to) if mark is not None else ({}, last)
    return JobReport(tuple(events), JobMark(*last, now, through, followed))


def _chart(root: JobStore, job: str, epochs: Sequence[EpochProgress], mark: JobMark | None, now: int) -> MetadataValues:
    """Return the chart of a job's newest epochs for the first observation in an hour, nothing for the others."""
    if mark is not None and now // CHART_MS == mark.at // CHART_MS:
        return {}
    return chart_metadata(epochs if mark is None or len(epochs) >= MAX_POINTS else read_history(root, job, MAX_POINTS) or epochs)


def report_corrections(root: JobStore, job: BoundJob, mark: JobMark, *, reported: ReportedEvents) -> JobReport | None:
    """Return the partitions that late rows corrected in the epochs since the mark; None if there is no such epoch.

    They are reported at each tick, more often than observations, since downstream assets run for them.

    Args:
        root: the root store.
        job: the job.
        mark: how far it was reported.
        reported: what Dagster knows already.

    Raises:
        CorruptStoreError: the history is damaged.
        FormatError: a newer release wrote it.
    """
    lineage, epoch = mark.corrected_to
    epochs = epochs_after(root, job.job.name, lineage, epoch, limit=EPOCHS_AT_ONCE, splits=False)
    if not epochs:
        return None
    corrected, through, events = _corrections(root, job, mark, epochs, reported)
    return JobReport(tuple(events), replace(mark, through=through, followed=(corrected[-1].lineage, corrected[-1].epoch)))


def report_complete(job: BoundJob, head: EpochProgress, mark: JobMark, *, reported: ReportedEvents) -> JobReport:
    """Return the partitions that became complete through the watermark since the mark, oldest first.

    Args:
        job: the job.
        head: its newest epoch, of the lineage that corrections were reported in.
        mark: how far it was reported.
        reported: what Dagster knows already.
    """
    events: list[Event] = []
    through = dict(mark.through)
    for stream, partitions_def in _partitioned(job):
        before = PartitionMark(*mark.corrected_to, through.get(stream.name))
        changes, after = complete_partitions(stream, partitions_def, before, head, limit=PARTITIONS_AT_ONCE)
        events += partition_materializations(job.keys[stream.name], changes, {(head.lineage, head.epoch): head}, reported)
        if after.through is not None:
            through[stream.name] = after.through
    return JobReport(tuple(events), replace(mark, through=through))


def _corrections(
    root: JobStore, job: BoundJob, mark: JobMark, epochs: Sequence[EpochProgress], reported: ReportedEvents
) -> tuple[Sequence[EpochProgress], dict[str, int], list[Event]]:
    """Return the epochs that can be reported at once, the end of the complete partitions after them, and the corrections."""

    def find(epoch: EpochProgress, number: int) -> EpochProgress | None:
        return epoch_numbered(root, job.job.name, number, before=epoch)

    through: dict[str, int] = {}
    events: list[Event] = []
    for stream, partitions_def in _partitioned(job):
        before = PartitionMark(*mark.corrected_to, mark.through.get(stream.name))
        changes, after = touched_partitions(stream, partitions_def, before, epochs, find=find, limit=PARTITIONS_AT_ONCE)
        last = next(place for place, epoch in enumerate(epochs) if (epoch.lineage, epoch.epoch) == (after.lineage, after.epoch))
        if last + 1 < len(epochs):
            # Too many partitions were touched, so the rest waits; all outputs wait together.
            return _corrections(root, job, mark, epochs[: last + 1], reported)
        # Late rows that were not accepted changed nothing in the table.
        corrected = [change for change in changes if change.cause == "corrected"]
        known = {(epoch.lineage, epoch.epoch): epoch for epoch in epochs}
        events += partition_materializations(job.keys[stream.name], corrected, known, reported)
        if after.through is not None:
            through[stream.name] = after.through
    return epochs, through, events


def _partitioned(job: BoundJob) -> list[tuple[StreamData, dg.TimeWindowPartitionsDefinition]]:
    return [(stream, job.partitions[stream.name]) for stream in job.streams if stream.name in job.partitions]


def _report(bound: BoundJob, status: JobStatus, epochs: Sequence[EpochProgress]) -> RunReport:
    head = epochs[-1]
    totals = status.totals if status.lineage == head.lineage else empty_totals()
    return RunReport(bound.job, head.lineage, tuple(epochs), head, totals=totals)

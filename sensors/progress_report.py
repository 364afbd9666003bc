"""What is reported of one job that runs on: observations that roll up epochs, and partitions that are complete or were corrected."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import dagster as dg

from tidemark.assets.bound_job import BoundJob
from tidemark.assets.complete_partitions import PartitionChange, PartitionMark, complete_partitions, touched_partitions
from tidemark.assets.job_streams import StreamData
from tidemark.assets.known_times import known_time
from tidemark.assets.metadata_values import MetadataItem, MetadataValues
from tidemark.assets.output_metadata import output_figures
from tidemark.assets.run_report import RunReport
from tidemark.sensors.progress_cursor import JobMark
from tidemark.sensors.reported_events import EPOCH, LINEAGE, ReportedEvents
from tidemark.state.epochs_after import epoch_numbered, epochs_after
from tidemark.state.history import read_history
from tidemark.state.progress import EpochProgress
from tidemark.state.status import JobStatus
from tidemark.state.store import JobStore
from tidemark.state.totals import empty_totals

EPOCHS_AT_ONCE = 1000
"""Epochs that one observation rolls up at most, and that are looked at when a job is seen for the first time."""

PARTITIONS_AT_ONCE = 100
"""Partitions of an output that one tick reports; the next one goes on behind them."""

DATA_VERSION = "dagster/data_version"
Event = dg.AssetObservation | dg.AssetMaterialization


@dataclass(frozen=True)
class FollowedJob:
    """A job whose outputs are assets, with the partitions of those that have any, by output."""

    bound: BoundJob
    partitions: Mapping[str, dg.TimeWindowPartitionsDefinition]


@dataclass(frozen=True)
class JobReport:
    """The events of one job, and how far it is reported with them."""

    events: tuple[Event, ...]
    mark: JobMark


def is_due(status: JobStatus, mark: JobMark | None, *, now: int, interval_ms: int) -> bool:
    """Say whether a job is to be observed: there is news, and the last observation is long enough ago."""
    head = status.last
    if head is None:
        return False
    if mark is None or mark.lineage != head.lineage:
        return True
    # A clock that was put back must not put observations off.
    return mark.epoch != head.epoch and not 0 <= now - mark.at < interval_ms


def report_epochs(
    root: JobStore, job: FollowedJob, status: JobStatus, mark: JobMark | None, *, now: int, reported: ReportedEvents
) -> JobReport | None:
    """Return an observation of each output over the epochs since the mark, and the partitions that these corrected.

    None where the history has no epoch after the mark yet.

    Args:
        root: the root store.
        job: the job.
        status: its status.
        mark: how far it was reported; None for a job that is seen for the first time.
        now: processing time, milliseconds.
        reported: what Dagster knows already.

    Raises:
        CorruptStoreError: the history is damaged.
        FormatError: a newer release wrote it.
    """
    name = job.bound.job.name
    if mark is None:
        epochs: Sequence[EpochProgress] = read_history(root, name, EPOCHS_AT_ONCE)
    else:
        epochs = epochs_after(root, name, mark.lineage, mark.epoch, limit=EPOCHS_AT_ONCE, splits=False)
    if not epochs:
        return None
    through = dict(mark.through) if mark is not None else {}
    events: list[Event] = []
    if mark is not None:
        epochs, through, events = _corrections(root, job, mark, epochs, reported)
    for stream in job.bound.streams:
        key = job.bound.keys.get(stream.name)
        new = reported.not_observed(key, epochs) if key is not None else ()
        if key is not None and new:
            events.append(dg.AssetObservation(asset_key=key, metadata=dict(output_figures(stream, _report(job.bound, status, new)))))
    return JobReport(tuple(events), JobMark(epochs[-1].lineage, epochs[-1].epoch, now, through))


def report_complete(job: FollowedJob, head: EpochProgress, mark: JobMark, *, reported: ReportedEvents) -> JobReport:
    """Return the partitions that became complete through the watermark since the mark, oldest first.

    Args:
        job: the job.
        head: its newest epoch, of the mark's lineage.
        mark: how far it was reported.
        reported: what Dagster knows already.
    """
    events: list[Event] = []
    through = dict(mark.through)
    for stream, partitions_def in _partitioned(job):
        before = PartitionMark(mark.lineage, mark.epoch, through.get(stream.name))
        changes, after = complete_partitions(stream, partitions_def, before, head, limit=PARTITIONS_AT_ONCE)
        events += _materializations(job, stream, changes, {(head.lineage, head.epoch): head}, reported)
        if after.through is not None:
            through[stream.name] = after.through
    return JobReport(tuple(events), JobMark(mark.lineage, mark.epoch, mark.at, through))


def _corrections(
    root: JobStore, job: FollowedJob, mark: JobMark, epochs: Sequence[EpochProgress], reported: ReportedEvents
) -> tuple[Sequence[EpochProgress], dict[str, int], list[Event]]:
    """Return the epochs that can be told at once, the ends of what is complete after them, and what they corrected."""

    def find(epoch: EpochProgress, number: int) -> EpochProgress | None:
        return epoch_numbered(root, job.bound.job.name, number, before=epoch)

    through: dict[str, int] = {}
    events: list[Event] = []
    for stream, partitions_def in _partitioned(job):
        before = PartitionMark(mark.lineage, mark.epoch, mark.through.get(stream.name))
        changes, after = touched_partitions(stream, partitions_def, before, epochs, find=find, limit=PARTITIONS_AT_ONCE)
        told = next(place for place, epoch in enumerate(epochs) if (epoch.lineage, epoch.epoch) == (after.lineage, after.epoch))
        if told + 1 < len(epochs):
            # So many partitions were touched that the rest waits; all outputs wait together.
            return _corrections(root, job, mark, epochs[: told + 1], reported)
        # Rows that came too late changed nothing in the table.
        corrected = [change for change in changes if change.cause == "corrected"]
        events += _materializations(job, stream, corrected, {(epoch.lineage, epoch.epoch): epoch for epoch in epochs}, reported)
        if after.through is not None:
            through[stream.name] = after.through
    return epochs, through, events


def _materializations(
    job: FollowedJob,
    stream: StreamData,
    changes: Sequence[PartitionChange],
    epochs: Mapping[tuple[str, int], EpochProgress],
    reported: ReportedEvents,
) -> list[dg.AssetMaterialization]:
    key = job.bound.keys[stream.name]
    return [
        dg.AssetMaterialization(
            asset_key=key,
            partition=change.partition,
            description=f"{_WORDS[change.cause]} at epoch {change.epoch}",
            metadata=dict(_partition_metadata(change, epochs[change.lineage, change.epoch])),
            tags={DATA_VERSION: f"{change.lineage}:{change.epoch}", LINEAGE: change.lineage, EPOCH: str(change.epoch)},
        )
        for change in reported.not_materialized(key, changes)
    ]


_WORDS = {"complete": "complete through the watermark", "corrected": "corrected by late rows", "late rows": "rows came too late"}


def _partition_metadata(change: PartitionChange, epoch: EpochProgress) -> MetadataValues:
    metadata: dict[str, MetadataItem] = {
        LINEAGE: dg.MetadataValue.text(change.lineage),
        EPOCH: dg.MetadataValue.int(change.epoch),
        "tidemark/cause": dg.MetadataValue.text(change.cause),
        "tidemark/processing_time": dg.MetadataValue.timestamp(epoch.processing_time / 1000),
    }
    watermark = known_time(epoch.watermark)
    if watermark is not None:
        metadata["tidemark/watermark"] = dg.MetadataValue.timestamp(watermark / 1000)
    return metadata


def _partitioned(job: FollowedJob) -> list[tuple[StreamData, dg.TimeWindowPartitionsDefinition]]:
    return [(stream, job.partitions[stream.name]) for stream in job.bound.streams if stream.name in job.partitions]


def _report(bound: BoundJob, status: JobStatus, epochs: Sequence[EpochProgress]) -> RunReport:
    head = epochs[-1]
    totals = status.totals if status.lineage == head.lineage else empty_totals()
    return RunReport(bound.job, head.lineage, tuple(epochs), head, totals=totals)

"""A sensor that runs a streaming job's downstream assets for each time partition when it is complete, and again when late rows touch it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import dagster as dg

from tidemark.assets.report.complete_partitions import PartitionChange, PartitionMark, complete_partitions, has_times, touched_partitions
from tidemark.assets.streams.job_streams import StreamData, output_streams
from tidemark.assets.streams.translator import group_of
from tidemark.clock import format_ms
from tidemark.errors import DefinitionError
from tidemark.graph import Job
from tidemark.sensors.job_sensor import Decision, PlannedRun, SensorOptions, job_sensor, sensor_name
from tidemark.sensors.late_data import MAX_RUNS
from tidemark.sensors.partitions.upstream_report import Upstream, report_upstream, through_before, upstream_of
from tidemark.sensors.reports.partition_events import REASONS
from tidemark.sensors.reports.progress_report import EPOCHS_AT_ONCE
from tidemark.sensors.sensor_cursor import SensorCursor
from tidemark.state import EpochProgress, JobStatus, JobStore, epoch_numbered, epochs_after, read_history

_THROUGH = "through"
_REPORTED = "reported"


def build_partition_sensor(
    job: Job,
    *,
    output: str,
    partitions_def: dg.TimeWindowPartitionsDefinition,
    options: SensorOptions,
    name: str | None = None,
    repair: bool = True,
) -> dg.SensorDefinition:
    """Return a sensor that requests a run of its target for each complete time partition of an output.

    A partition's run is requested once in a lineage, when the partition is complete through the watermark; and again, as a repair,
    when late rows corrected it or were not accepted. The run's tags have the reason: ``tidemark/reason``, ``tidemark/repair``,
    ``tidemark/lineage``, ``tidemark/epoch``. Backlogs are requested oldest first, a limited number per tick.

    If the output is an asset of the code location with time partitions (``build_output_asset_specs(partitions=)``), its partitions are
    reported first, as the progress sensor does: Dagster has their materializations before it requests runs that read them.

    Args:
        job: the job; it may run continuously, or be drained on a schedule.
        output: the output that the target reads.
        partitions_def: the target's partitions, which may be longer than the windows: a window belongs to the partition that it starts in.
            Nothing is requested before its start.
        options: the target, the store, the time between ticks, the status. It sends no alerts.
        name: the sensor's name; ``<job>_<output>_partitions`` by default.
        repair: request runs again when late rows touched a partition.

    Raises:
        DefinitionError: there is no target, no store or no such output, or its rows have no times.
    """
    stream = _stream(job, output)
    if options.target is None:
        raise DefinitionError(
            "a partition sensor has no target", fix="set SensorOptions(target=AssetSelection...)", job=job.name, uid=output
        )

    def decide(root: JobStore, status: JobStatus, cursor: SensorCursor | None, context: dg.SensorEvaluationContext) -> Decision:
        upstream = upstream_of(context, job.name, output)
        return decide_partitions(stream, partitions_def, root, status, cursor, repair=repair, upstream=upstream)

    return job_sensor(
        job,
        name=sensor_name(job, f"{group_of(output)}_partitions", name),
        description=f"Requests runs for the complete time partitions of `{output}` of `{job.name}`"
        + (", and again when late rows touched them." if repair else "."),
        options=replace(options, alert_key=None),
        decide=decide,
    )


def decide_partitions(
    stream: StreamData,
    partitions_def: dg.TimeWindowPartitionsDefinition,
    root: JobStore,
    status: JobStatus,
    cursor: SensorCursor | None,
    *,
    repair: bool = True,
    upstream: Upstream | None = None,
) -> Decision:
    """Return the decision of a tick.

    Args:
        stream: the output.
        partitions_def: partitions of the target.
        root: the root store.
        status: the job's status, with an epoch.
        cursor: the previous tick's cursor; ``counts`` has the end of the last partition that was requested,
            and of the last one of the output's asset that was reported.
        repair: request runs again when late rows touched a partition.
        upstream: the output's asset, if its partitions are to be reported first.
    """
    head = status.last
    if head is None:
        return Decision("no epoch yet", cursor)
    epochs = _new_epochs(root, status, cursor)
    if not epochs and cursor is None:
        return Decision("the history has no epoch yet", cursor)
    first = epochs[0] if cursor is None else None
    mark = PartitionMark(first.lineage, first.epoch) if first is not None else _mark(cursor, head)

    def find(epoch: EpochProgress, number: int) -> EpochProgress | None:
        return epoch_numbered(root, status.job, number, before=epoch)

    before = None
    if upstream is not None:
        reported = cursor.counts.get(_REPORTED, through_before(upstream, mark.through)) if cursor is not None else None
        before = report_upstream(stream, upstream, replace(mark, through=reported), epochs, head=head, find=find)
        epochs = before.epochs
    touched, mark = touched_partitions(stream, partitions_def, mark, epochs, find=find, limit=MAX_RUNS)
    # Without new epochs the head is that of the last tick, whose backlog may continue.
    newest = next((epoch for epoch in epochs if (epoch.lineage, epoch.epoch) == (mark.lineage, mark.epoch)), head)
    # No run of a backlog is requested before the partition that it reads is reported.
    until = before.mark.through if before is not None and not before.complete else None
    complete, mark = complete_partitions(stream, partitions_def, mark, newest, limit=MAX_RUNS, until=until)
    changes = (*complete, *(touched if repair else ()))
    ends = {_THROUGH: mark.through, _REPORTED: before.mark.through if before is not None else None}
    counts = {name: end for name, end in ends.items() if end is not None}
    return Decision(
        summary=_summary(changes, mark, newest),
        cursor=SensorCursor(mark.lineage, mark.epoch, counts=counts),
        runs=tuple(_run(status.job, stream.name, change) for change in changes),
        events=before.events if before is not None else (),
    )


def _new_epochs(root: JobStore, status: JobStatus, cursor: SensorCursor | None) -> Sequence[EpochProgress]:
    if cursor is None:
        return read_history(root, status.job, 1)
    if status.last is not None and (cursor.lineage, cursor.epoch) == (status.last.lineage, status.last.epoch):
        return ()
    return epochs_after(root, status.job, cursor.lineage, cursor.epoch, limit=EPOCHS_AT_ONCE)


def _mark(cursor: SensorCursor | None, head: EpochProgress) -> PartitionMark:
    if cursor is None:
        return PartitionMark(head.lineage, head.epoch)
    return PartitionMark(cursor.lineage, cursor.epoch, cursor.counts.get(_THROUGH))


def _run(job: str, output: str, change: PartitionChange) -> PlannedRun:
    """Return the run for a change; its key is the same whenever the change is seen, and differs per cause."""
    at = change.lineage if change.cause == "complete" else f"{change.lineage}:{change.epoch}"
    tags = {
        "tidemark/reason": REASONS[change.cause],
        "tidemark/repair": "false" if change.cause == "complete" else "true",
        "tidemark/lineage": change.lineage,
        "tidemark/epoch": str(change.epoch),
    }
    return PlannedRun(f"{job}:{output}:{change.partition}:{change.cause}:{at}", tags, change.partition)


def _summary(changes: Sequence[PartitionChange], mark: PartitionMark, newest: EpochProgress) -> str:
    if changes:
        return "; ".join(f"{change.partition}: {REASONS[change.cause]}" for change in changes)
    through = f"complete through {format_ms(mark.through)}" if mark.through is not None else "no partition is complete yet"
    return f"epoch {newest.epoch}, watermark {format_ms(newest.watermark)}: {through}"


def _stream(job: Job, output: str) -> StreamData:
    for stream in output_streams(job):
        if stream.name == output and has_times(stream):
            return stream
        if stream.name == output:
            raise DefinitionError(
                f"output {output!r} has results of count or global windows, which have no time bounds",
                fix="run its downstream assets on a schedule, or when it was updated",
                job=job.name,
            )
    raise DefinitionError(f"there is no output {output!r}", fix=f"use one of {', '.join(job.outputs)}", job=job.name)

"""Reports an output's partitions from a partition sensor, before it requests runs of downstream assets.

The progress sensor reports the same partitions, but on its own ticks; and downstream assets must not run before Dagster has the
materializations that they read. Dagster writes the events of a tick before it submits the tick's runs, so the partition sensor reports
them with its requests.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import dagster as dg

from tidemark.assets.definitions.bound_job import JOB_KEY, OUTPUT_KEY
from tidemark.assets.report.complete_partitions import FindEpoch, PartitionMark, complete_partitions, partition_at, touched_partitions
from tidemark.assets.streams.job_streams import StreamData
from tidemark.sensors.reports.partition_events import PARTITIONS_AT_ONCE, partition_materializations
from tidemark.sensors.reports.reported_events import ReportedEvents
from tidemark.state import EpochProgress

_CHUNKS: Final = 10
"""Maximum batches of partitions per tick if Dagster has them already."""


@dataclass(frozen=True)
class Upstream:
    """The asset of an output whose partitions sensors report, and its events in Dagster."""

    key: dg.AssetKey
    partitions_def: dg.TimeWindowPartitionsDefinition
    reported: ReportedEvents


@dataclass(frozen=True)
class UpstreamReport:
    """The materializations to report, how far the asset is reported with them, and whether all complete partitions are.

    ``epochs`` are those that were processed; the others wait for the next tick.
    """

    events: tuple[dg.AssetMaterialization, ...]
    mark: PartitionMark
    complete: bool
    epochs: Sequence[EpochProgress]


def upstream_of(context: dg.SensorEvaluationContext, job: str, output: str) -> Upstream | None:
    """Return the asset of an output in the code location; None if it has no time partitions, or Dagster's own runs materialize it."""
    graph = context.repository_def.asset_graph if context.repository_def is not None else None
    for key in graph.get_all_asset_keys() if graph is not None else ():
        node = graph.get(key) if graph is not None else None
        if node is None or node.is_executable or not isinstance(node.partitions_def, dg.TimeWindowPartitionsDefinition):
            continue
        if (node.metadata.get(JOB_KEY), node.metadata.get(OUTPUT_KEY)) == (job, output):
            return Upstream(key, node.partitions_def, ReportedEvents(context.instance))
    return None


def through_before(upstream: Upstream, through: int | None) -> int | None:
    """Return how far an asset's partitions are assumed to be reported, if only the target's requested partitions are known."""
    key = partition_at(upstream.partitions_def, through) if through is not None else None
    return int(upstream.partitions_def.time_window_for_partition_key(key).start.timestamp() * 1000) if key is not None else None


def report_upstream(
    stream: StreamData, upstream: Upstream, mark: PartitionMark, epochs: Sequence[EpochProgress], *, head: EpochProgress, find: FindEpoch
) -> UpstreamReport:
    """Return the report of an output's partitions before runs are requested for these epochs.

    Args:
        stream: the output.
        upstream: its asset.
        mark: how far its partitions were reported.
        epochs: those after the mark, oldest first.
        head: the newest epoch, whose watermark counts if there are no others.
        find: finds the epoch at which a new lineage began.
    """
    touched, mark = touched_partitions(stream, upstream.partitions_def, mark, epochs, find=find, limit=PARTITIONS_AT_ONCE)
    at = next((place for place, each in enumerate(epochs) if (each.lineage, each.epoch) == (mark.lineage, mark.epoch)), -1)
    looked_at = epochs[: at + 1]
    newest = looked_at[-1] if looked_at else head
    known = {(each.lineage, each.epoch): each for each in (*looked_at, newest)}
    corrected = [change for change in touched if change.cause == "corrected"]
    events = partition_materializations(upstream.key, corrected, known, upstream.reported)
    new = 0
    for _ in range(_CHUNKS):
        complete, mark = complete_partitions(stream, upstream.partitions_def, mark, newest, limit=PARTITIONS_AT_ONCE)
        found = partition_materializations(upstream.key, complete, known, upstream.reported)
        events += found
        new += len(found)
        if len(complete) < PARTITIONS_AT_ONCE:
            return UpstreamReport(tuple(events), mark, complete=True, epochs=looked_at)
        if new >= PARTITIONS_AT_ONCE:
            break
    return UpstreamReport(tuple(events), mark, complete=False, epochs=looked_at)

"""Materializations of time partitions of an output that a job outside Dagster completed or corrected."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import dagster as dg

from tidemark.assets.report.complete_partitions import Cause, PartitionChange
from tidemark.assets.values.instants import instant_or_none
from tidemark.assets.values.metadata_values import MetadataItem
from tidemark.sensors.reports.reported_events import EPOCH, LINEAGE, ReportedEvents
from tidemark.state import EpochProgress

PARTITIONS_AT_ONCE = 100
"""Partitions of an output that one tick reports; the next tick continues after them."""

DATA_VERSION = "dagster/data_version"
REASONS: Mapping[Cause, str] = {
    "complete": "complete through the watermark",
    "corrected": "corrected by late rows",
    "late rows": "rows came too late",
}


def partition_materializations(
    key: dg.AssetKey,
    changes: Sequence[PartitionChange],
    epochs: Mapping[tuple[str, int], EpochProgress],
    reported: ReportedEvents,
) -> list[dg.AssetMaterialization]:
    """Return a materialization for each change that was not reported to Dagster yet.

    Args:
        key: asset key of the output.
        changes: changes of its partitions.
        epochs: epochs of the changes, by lineage and number.
        reported: events that Dagster has already.
    """
    return [
        dg.AssetMaterialization(
            asset_key=key,
            partition=change.partition,
            description=f"{REASONS[change.cause]} at epoch {change.epoch}",
            metadata=dict(_metadata(change, epochs[change.lineage, change.epoch])),
            tags={DATA_VERSION: f"{change.lineage}:{change.epoch}", LINEAGE: change.lineage, EPOCH: str(change.epoch)},
        )
        for change in reported.not_materialized(key, changes)
    ]


def _metadata(change: PartitionChange, epoch: EpochProgress) -> Iterator[tuple[str, MetadataItem]]:
    yield LINEAGE, dg.MetadataValue.text(change.lineage)
    yield EPOCH, dg.MetadataValue.int(change.epoch)
    yield "tidemark/cause", dg.MetadataValue.text(change.cause)
    yield "tidemark/processing_time", dg.MetadataValue.timestamp(epoch.processing_time / 1000)
    watermark = instant_or_none(epoch.watermark)
    if watermark is not None:
        yield "tidemark/watermark", dg.MetadataValue.timestamp(watermark / 1000)

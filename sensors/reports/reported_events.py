"""Reads the events that Dagster has of a job's outputs, so that a tick that failed after reporting is not repeated."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import islice
from typing import Any

import dagster as dg

from tidemark.assets.report.complete_partitions import PartitionChange
from tidemark.assets.report.savepoint_observations import SAVEPOINT, TAKEN
from tidemark.savepoints import Savepoint
from tidemark.state import EpochProgress

LINEAGE, EPOCH = "tidemark/lineage", "tidemark/epoch"
_MAX_OBSERVATIONS = 1000
_FIRST_PAGE = 20
_PARTITION_BATCH = 500
_MAX_CLOCK_SKEW_MS = 60 * 60 * 1000


class ReportedEvents:
    """Reads the events of a Dagster instance.

    Args:
        instance: the instance.
        complete: the last tick is known to have completed, so that its cursor covers all that this sensor reported; then only
            partitions are queried, which another sensor may have reported.
        keys: keys of the assets that will be queried: those without any event are then determined for all at once, and not queried
            again.
    """

    def __init__(self, instance: dg.DagsterInstance, *, complete: bool = False, keys: Iterable[dg.AssetKey] = ()) -> None:
        self._instance = instance
        self._complete = complete
        self._keys = frozenset(keys)

    def not_observed(self, key: dg.AssetKey, epochs: Sequence[EpochProgress]) -> Sequence[EpochProgress]:
        """Return the given epochs, oldest first, that come after the asset's last observation."""
        if self._complete or key in self._without_events:
            return epochs
        for found in self._observations(key):
            last = _epoch_of(found.metadata)
            if last is None:
                continue  # of a savepoint, or from another reporter
            for place, epoch in enumerate(epochs):
                if (epoch.lineage, epoch.epoch) == last:
                    return epochs[place + 1 :]
            break
        return epochs

    def knows_savepoint(self, key: dg.AssetKey, savepoint: Savepoint) -> bool:
        """Return whether the asset was observed with a savepoint, also by the Dagster run that took it."""
        if key in self._without_events:
            return False
        # The clocks of the process that took it and of the event log may differ.
        since = (savepoint.taken_at - _MAX_CLOCK_SKEW_MS) / 1000
        return any(_savepoint_of(found.metadata) == (savepoint.name, savepoint.taken_at) for found in self._observations(key, since=since))

    def _observations(self, key: dg.AssetKey, *, since: float | None = None) -> Iterator[dg.AssetObservation]:
        """Yield an asset's newest observations, newest first, in a small first page and a larger second one."""
        wanted = dg.AssetRecordsFilter(asset_key=key, after_timestamp=since)
        cursor: str | None = None
        for limit in (_FIRST_PAGE, _MAX_OBSERVATIONS):
            page = self._instance.fetch_observations(wanted, limit=limit, cursor=cursor)
            yield from (record.asset_observation for record in page.records if record.asset_observation is not None)
            cursor = page.cursor
            if not page.has_more:
                return

    def not_materialized(self, key: dg.AssetKey, changes: Sequence[PartitionChange]) -> list[PartitionChange]:
        """Return the given changes that the partitions' last materializations do not cover."""
        if not changes or (not self._complete and key in self._never_materialized):
            return list(changes)
        known = _newest(self._instance, key, {change.partition for change in changes})
        return [change for change in changes if not _covers(known.get(change.partition), change)]

    @cached_property
    def _without_events(self) -> frozenset[dg.AssetKey]:
        return self._keys - self._materialized.keys()

    @cached_property
    def _never_materialized(self) -> frozenset[dg.AssetKey]:
        return self._keys - {key for key, ever in self._materialized.items() if ever}

    @cached_property
    def _materialized(self) -> Mapping[dg.AssetKey, bool]:
        """The assets with events in Dagster, and whether they were ever materialized."""
        found: dict[dg.AssetKey, bool] = {}
        keys = iter(sorted(self._keys))
        while some := list(islice(keys, _PARTITION_BATCH)):
            for record in self._instance.get_asset_records(some):
                found[record.asset_entry.asset_key] = record.asset_entry.last_materialization_record is not None
        return found


def _newest(instance: dg.DagsterInstance, key: dg.AssetKey, partitions: Collection[str]) -> Mapping[str, tuple[str, int] | None]:
    """Return the epoch of each partition's last materialization, None for one from another reporter."""
    wanted = dg.AssetRecordsFilter(asset_key=key, asset_partitions=sorted(partitions))
    newest: dict[str, tuple[str, int] | None] = {}
    for record in instance.fetch_materializations(wanted, limit=_MAX_OBSERVATIONS).records:
        found = record.asset_materialization
        if found is not None and found.partition is not None:
            newest.setdefault(found.partition, _epoch_of(found.metadata))
    return newest


def _covers(last: tuple[str, int] | None, change: PartitionChange) -> bool:
    if last is None or last[0] != change.lineage:
        return False
    # A partition becomes complete once in a lineage; later epochs may touch it repeatedly.
    return change.cause == "complete" or last[1] >= change.epoch


def _epoch_of(metadata: Mapping[str, dg.MetadataValue[Any]]) -> tuple[str, int] | None:
    lineage, epoch = metadata.get(LINEAGE), metadata.get(EPOCH)
    return (str(lineage.value), int(str(epoch.value))) if lineage is not None and epoch is not None else None


def _savepoint_of(metadata: Mapping[str, dg.MetadataValue[Any]]) -> tuple[str, int] | None:
    name, taken = metadata.get(SAVEPOINT), metadata.get(TAKEN)
    return (str(name.value), round(float(str(taken.value)) * 1000)) if name is not None and taken is not None else None

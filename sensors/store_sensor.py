"""The common part of sensors on all jobs of a store: the store's location and the sensor definition."""

from __future__ import annotations

from collections.abc import Callable, Collection
from datetime import timedelta

import dagster as dg

from tidemark.assets.values.metadata_values import MetadataValues
from tidemark.assets.values.store_location import store_location
from tidemark.durations import to_ms
from tidemark.state import JobStore

Evaluate = Callable[[dg.SensorEvaluationContext], dg.SensorResult]


def open_root(store: str | dg.EnvVar) -> JobStore:
    """Open a root store.

    Raises:
        DefinitionError: the environment variable with its location is not set.
        StoreError: it cannot be reached.
    """
    return JobStore.open(store_location(store))


def store_sensor(
    evaluate: Evaluate,
    *,
    name: str,
    description: str,
    every: str | timedelta,
    default_status: dg.DefaultSensorStatus,
    resource_keys: Collection[str] = (),
    asset_selection: dg.AssetSelection | None = None,
    metadata: MetadataValues | None = None,
) -> dg.SensorDefinition:
    """Return a sensor on a store; it may request runs only of the selection.

    Raises:
        DurationError: ``every`` cannot be read.
    """

    def tick(context: dg.SensorEvaluationContext, **_: object) -> dg.SensorResult:
        # When called directly, as in unit tests, Dagster also passes the resources by name.
        return evaluate(context)

    return dg.SensorDefinition(
        name=name,
        evaluation_fn=tick,
        description=description,
        minimum_interval_seconds=max(1, to_ms(every, what="every", minimum=1000) // 1000),
        default_status=default_status,
        required_resource_keys=set(resource_keys),
        asset_selection=asset_selection,
        metadata=metadata,
    )

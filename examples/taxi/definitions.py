"""The code location of the example: assets, checks, sensors, schedules and resources of its jobs, as drains and as a continuous job.

It loads without PySpark, Great Expectations or Delta, which are imported when something runs.
"""

from __future__ import annotations

from collections.abc import Iterator

import dagster as dg

from examples.taxi.dispatch import dispatch_job
from examples.taxi.dispatch_assets import dispatch, same_as_by_window
from examples.taxi.job import example_home, job, live_job
from examples.taxi.live import live_definitions
from tidemark.assets import (
    Conservation,
    LateRatio,
    NoGaps,
    StateFits,
    UniquePanes,
    WatermarkFreshness,
    build_source_asset_specs,
    expectation_checks,
    streaming_assets,
)
from tidemark.operations import build_drain_schedule
from tidemark.resources import LogAlert, SparkResource, TidemarkResource
from tidemark.resources.run_events import StreamingEvent
from tidemark.sensors import SensorOptions, build_late_data_sensor, build_watermark_lag_sensor

HOURLY_TIPS_SUITE = {
    "name": "hourly_tips",
    "expectations": [
        {
            "type": "expect_column_values_to_not_be_null",
            "kwargs": {"column": "pickup_zone"},
            "meta": {"check": "zone_is_known"},
        },
        {
            "type": "expect_column_values_to_be_between",
            "kwargs": {"column": "trips", "min_value": 1},
            "meta": {"check": "a_window_has_trips"},
        },
        {
            "type": "expect_column_values_to_be_between",
            "kwargs": {"column": "typical_fare", "min_value": 0, "max_value": 200},
            "meta": {"check": "typical_fare_is_plausible"},
            "severity": "warning",
        },
        {
            "type": "expect_column_pair_values_a_to_be_greater_than_b",
            "kwargs": {"column_A": "window_end", "column_B": "window_start"},
            "meta": {"check": "windows_have_a_length"},
        },
    ],
}
"""Expectations on the hourly results, in Great Expectations' own format."""

# The example's trips are old, so its watermark is compared with the newest trip and not with today's clock.
CHECKS = (
    Conservation(),
    StateFits(),
    UniquePanes("hourly_tips"),
    NoGaps("hourly_tips"),
    LateRatio("hourly_tips", warn_above=0.05, error_above=0.25),
    WatermarkFreshness("hourly_tips", reference="newest_event", warn_after="1 hour"),
    expectation_checks(HOURLY_TIPS_SUITE, output="hourly_tips"),
)


@streaming_assets(job=job, checks=CHECKS)
def taxi(context: dg.AssetExecutionContext, tidemark: TidemarkResource) -> Iterator[StreamingEvent]:
    """Read the trips that have arrived; write hourly tips, and late, rejected and malformed trips."""
    yield from tidemark.run(context=context)


DRAIN, DISPATCH_DRAIN = build_drain_schedule(taxi, "*/15 * * * *"), build_drain_schedule(dispatch, "*/15 * * * *")
BOTH = dg.define_asset_job(
    "taxi_and_dispatch",
    selection=dg.AssetSelection.assets(taxi, dispatch),
    executor_def=dg.in_process_executor,
    description="Drains both jobs, one after the other, in one JVM; the demo runs it after every second wave.",
)
EVERY_HALF_MINUTE = SensorOptions(every="30 seconds", default_status=dg.DefaultSensorStatus.RUNNING)

# Dagster takes one Definitions per module.
defs = dg.Definitions.merge(
    dg.Definitions(
        assets=[*build_source_asset_specs(job, live_job, dispatch_job), taxi, dispatch],
        asset_checks=[same_as_by_window],
        jobs=[BOTH],
        sensors=[
            build_watermark_lag_sensor(job, reference="newest_event", warn_after="1 hour", options=EVERY_HALF_MINUTE),
            build_late_data_sensor(job, warn_above=0.05, error_above=0.25, options=EVERY_HALF_MINUTE),
        ],
        schedules=[DRAIN, DISPATCH_DRAIN],
        resources={
            "tidemark": TidemarkResource(
                store=str(example_home() / "store"),
                spark=SparkResource(spark_config={"spark.master": "local[2]", "spark.sql.shuffle.partitions": "2"}),
            ),
            "alerts": LogAlert(),
        },
        executor=dg.in_process_executor,
    ),
    live_definitions(EVERY_HALF_MINUTE),
)

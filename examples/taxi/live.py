"""The taxi job as a continuous job: its driver is a separate process, which the job ``taxi_live_operate`` starts and stops.

Its outputs are assets whose hourly partitions a sensor reports when they are complete; a daily asset is materialized when the watermark
has passed the day.
"""

# Dagster takes no annotation of a context that is a text, so annotations are evaluated here.
from datetime import datetime, timedelta
from pathlib import Path

import dagster as dg

from examples.taxi.job import example_home, live_job
from tidemark.assets import Conservation, StateFits, UniquePanes, build_asset_checks, build_output_asset_specs
from tidemark.control import JobSpec
from tidemark.operations import build_operations
from tidemark.sensors import (
    SensorOptions,
    build_check_sensor,
    build_job_health_sensor,
    build_late_data_sensor,
    build_partition_sensor,
    build_progress_sensor,
    build_reconcile_sensor,
    build_watermark_lag_sensor,
)

# The trips are of March 2024; without an end there would be a partition for each hour up to now.
HOURS = dg.HourlyPartitionsDefinition("2024-03-04-00:00", end_date="2024-04-01-00:00")
DAYS = dg.DailyPartitionsDefinition("2024-03-04", end_date="2024-04-01")

SPEC = JobSpec(
    live_job.name,
    "examples.taxi.job:live_job",
    trigger_ms=5_000,
    parallelism=2,
    master="local[2]",
    folder=str(Path(__file__).resolve().parents[2]),
    variables={"TIDEMARK_EXAMPLE_HOME": str(example_home())},
)
"""The spec with which the operation ``start`` of ``taxi_live_operate`` submits the job."""

hourly, *others = build_output_asset_specs(live_job, partitions=HOURS)


@dg.asset(key=[live_job.name, "daily_tips"], deps=[hourly], partitions_def=DAYS, group_name=live_job.name, kinds={"parquet"})
def daily_tips(context: dg.AssetExecutionContext) -> dg.MaterializeResult[None]:
    """Tips of a day by zone, from the last pane of each hour; computed when the day is complete, and again when late trips change it."""
    import pyarrow.compute as pc
    import pyarrow.parquet as pq
    from deltalake import DeltaTable

    day = datetime.fromisoformat(f"{context.partition_key}T00:00:00+00:00")
    warehouse = example_home() / "warehouse" / "live"
    begins = pc.field("window_start")
    hours = (
        DeltaTable(str(warehouse / "hourly_tips"))
        .to_pyarrow_dataset()
        .to_table(filter=(begins >= day) & (begins < day + timedelta(days=1)))
    )
    newest = hours.group_by(["pickup_zone", "window_start"]).aggregate([("pane_index", "max")])
    panes = newest.rename_columns({"pane_index_max": "pane_index"}).join(hours, ["pickup_zone", "window_start", "pane_index"])
    zones = panes.group_by("pickup_zone").aggregate([("tips", "sum"), ("trips", "sum")])
    folder = warehouse / "daily_tips"
    folder.mkdir(exist_ok=True)
    pq.write_table(zones, folder / f"{context.partition_key}.parquet")
    reason = context.run.tags.get("tidemark/reason", "started by hand")
    tips = pc.sum(zones["tips_sum"]).as_py() or 0.0
    return dg.MaterializeResult(
        metadata={"dagster/row_count": zones.num_rows, "tips": tips, "hours_and_zones": panes.num_rows, "reason": reason}
    )


def live_definitions(options: SensorOptions) -> dg.Definitions:
    """Return assets, checks, sensors and operations of the continuous job; they need the resource ``alerts``.

    Args:
        options: time between ticks, and whether sensors run as soon as they are deployed.
    """
    store, status = str(example_home() / "store"), options.default_status or dg.DefaultSensorStatus.RUNNING
    partitions = SensorOptions(target=dg.AssetSelection.assets(daily_tips), every=options.every, default_status=status)
    definitions = dg.Definitions(
        assets=[hourly, *others, daily_tips],
        # The job writes to its tables while the check reads them, so their rows are not compared.
        asset_checks=build_asset_checks(live_job, [Conservation(compare_tables=False), StateFits(), UniquePanes("hourly_tips")]),
        sensors=[
            build_progress_sensor([hourly, *others], options=options),
            build_partition_sensor(live_job, output="hourly_tips", partitions_def=DAYS, options=partitions),
            build_reconcile_sensor(store, every=options.every, default_status=status),
            build_job_health_sensor(store, every=options.every, default_status=status),
            build_check_sensor(store, every=options.every, default_status=status),
            build_watermark_lag_sensor(live_job, reference="newest_event", warn_after="1 hour", options=options),
            build_late_data_sensor(live_job, warn_above=0.05, error_above=0.25, options=options),
        ],
    )
    return dg.Definitions.merge(definitions, build_operations(live_job, spec=SPEC))

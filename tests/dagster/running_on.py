"""The sensors of a job that runs on, in a module that loads nothing a code location would not load."""

from __future__ import annotations

from pathlib import Path

import dagster as dg

import tidemark as tm
from tidemark.assets import build_output_asset_specs
from tidemark.sensors import (
    SensorOptions,
    build_check_sensor,
    build_job_health_sensor,
    build_partition_sensor,
    build_progress_sensor,
    build_reconcile_sensor,
)


def sensors(place: str) -> list[dg.SensorDefinition]:
    """Return the sensors of a job named ``cabs`` whose store is in a folder."""
    folder = Path(place)
    trips = tm.source(
        "trips",
        tm.files(str(folder / "in"), format="json", schema="zone INT, at TIMESTAMP"),
        watermarks=tm.bounded_out_of_orderness("5 minutes", timestamp="at"),
    )
    hourly = trips.key_by("zone").window(tm.tumbling("1 hour")).aggregate(trips=tm.count()).uid("hourly")
    store = str(folder / "store")
    job = tm.Job("cabs", outputs={"hourly": tm.delta(hourly, str(folder / "hourly"))}, store=store)
    hours = dg.HourlyPartitionsDefinition("2024-03-04-00:00")
    return [
        build_progress_sensor(build_output_asset_specs(job, partitions=hours), name="cabs_progress"),
        build_partition_sensor(
            job, output="hourly", partitions_def=hours, options=SensorOptions(target=dg.AssetSelection.assets("downstream"))
        ),
        build_reconcile_sensor(store),
        build_job_health_sensor(store, alert_key=None),
        build_check_sensor(store),
    ]

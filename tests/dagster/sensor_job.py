"""Sensors on a job, in a module that loads nothing a code location would not load."""

from __future__ import annotations

from pathlib import Path

import dagster as dg

import tidemark as tm
from tidemark.sensors import SensorOptions, build_late_data_sensor, build_watermark_lag_sensor


def sensors(folder: Path) -> list[dg.SensorDefinition]:
    """Return the sensors of a job named ``cabs`` whose store is in a folder."""
    trips = tm.source(
        "trips",
        tm.files(str(folder / "in"), format="json", schema="zone INT, at TIMESTAMP"),
        watermarks=tm.bounded_out_of_orderness("5 minutes", timestamp="at"),
    )
    hourly = trips.key_by("zone").window(tm.tumbling("1 hour")).aggregate(trips=tm.count()).uid("hourly")
    job = tm.Job("cabs", outputs={"hourly": tm.delta(hourly, str(folder / "hourly"))}, store=str(folder / "store"))
    options = SensorOptions(alert_key=None)
    return [build_watermark_lag_sensor(job, options=options), build_late_data_sensor(job, options=options)]

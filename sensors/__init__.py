"""Dagster sensors on streaming jobs; they read the jobs' small files and start no JVM."""

from __future__ import annotations

from tidemark.sensors.health.check_verdicts import build_check_sensor
from tidemark.sensors.health.job_health import build_job_health_sensor
from tidemark.sensors.input_visible import build_input_sensor
from tidemark.sensors.job_sensor import SensorOptions
from tidemark.sensors.late_data import build_late_data_sensor
from tidemark.sensors.partitions.partition_runs import build_partition_sensor
from tidemark.sensors.reconcile import build_reconcile_sensor
from tidemark.sensors.reports.progress import build_progress_sensor
from tidemark.sensors.watermark_lag import build_watermark_lag_sensor

__all__ = [
    "SensorOptions",
    "build_check_sensor",
    "build_input_sensor",
    "build_job_health_sensor",
    "build_late_data_sensor",
    "build_partition_sensor",
    "build_progress_sensor",
    "build_reconcile_sensor",
    "build_watermark_lag_sensor",
]

"""Dagster sensors on streaming jobs; they read the jobs' small files and start no JVM."""

from __future__ import annotations

from tidemark.sensors.job_sensor import SensorOptions
from tidemark.sensors.late_data import build_late_data_sensor
from tidemark.sensors.watermark_lag import build_watermark_lag_sensor

__all__ = ["SensorOptions", "build_late_data_sensor", "build_watermark_lag_sensor"]

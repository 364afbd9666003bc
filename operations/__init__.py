"""Dagster jobs and schedules that operate streaming jobs."""

from __future__ import annotations

from tidemark.operations.control_jobs import control_jobs
from tidemark.operations.drain_schedule import build_drain_schedule
from tidemark.operations.job_definitions import build_continuous_definitions, build_job_definitions
from tidemark.operations.operate import build_operations
from tidemark.operations.savepoint_definitions import savepoint_jobs

__all__ = [
    "build_continuous_definitions",
    "build_drain_schedule",
    "build_job_definitions",
    "build_operations",
    "control_jobs",
    "savepoint_jobs",
]

"""Dagster jobs and schedules that operate streaming jobs."""

from __future__ import annotations

from tidemark.operations.continuous_definitions import build_continuous_definitions
from tidemark.operations.control_jobs import control_jobs
from tidemark.operations.drain_schedule import build_drain_schedule
from tidemark.operations.savepoint_definitions import savepoint_jobs

__all__ = ["build_continuous_definitions", "build_drain_schedule", "control_jobs", "savepoint_jobs"]

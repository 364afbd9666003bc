"""Dagster jobs and schedules that operate streaming jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidemark.operations.continuous_definitions import build_continuous_definitions
from tidemark.operations.control_jobs import control_jobs
from tidemark.operations.drain_schedule import build_drain_schedule

if TYPE_CHECKING:
    from tidemark.operations.savepoint_definitions import savepoint_jobs

__all__ = ["build_continuous_definitions", "build_drain_schedule", "control_jobs", "savepoint_jobs"]


def __getattr__(name: str) -> object:
    # It brings the library of Delta tables, which a code location without it should not wait for.
    if name == "savepoint_jobs":
        from tidemark.operations.savepoint_definitions import savepoint_jobs

        return savepoint_jobs
    raise AttributeError(f"module 'tidemark.operations' has no attribute {name!r}")

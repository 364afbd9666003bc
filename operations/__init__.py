"""Dagster jobs and schedules that operate streaming jobs."""

from __future__ import annotations

from tidemark.operations.drain_schedule import build_drain_schedule

__all__ = ["build_drain_schedule"]

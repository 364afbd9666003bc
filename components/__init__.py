"""Dagster Components: streaming jobs in YAML."""

from __future__ import annotations

from tidemark.components.job_component import TidemarkJobComponent

__all__ = ["TidemarkJobComponent"]

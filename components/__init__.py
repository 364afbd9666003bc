"""Dagster Components: streaming jobs in YAML."""

from __future__ import annotations

from tidemark.components.job_component import TidemarkJobComponent
from tidemark.components.stream_component import TidemarkStreamComponent

__all__ = ["TidemarkJobComponent", "TidemarkStreamComponent"]

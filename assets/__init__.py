"""Streaming jobs as Dagster assets, with their checks."""

from __future__ import annotations

from tidemark.assets.checks.conservation import Conservation
from tidemark.assets.checks.expectations import expectation_checks
from tidemark.assets.checks.inputs_visible import InputsVisible
from tidemark.assets.checks.lateness_checks import LateRatio, WatermarkFreshness
from tidemark.assets.checks.pane_checks import NoGaps, UniquePanes
from tidemark.assets.checks.state_compatible import StateFits
from tidemark.assets.definitions.continuous import build_output_asset_specs
from tidemark.assets.definitions.job_health import build_health_checks
from tidemark.assets.definitions.standalone_checks import build_asset_checks
from tidemark.assets.definitions.streaming import build_source_asset_specs, streaming_assets
from tidemark.assets.streams.job_streams import StreamData
from tidemark.assets.streams.translator import TidemarkTranslator

__all__ = [
    "Conservation",
    "InputsVisible",
    "LateRatio",
    "NoGaps",
    "StateFits",
    "StreamData",
    "TidemarkTranslator",
    "UniquePanes",
    "WatermarkFreshness",
    "build_asset_checks",
    "build_health_checks",
    "build_output_asset_specs",
    "build_source_asset_specs",
    "expectation_checks",
    "streaming_assets",
]

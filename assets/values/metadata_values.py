"""The forms of metadata values that Tidemark gives to Dagster, which takes more of them than it has a public name for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import dagster as dg

MetadataItem = int | float | str | dg.MetadataValue[Any] | dg.TableSchema | dg.TableColumnLineage | None
"""One value: plain, or made by Dagster."""

MetadataValues = Mapping[str, MetadataItem]
"""Metadata by key."""

"""The types of metadata values that Tidemark passes to Dagster, which accepts more types than it has public names for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import dagster as dg

MetadataItem = int | float | str | dg.MetadataValue[Any] | dg.TableSchema | dg.TableColumnLineage | None
"""One value: plain, or made by Dagster."""

MetadataValues = Mapping[str, MetadataItem]
"""Metadata by key."""

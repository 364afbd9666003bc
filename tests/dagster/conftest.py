"""Warnings that Dagster gives about itself, which no test here can help."""

from __future__ import annotations

from pathlib import Path

import pytest

_DAGSTERS_OWN = (
    # Dagster's own code reads it for every resource.
    "ignore:InitResourceContext.dagster_run is deprecated:DeprecationWarning",
    # Dagster reads it of every resource that has no fields.
    "ignore:The `__fields__` attribute is deprecated:DeprecationWarning",
    # Great Expectations imports it.
    "ignore:module 'sre_(constants|parse|compile)' is deprecated:DeprecationWarning",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            for rule in _DAGSTERS_OWN:
                item.add_marker(pytest.mark.filterwarnings(rule))

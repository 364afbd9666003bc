"""Sandboxes of Dagster's Components, and the warnings that Dagster gives about itself in them."""

from __future__ import annotations

import pytest

MARKS = [
    pytest.mark.dagster,
    # Dagster reads its own YAML with a function of pydantic's that is deprecated.
    pytest.mark.filterwarnings("ignore:`parse_obj_as` is deprecated"),
    # Dagster itself notes which YAML a definition comes from, and copies it with all that it has.
    pytest.mark.filterwarnings("ignore:Class `(LocalFileCodeReference|CodeReferencesMetadataValue)` is currently in beta"),
    pytest.mark.filterwarnings("ignore:Parameter `(owners|execution_type)` of .* is currently in beta"),
    # Dagster looks at the components of all packages.
    pytest.mark.filterwarnings("ignore:Class `SparkDeclarativePipeline.*` is currently in preview"),
]


def texts_of(error: BaseException) -> str:
    """Return the texts of an error and its causes: Dagster wraps what a component raises."""
    texts: list[str] = []
    current: BaseException | None = error
    while current is not None:
        texts.append(str(current))
        current = current.__cause__
    return "\n".join(texts)

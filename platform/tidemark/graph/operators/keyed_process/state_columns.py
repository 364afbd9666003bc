"""The columns that hold the states of a process function."""

from __future__ import annotations

from tidemark.graph.operators.keyed_process.descriptors import StateDescriptor
from tidemark.graph.operators.state_names import partial_column

VALUE = "value"
RENEWED = "renewed"
"""The column of times from which lifetimes count, in the form of the values: of a list one for each, of a map by its keys."""


def value_column(state: str) -> str:
    """Return the column of a state's values."""
    return partial_column(state, VALUE)


def renewed_column(state: str) -> str:
    """Return the column of the times from which a state's lifetimes count."""
    return partial_column(state, RENEWED)


def columns_of(state: str, descriptor: StateDescriptor) -> dict[str, str]:
    """Return a state's columns with their types.

    >>> columns_of("tips", StateDescriptor("map", "DOUBLE", key_type="STRING"))
    {'tips__value': 'MAP<STRING, DOUBLE>'}
    """
    found = {value_column(state): _shaped(descriptor, descriptor.type)}
    if descriptor.ttl is not None:
        found[renewed_column(state)] = _shaped(descriptor, "BIGINT")
    return found


def _shaped(descriptor: StateDescriptor, kind: str) -> str:
    if descriptor.kind == "list":
        return f"ARRAY<{kind}>"
    return f"MAP<{descriptor.key_type}, {kind}>" if descriptor.kind == "map" else kind

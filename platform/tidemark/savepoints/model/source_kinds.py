"""Kinds of sources: as a driver records them, so that other processes can inspect their retention, and as positions show them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tidemark.errors import DefinitionError
from tidemark.graph.model.nodes import SourceNode
from tidemark.graph.model.postgres_changes_spec import PostgresChangesSpec
from tidemark.graph.model.source_specs import DeltaTableSpec, ElementsSpec, FilesSpec, FormatSpec, RateSpec
from tidemark.locations import Location
from tidemark.state.status.status import SourceStatus

OF_FILES: Final = frozenset({"files", "elements"})
"""Kinds of sources that are read file by file."""


def kind_of_position(position: object) -> str | None:
    """Return the kind of source that a position is one of, None for a kind that is not known here.

    >>> [kind_of_position(each) for each in ({"logOffset": 3}, {"reservoirId": "a", "index": 0}, {"rides": {"0": 17}}, 42, {"a": 1})]
    ['files', 'delta', 'kafka', 'rate', None]
    >>> kind_of_position({"slot": "a", "lsn": "0/1"})
    'postgres'
    """
    if isinstance(position, int) and not isinstance(position, bool):
        return "rate"
    if not isinstance(position, Mapping) or not position:
        return None
    if "logOffset" in position:
        return "files"
    if "reservoirId" in position:
        return "delta"
    if "slot" in position:
        return "postgres"
    return "kafka" if all(isinstance(each, Mapping) for each in position.values()) else None


def source_status(source: SourceNode) -> SourceStatus:
    """Return a source's kind and, of its options, only the location of a Delta table, since others may be secret."""
    match source.spec:
        case ElementsSpec():
            return SourceStatus("elements")
        case FilesSpec():
            return SourceStatus("files")
        case DeltaTableSpec(path=table):
            return SourceStatus("delta", _place(table))
        case PostgresChangesSpec():
            return SourceStatus("postgres")
        case RateSpec():
            return SourceStatus("rate")
        case FormatSpec(format, options):
            name = format.lower()
            path = next((value for key, value in options.items() if key.lower() == "path"), None)
            return SourceStatus(name, _place(path) if name == "delta" and path is not None else None)


def _place(path: str) -> str | None:
    """Return a location as an absolute address, None if its kind is unknown."""
    try:
        return str(Location.parse(path))
    except DefinitionError:
        return None

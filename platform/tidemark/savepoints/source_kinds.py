"""What a job's driver notes of its sources, so that others can ask how long these keep what was read."""

from __future__ import annotations

from tidemark.errors import DefinitionError
from tidemark.graph.nodes import ElementsSpec, FilesSpec, FormatSpec, RateSpec, SourceNode
from tidemark.locations import Location
from tidemark.state.status import SourceStatus


def source_status(source: SourceNode) -> SourceStatus:
    """Return what a source is; of its options nothing but the place of a Delta table, since others may be secret."""
    match source.spec:
        case ElementsSpec():
            return SourceStatus("elements")
        case FilesSpec():
            return SourceStatus("files")
        case RateSpec():
            return SourceStatus("rate")
        case FormatSpec(format, options):
            name = format.lower()
            path = next((value for key, value in options.items() if key.lower() == "path"), None)
            return SourceStatus(name, _place(path) if name == "delta" and path is not None else None)


def _place(path: str) -> str | None:
    """Return a place as it is found from anywhere, None where it is of a kind that is not known here."""
    try:
        return str(Location.parse(path))
    except DefinitionError:
        return None

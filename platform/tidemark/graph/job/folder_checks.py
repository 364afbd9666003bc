"""Checks that no folder of a job lies where another of its parts reads, or deletes, whatever it finds."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from tidemark.errors import DefinitionError
from tidemark.graph.model.nodes import DeltaSpec, ParquetSpec, SourceNode
from tidemark.graph.model.source_specs import DeltaTableSpec, FilesSpec
from tidemark.locations import Location

if TYPE_CHECKING:
    from tidemark.graph.job.job import Job

_CHOOSES_FILES = frozenset({"pathglobfilter", "modifiedafter", "modifiedbefore"})
"""Options of Spark's by which a source leaves files out."""

_SAME = "so that what one writes is read, replaced or deleted by the other"


class _Folder(NamedTuple):
    """A folder: what has it, where that was defined, and what happens to the files of others that are below it.

    ``of_all`` says that this is so of all files below it, and not of those in folders alone that name values, such as ``day=1``.
    """

    name: str
    location: Location
    place: str | None
    harm: str = ""
    of_all: bool = True


def check_folders(job: Job, place: str | None, *, store: str | None = None) -> None:
    """Check the folders of sources, outputs and the store.

    A source of files reads those in its folder, and below it those in folders that name values. Below a Delta table ``VACUUM`` deletes
    what the table does not know; below any output nothing else may be, since many readers take all files there for its rows.

    Args:
        job: the job.
        place: where its store is named.
        store: that of a run; the one that the job declares by default.

    Raises:
        DefinitionError: one folder is at another, or within it.
    """
    sources, outputs = list(_sources(job)), list(_outputs(job))
    named = store or job.store
    stores = [_Folder("the store", Location.parse(named), place)] if named else []
    pairs = [(outer, inner) for outer in sources for inner in (*outputs, *stores)]
    pairs += [(outer, inner) for outer in outputs for inner in (*outputs, *sources, *stores) if inner is not outer]
    for outer, inner in pairs:
        parts = _parts_below(inner.location, outer.location)
        if parts is None or not (outer.of_all or all("=" in part for part in parts)):
            continue
        at = "is within" if parts else "is"
        shown = f", {outer.location}" if parts else ""
        raise DefinitionError(
            f"the folder of {inner.name}, {inner.location}, {at} that of {outer.name}{shown}, {outer.harm if parts else _SAME}",
            fix="give each a folder of its own, beside the other",
            job=job.name,
            place=inner.place or outer.place or place,
        )


def _sources(job: Job) -> Iterator[_Folder]:
    for node in job.nodes:
        if not isinstance(node, SourceNode) or not isinstance(node.spec, FilesSpec | DeltaTableSpec):
            continue
        found = _location(node.spec.path)
        options = {name.lower(): text for name, text in node.spec.options.items()} if isinstance(node.spec, FilesSpec) else {}
        if found is None or _CHOOSES_FILES & options.keys():
            continue
        is_table = isinstance(node.spec, DeltaTableSpec)
        of_all = is_table or options.get("recursivefilelookup", "").lower() == "true"
        harm = "whose VACUUM would delete its files" if is_table else "which would read its files"
        yield _Folder(f"source {node.name!r}", found, node.place, harm, of_all)


def _outputs(job: Job) -> Iterator[_Folder]:
    for name, output in job.outputs.items():
        if isinstance(output.sink, DeltaSpec | ParquetSpec):
            yield _Folder(
                f"output {name!r}", Location.parse(output.sink.path), output.place, "which would delete its files, or take them for rows"
            )


def _location(path: str) -> Location | None:
    """Return the location of a source; None of a pattern."""
    try:
        return Location.parse(path)
    except DefinitionError:
        return None


def _parts_below(inner: Location, outer: Location) -> tuple[str, ...] | None:
    """Return the folders that lead from a location to another one within it; None if it is not, or is hidden from all readers."""
    one, other = inner.real_parts, outer.real_parts
    if one[: len(other)] != other:
        return None
    below = one[len(other) :]
    return None if any(part.startswith((".", "_")) for part in below) else below

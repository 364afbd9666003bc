"""Checks that no folder of a job lies where another of its parts reads, or deletes, whatever it finds."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, NamedTuple

from tidemark.errors import DefinitionError
from tidemark.graph.model.nodes import DeltaSpec, ParquetSpec, SourceNode
from tidemark.graph.model.source_specs import DeltaTableSpec, FilesSpec
from tidemark.locations import Location

if TYPE_CHECKING:
    from tidemark.graph.job.job import Job

_CHOOSES_FILES = frozenset({"pathglobfilter", "modifiedafter", "modifiedbefore"})
"""Options of Spark's by which a source leaves files out."""


class _Folder(NamedTuple):
    """A folder: what has it, where that was defined, and whether the job writes there."""

    name: str
    location: Location
    place: str | None
    is_written: bool


def real_path(location: Location) -> str:
    """Return the path of a location without symbolic links, by which one folder has several paths."""
    return os.path.realpath(location.path) if location.scheme == "file" else location.path


def check_folders(job: Job, place: str) -> None:
    """Check the folders of sources, outputs and the store.

    A source of files reads all that is below its folder, so no output and no store may be there; nothing else may be below an output,
    whose readers take all files for theirs, and where a Delta table's ``VACUUM`` deletes what it does not know.

    Raises:
        DefinitionError: one folder is at another, or within it.
    """
    sources, outputs = list(_sources(job)), list(_outputs(job))
    store = [_Folder("the store", Location.parse(job.store), place, is_written=True)] if job.store else []
    for outer in (*sources, *outputs):
        for inner in (*outputs, *store) if not outer.is_written else (*outputs, *sources, *store):
            if inner is outer or not _is_within(inner.location, outer.location):
                continue
            why = "would delete or read its files" if outer.is_written else "would read what the job writes"
            at = "is" if real_path(inner.location) == real_path(outer.location) else "is within"
            raise DefinitionError(
                f"the folder of {inner.name}, {inner.location}, {at} that of {outer.name}{_shown(inner, outer)}, which {why}",
                fix="give each a folder of its own, beside the other",
                place=inner.place or outer.place or place,
            )


def _shown(inner: _Folder, outer: _Folder) -> str:
    return "" if inner.location == outer.location else f", {outer.location}"


def _sources(job: Job) -> Iterator[_Folder]:
    for node in job.nodes:
        if isinstance(node, SourceNode) and isinstance(node.spec, FilesSpec | DeltaTableSpec):
            options = node.spec.options if isinstance(node.spec, FilesSpec) else {}
            found = None if _CHOOSES_FILES & {*map(str.lower, options)} else _location(node.spec.path)
            if found is not None:
                yield _Folder(f"source {node.name!r}", found, node.place, is_written=False)


def _outputs(job: Job) -> Iterator[_Folder]:
    for name, output in job.outputs.items():
        if isinstance(output.sink, DeltaSpec | ParquetSpec):
            yield _Folder(f"output {name!r}", Location.parse(output.sink.path), output.place, is_written=True)


def _location(path: str) -> Location | None:
    """Return the location of a source; None of a pattern."""
    try:
        return Location.parse(path)
    except DefinitionError:
        return None


def _is_within(inner: Location, outer: Location) -> bool:
    """Return whether files of one location are among those that a reader of another finds, which passes over hidden folders."""
    one, other = (PurePosixPath("/", real_path(each)).parts for each in (inner, outer))
    if (inner.scheme, inner.bucket) != (outer.scheme, outer.bucket) or one[: len(other)] != other:
        return False
    return not any(part.startswith((".", "_")) for part in one[len(other) :])

"""Columns whose values are in the names of folders: ``day`` of ``landing/day=2024-01-01/a.json`` below the source's folder ``landing``."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Sequence
from typing import Final

from tidemark.graph.model.nodes import PATTERN_CHARACTERS
from tidemark.graph.model.source_specs import FilesSpec
from tidemark.locations import absolute_path

ROOT: Final = "^(?:[A-Za-z][A-Za-z0-9+.-]*:(?://[^/]*)?)?"
"""The beginning of a path: nothing, or scheme and bucket."""

_ALL_FOLDERS: Final = "recursivefilelookup"
_UNLIKE: Final = re.compile(r"\[CONFLICTING_(?:DIRECTORY_STRUCTURES|PARTITION_COLUMN_NAMES)\]")
_FOLDER: Final = re.compile(r"^\s+((?:\w+:)?/.*?)(?: SQLSTATE: \w+)?$", re.MULTILINE)
_FOLDERS_SHOWN: Final = 5


def folder_columns(spec: FilesSpec, path: str) -> tuple[str, ...]:
    """Return the columns that the folders of a file name, outermost first.

    >>> folder_columns(FilesSpec("/landing/x=1", "json", "n INT"), "file:///landing/x=1/day=2024-01-01/hour=7/a=b.json")
    ('day', 'hour')
    """
    depth = depth_of(spec)
    return tuple(part.partition("=")[0] for part in _parts(path)[depth:-1] if "=" in part) if depth else ()


def files_by_columns(spec: FilesSpec, paths: Sequence[str]) -> list[list[str]]:
    """Return files in groups whose folders name the same columns; of files of several groups Spark reads only one group, or none.

    >>> files_by_columns(FilesSpec("/landing", "json", "n INT"), ["/landing/a.json", "/landing/day=1/b.json", "/landing/day=2/c.json"])
    [['/landing/a.json'], ['/landing/day=1/b.json', '/landing/day=2/c.json']]
    """
    if not any("=" in path for path in paths):
        return [list(paths)]
    groups: dict[tuple[str, ...], list[str]] = {}
    for path in paths:
        groups.setdefault(folder_columns(spec, path), []).append(path)
    return list(groups.values())


def reads_all_folders(spec: FilesSpec) -> bool:
    """Whether a source reads the files of all folders below its own; none of these names a value then."""
    return any(name.lower() == _ALL_FOLDERS and value.lower() == "true" for name, value in spec.options.items())


def folder_fix(text: str) -> str | None:
    """Return what mends folders that Spark refuses to read together, by the text of its error; None for other errors."""
    if "[INVALID_PARTITION_VALUE]" in text:
        return "declare the column as STRING in schema=, or move the folder that names the value elsewhere"
    if not _UNLIKE.search(text):
        return None
    folders = _FOLDER.findall(text)
    more = f" and {len(folders) - _FOLDERS_SHOWN} more" if len(folders) > _FOLDERS_SHOWN else ""
    return (
        "let all folders name the same columns, as day=2024-01-01 does, and move others away; or write options={'recursiveFileLookup': "
        f"True}}, which reads all files, and takes no columns from names. The folders are {', '.join(folders[:_FOLDERS_SHOWN])}{more}"
    )


def depth_of(spec: FilesSpec) -> int:
    """Return the depth of a source's folder; 0 for a pattern, or for all folders, below which Spark infers no partition columns."""
    if any(character in spec.path for character in PATTERN_CHARACTERS) or reads_all_folders(spec):
        return 0
    return len(_parts(absolute_path(spec.path)))


def _parts(path: str) -> list[str]:
    """Return the folders of a path, without its scheme and bucket."""
    return [part for part in posixpath.normpath(re.sub(ROOT, "", path)).split("/") if part not in ("", ".")]

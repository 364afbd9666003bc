"""Checks of the local folders that sources of files read."""

from __future__ import annotations

from pathlib import Path

from tidemark.errors import SourceError
from tidemark.graph.model.nodes import PATTERN_CHARACTERS, SourceNode
from tidemark.locations import absolute_path


def local_folder(path: str) -> str | None:
    """Return the absolute path of a source's folder; None of a pattern, and of one that is not on a local disk."""
    local = path.removeprefix("file://")
    return None if "://" in local or any(character in local for character in PATTERN_CHARACTERS) else absolute_path(local)


def require_folder(node: SourceNode, path: str, *, job: str | None = None) -> None:
    """Make sure that a source's path is a folder, if it is local and no pattern.

    Raises:
        SourceError: it is not there, or is a file.
    """
    found = local_folder(path)
    if found is None:
        return
    folder, local = Path(found), path.removeprefix("file://")
    if not folder.exists():
        raise SourceError(
            f"folder {local!r} of source {node.name!r} does not exist",
            fix="create it, or correct the path given to tm.files(...)",
            job=job,
            uid=node.name,
            place=node.place,
        )
    if not folder.is_dir():
        raise SourceError(
            f"{local!r} of source {node.name!r} is a file, not a folder that files arrive in",
            fix=f"give its folder, tm.files({str(Path(local).parent)!r}, ...), or a pattern of files: tm.files({_pattern(local)!r}, ...)",
            job=job,
            uid=node.name,
            place=node.place,
        )


def _pattern(path: str) -> str:
    return str(Path(path).with_name(f"*{Path(path).suffix}"))

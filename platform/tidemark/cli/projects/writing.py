"""Writes a project's folder: whole, or not at all."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

from tidemark.errors import DefinitionError


def write_folder(folder: Path, files: Mapping[str, str]) -> None:
    """Write files into a new folder: beside it first, under a hidden name, and then renamed.

    Args:
        folder: it is missing, or empty.
        files: texts by path within it.

    Raises:
        DefinitionError: there is a file, a link, or a folder with files in its place; the folder above it is missing, or cannot be
            read or written.
    """
    try:
        _require_free(folder)
        with TemporaryDirectory(prefix=f".{folder.name}-", dir=folder.parent) as scratch:
            made = Path(scratch) / folder.name
            for path, text in files.items():
                target = made / path
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_text(text, encoding="utf-8")
            # The system refuses it if files have come into the folder since.
            os.rename(made, folder)  # noqa: PTH104 - the name says that it replaces no folder with files
    except OSError as error:
        raise DefinitionError(f"{folder} cannot be written: {error.strerror or error}", fix="give another folder with --in") from error


def _require_free(folder: Path) -> None:
    fix = "take another name, or another folder with --in"
    if not folder.parent.is_dir():
        raise DefinitionError(f"there is no folder {folder.parent}", fix="create it, or give another with --in")
    if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
        raise DefinitionError(f"{folder} exists, and is no folder", fix=fix)
    if folder.is_dir() and any(folder.iterdir()):
        raise DefinitionError(f"{folder} exists, and has files in it", fix=fix)

"""Packages a job's code for Spark to ship to other machines: archives that Python imports from, named by their content."""

from __future__ import annotations

import hashlib
import logging
import shutil
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from tidemark.errors import LaunchError, LaunchRefusedError

logger = logging.getLogger("tidemark")

_ARCHIVES: Final = frozenset((".zip", ".whl", ".egg"))
_KEYS: Final = frozenset((".key", ".p12", ".pfx", ".jks", ".keystore", ".kdbx"))
"""File suffixes of keys; a ``.pem`` may contain certificates only, so its content is checked."""

_PRIVATE: Final = b"PRIVATE KEY-----"
_BEGINNING: Final = (1980, 1, 1, 0, 0, 0)
"""The time of every member, so that equal code makes an equal archive."""


def package_code(places: Iterable[Path], folder: Path) -> tuple[Path, ...]:
    """Package code into archives in a folder, and return them.

    A wheel becomes a zip, since Spark puts only files of that name on the path of its Python workers; it must be pure Python, as
    everything imported from an archive. A folder is zipped without files that no import finds (with a leading dot in their name, such as
    ``.env``) and without private keys, since all machines of the cluster read the archive. Names contain a checksum, so that other code
    never has the same name.

    Raises:
        LaunchError: a path is neither a folder nor an archive, or cannot be read.
    """
    folder.mkdir(parents=True, exist_ok=True)
    try:
        return tuple(_package(place, folder) for place in places)
    except (OSError, zipfile.BadZipFile) as error:
        raise LaunchError(
            f"the job's code cannot be shipped: {error}", fix="set code_paths to readable folders, zips and wheels"
        ) from error


def _package(place: Path, folder: Path) -> Path:
    temporary = folder / f".{place.name}.making"
    if place.is_dir():
        with zipfile.ZipFile(temporary, "w", zipfile.ZIP_DEFLATED) as archive:
            for file in _code_in(place):
                member = zipfile.ZipInfo(file.relative_to(place).as_posix(), _BEGINNING)
                member.compress_type = zipfile.ZIP_DEFLATED
                archive.writestr(member, file.read_bytes())
    elif place.suffix in _ARCHIVES:
        _require_pure(place)
        shutil.copyfile(place, temporary)
    else:
        raise LaunchRefusedError(f"{place} is neither a folder nor a zip or wheel", fix="set code_paths to folders, zips and wheels")
    named = folder / f"{place.stem}-{hashlib.sha256(temporary.read_bytes()).hexdigest()[:12]}.zip"
    temporary.replace(named)
    return named


def _code_in(folder: Path) -> Iterator[Path]:
    for path in sorted(folder.rglob("*")):
        parts = path.relative_to(folder).parts
        if not path.is_file() or path.suffix == ".pyc" or any(part == "__pycache__" or part.startswith(".") for part in parts):
            continue
        if _holds_key(path):
            logger.warning("%s is not shipped with the code in %s: it holds a private key", path.name, folder)
            continue
        yield path


def _holds_key(path: Path) -> bool:
    return path.suffix in _KEYS or (path.suffix in {".pem", ""} and _PRIVATE in path.read_bytes())


def _require_pure(place: Path) -> None:
    with zipfile.ZipFile(place) as archive:
        compiled = next((name for name in archive.namelist() if name.endswith((".so", ".pyd", ".dylib"))), None)
    if compiled is not None:
        raise LaunchRefusedError(
            f"{place.name} contains {compiled}, and compiled code cannot be imported from an archive",
            fix="install it on every machine of the cluster, and leave it out of code_paths",
        )

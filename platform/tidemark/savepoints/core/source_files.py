"""The files that a source has read, from the copies of its log, and whether they still exist."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final
from urllib.parse import unquote

from tidemark.errors import StoreError
from tidemark.locations import Location
from tidemark.savepoints.core.expiry import ReadFile
from tidemark.state.log.records import SourceLogRef
from tidemark.state.store.store import JobStore

MAX_BYTES: Final = 64 * 1024 * 1024
"""The longest log, in bytes, that is read only to find out how long its files are kept."""

_THREADS: Final = 32


def source_files_read(folder: JobStore, log: SourceLogRef) -> tuple[ReadFile, ...]:
    """Return the files that a source's log has, oldest entry first.

    Args:
        folder: the store at the job's folder.
        log: of the source.

    Raises:
        StoreError: the log is too long, does not exist, or cannot be read.
    """
    size = sum(file.bytes for file in log.files)
    if size > MAX_BYTES:
        raise StoreError(f"its log of {size:,} bytes is too long to be read", fix="check yourself whether the files exist")
    found: dict[str, ReadFile] = {}
    for file in log.files:
        try:
            # A version, then a line of JSON for each file.
            lines = folder.get(file.path).decode().splitlines()[1:]
            entries = [json.loads(line) for line in lines if line]
            found |= {entry["path"]: ReadFile(entry["path"], int(entry["timestamp"]), int(entry["batchId"])) for entry in entries}
        except (FileNotFoundError, ValueError, KeyError, TypeError) as error:
            raise StoreError(
                f"the copy of its log, {folder.location.joined(file.path)}, cannot be read",
                fix="restore the file from a backup of the job store",
            ) from error
    return tuple(found.values())


class FileExistence:
    """Checks whether files of sources exist, each only once; an ``expiry.ExistenceCheck``.

    Raises, when called:
        StoreError: they cannot be accessed from here.
        DefinitionError: their location is of an unknown kind.
    """

    def __init__(self) -> None:
        self._known: dict[str, bool] = {}
        self._stores: dict[str, JobStore] = {}

    def __call__(self, addresses: Sequence[str]) -> list[bool]:
        """Return for each file whether it exists."""
        new = [address for address in dict.fromkeys(addresses) if address not in self._known]
        if len(new) > 1 and not _is_local(new[0]):
            self._store_of(new[0])  # once, before the threads ask for it
            with ThreadPoolExecutor(min(_THREADS, len(new)), thread_name_prefix="tidemark-look") as threads:
                self._known.update(zip(new, threads.map(self._exists, new), strict=True))
        else:
            self._known.update((address, self._exists(address)) for address in new)
        return [self._known[address] for address in addresses]

    def _exists(self, address: str) -> bool:
        if not _is_local(address):
            return self._store_of(address).exists(unquote(address).partition("://")[2].partition("/")[2])
        try:
            return local_path(address).exists()
        except OSError as error:
            raise StoreError(f"{local_path(address)} cannot be accessed: {error.strerror}", fix="check its permissions") from error

    def _store_of(self, address: str) -> JobStore:
        scheme, _, rest = address.partition("://")
        root = f"{scheme}://{rest.partition('/')[0]}"
        if root not in self._stores:
            self._stores[root] = JobStore.open(Location.parse(root))
        return self._stores[root]


def require_visible(files: Sequence[ReadFile]) -> None:
    """Make sure that local files are visible from here: on another machine than the driver's all of them would look deleted.

    Raises:
        StoreError: the folder that contains them all does not exist here.
    """
    paths = [str(local_path(file.address).parent) for file in files if _is_local(file.address)]
    folder = os.path.commonpath(paths) if paths else None
    if folder is not None and not Path(folder).is_dir():
        raise StoreError(f"their folder {folder} does not exist on this machine", fix="run this on the driver's machine")


def local_path(address: str) -> Path:
    """Return the path of an address that Spark's log has.

    >>> str(local_path("file:///landing/a%20b.json"))
    '/landing/a b.json'
    """
    return Path("/" + unquote(address).removeprefix("file:").lstrip("/"))


def _is_local(address: str) -> bool:
    return address.startswith("file:")

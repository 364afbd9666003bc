"""Tombstones: files found unused and waiting for their deletion, so that two passes of a sweep lie more than a lease apart."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from tidemark.errors import CorruptStoreError
from tidemark.state.encoding.codec import from_jsonable, to_jsonable
from tidemark.state.encoding.envelope import decode_envelope, encode_envelope
from tidemark.state.store.layout import sweep_path
from tidemark.state.store.store import JobStore

KIND: Final = "sweep"


@dataclass(frozen=True)
class Tombstones:
    """Files found unused, by path, with the time (milliseconds) at which each was first found so."""

    marked: Mapping[str, int]


@dataclass(frozen=True)
class TombstoneList:
    """The tombstones that one kind of sweep keeps in a folder of the job's.

    A driver writes a list under its term, so that a fenced driver's last write never replaces a newer driver's.
    """

    store: JobStore
    folder: str

    def read(self) -> Mapping[str, int]:
        """Return the marked files, of any term; a damaged list counts as none, and its files are marked again."""
        return {path: since for file in self.store.list(self.folder) for path, since in self._read(file.path).items()}

    def replace(self, marked: Mapping[str, int], *, term: int) -> None:
        """Write a term's list and remove those of older terms; writes nothing if nothing is and was marked."""
        written = sweep_path(f"{term:08d}", self.folder)
        older = [file.path for file in self.store.list(self.folder) if file.path <= written]
        if marked or older:
            self.store.put(written, encode_envelope(KIND, to_jsonable(Tombstones(marked))))
        self.store.delete(path for path in older if path < written)

    def _read(self, path: str) -> Mapping[str, int]:
        try:
            _, body = decode_envelope(self.store.get(path), kind=KIND, path=path)
            return from_jsonable(Tombstones, body, path=path).marked
        except (FileNotFoundError, CorruptStoreError):
            return {}

"""Segments in the store: immutable lists of files, found by their content."""

from __future__ import annotations

from tidemark.crashpoints import crash_point
from tidemark.state.encoding.envelope import damaged, sha256
from tidemark.state.log.epoch_codec import SegmentRef
from tidemark.state.store.layout import segment_path
from tidemark.state.store.store import JobStore

_REMEMBERED = 64


class SegmentStore:
    """Reads and writes segments; ``store`` is the store at the job's folder. Remembers the last few it read."""

    def __init__(self, store: JobStore) -> None:
        self._store = store
        self._read: dict[SegmentRef, bytes] = {}

    def write(self, data: bytes, *, term: int) -> SegmentRef:
        """Store a segment for a term; the same bytes again are the same segment."""
        ref = SegmentRef(segment_path(term, sha256(data)), sha256(data))
        try:
            self._store.create(ref.path, data)
        except FileExistsError:
            self.read(ref)
        crash_point("segment-written")
        return ref

    def read(self, ref: SegmentRef) -> bytes:
        """Return a segment's bytes.

        Raises:
            CorruptStoreError: it is missing, or not what the reference says.
        """
        known = self._read.get(ref)
        if known is not None:
            return known
        try:
            data = self._store.get(ref.path)
        except FileNotFoundError as error:
            raise damaged("is missing", ref.path) from error
        if sha256(data) != ref.sha256:
            raise damaged("does not match the checksum that a record states", ref.path)
        while len(self._read) >= _REMEMBERED:
            self._read.pop(next(iter(self._read)))
        self._read[ref] = data
        return data

"""Parquet files of the job store: written from Arrow, and described from their footers alone.

A description has the file's rows and bytes, the bounds of a time column, and column statistics in Delta's form.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq

from tidemark.errors import CorruptStoreError
from tidemark.state.encoding.envelope import damaged
from tidemark.state.log.column_stats import delta_stats, time_bounds
from tidemark.state.log.records import StagedFile, StateFile
from tidemark.state.store.store import JobStore

_MAGIC = b"PAR1"
_TRAILER = 8
_TAIL = 32 * 1024
_THREADS = 8
_FIX = "restore the file from a backup of the job store; if it belongs to an epoch not committed yet, run the job again"


@dataclass(frozen=True)
class ParquetSummary:
    """One file, by its path relative to the store.

    ``min_time`` and ``max_time`` bound the time column in milliseconds, both inclusive, None where it has no value or no
    statistics. ``stats`` are statistics in Delta's form: ``numRecords``, ``minValues``, ``maxValues``, ``nullCount``.
    """

    path: str
    rows: int
    bytes: int
    min_time: int | None
    max_time: int | None
    stats: Mapping[str, object]

    def as_state_file(self, epoch: int) -> StateFile:
        """Return the entry for an operator's state, as written by an epoch."""
        return StateFile(self.path, self.rows, self.bytes, self.min_time, self.max_time, epoch)

    def as_staged_file(self) -> StagedFile:
        """Return the entry for a sink."""
        return StagedFile(self.path, self.rows, self.bytes, self.stats)


def describe_parquet(store: JobStore, paths: Sequence[str], time_column: str | None = None) -> list[ParquetSummary]:
    """Return one summary per path, in the paths' order; reads the files' ends only, several at a time.

    Args:
        store: where the files lie.
        paths: their paths in it.
        time_column: a BIGINT column of milliseconds, or a TIMESTAMP or DATE column, whose bounds are wanted.

    Raises:
        CorruptStoreError: a file is missing, empty, cut short, not Parquet, or lacks the time column.
        StoreError: a file cannot be read.
    """
    if len(paths) <= 1:
        return [_describe(store, path, time_column) for path in paths]
    with ThreadPoolExecutor(min(_THREADS, len(paths))) as threads:
        return list(threads.map(lambda path: _describe(store, path, time_column), paths))


def write_parquet(store: JobStore, path: str, rows: pa.Table, *, compression: str, time_column: str | None = None) -> ParquetSummary:
    """Write rows as one file, with a checksum per page; return its summary.

    Args:
        store: where the file lies.
        path: its path there, which is new.
        rows: few of them, since the file is made in memory.
        compression: a codec of Parquet.
        time_column: as for ``describe_parquet``.

    Raises:
        StoreError: it cannot be written.
    """
    written = pa.BufferOutputStream()
    collected: list[pq.FileMetaData] = []
    pq.write_table(rows, written, compression=compression, write_page_checksum=True, store_schema=False, metadata_collector=collected)
    data = written.getvalue()
    store.put(path, data.to_pybytes())
    return _summary(store, path, collected[0], data.size, time_column)


def read_parquet(store: JobStore, path: str, columns: Sequence[str] | None = None) -> pa.Table:
    """Return the rows of a file, few of them, with some columns, all by default.

    Raises:
        CorruptStoreError: the file is missing, not Parquet, or has a page with a wrong checksum.
        StoreError: it cannot be read.
    """
    try:
        data = store.get(path)
    except FileNotFoundError as error:
        raise _damaged(store, path, "is missing") from error
    try:
        return pq.read_table(pa.BufferReader(data), columns=None if columns is None else list(columns), page_checksum_verification=True)
    except (pa.ArrowException, OSError) as error:
        raise _damaged(store, path, "cannot be read as Parquet") from error


def parquet_schema(store: JobStore, path: str) -> pa.Schema:
    """Return the columns of a file, with what its writer noted about them; reads the file's end only.

    Raises:
        CorruptStoreError: the file is missing, empty, cut short, or not Parquet.
        StoreError: it cannot be read.
    """
    metadata, _ = _footer(store, path)
    try:
        return metadata.schema.to_arrow_schema()
    except pa.ArrowException as error:
        raise _damaged(store, path, "has columns of unknown types") from error


def _describe(store: JobStore, path: str, time_column: str | None) -> ParquetSummary:
    metadata, size = _footer(store, path)
    return _summary(store, path, metadata, size, time_column)


def _summary(store: JobStore, path: str, metadata: pq.FileMetaData, size: int, time_column: str | None) -> ParquetSummary:
    low, high = None, None
    if time_column is not None:
        if time_column not in metadata.schema.names:
            raise _damaged(store, path, f"has no column {time_column!r}")
        low, high = time_bounds(metadata, time_column)
    return ParquetSummary(path, metadata.num_rows, size, low, high, delta_stats(metadata))


def _footer(store: JobStore, path: str) -> tuple[pq.FileMetaData, int]:
    try:
        tail, size = store.tail(path, _TAIL)
        if len(tail) < _TRAILER or tail[-4:] != _MAGIC:
            raise _damaged(store, path, "is empty" if not size else "is cut short, or not a Parquet file")
        needed = struct.unpack("<I", tail[-_TRAILER:-4])[0] + _TRAILER
        if needed + len(_MAGIC) > size:
            raise _damaged(store, path, "has a footer larger than itself")
        if needed > len(tail):
            tail, size = store.tail(path, needed)
    except FileNotFoundError as error:
        raise _damaged(store, path, "is missing") from error
    try:
        metadata = pq.read_metadata(pa.BufferReader(_MAGIC + tail[-needed:]))
    except (pa.ArrowException, OSError) as error:
        raise _damaged(store, path, "has a damaged footer") from error
    if _data_end(metadata) + needed > size:
        raise _damaged(store, path, "is shorter than its footer says")
    return metadata, size


def _data_end(metadata: pq.FileMetaData) -> int:
    """Return the least size that the column chunks need, with the leading magic."""
    chunks = (
        metadata.row_group(group).column(column) for group in range(metadata.num_row_groups) for column in range(metadata.num_columns)
    )
    return len(_MAGIC) + sum(int(chunk.total_compressed_size) for chunk in chunks)


def _damaged(store: JobStore, path: str, what: str) -> CorruptStoreError:
    return damaged(what, str(store.location.joined(path)), fix=_FIX)

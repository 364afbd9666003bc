"""Reads an epoch's staged rows as records: a key, a value and headers, in the order of the files and of their rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from itertools import accumulate, repeat
from typing import Any, Final

import pyarrow.parquet as pq

from tidemark.spark.sinks.staging.local_copy import parquet_copy
from tidemark.state.log.records import StagedFile
from tidemark.state.store.store import JobStore

KEY: Final = "key"
VALUE: Final = "value"
HEADER: Final = "header_"
"""The columns of staged files: the key, the value, and each header by its name, see ``header_column``."""

BATCH_ROWS: Final = 20_000

Record = tuple[bytes | None, bytes | None, list[tuple[str, str | bytes | None]] | None]
"""A record's key, value and headers."""


def header_column(name: str) -> str:
    """Return the column of a header: Spark's columns differ by more than case, and those of files have no blanks.

    >>> header_column("Id")
    'header_4964'
    """
    return HEADER + name.encode().hex()


class StagedRecords:
    """The records of an epoch's staged files, in batches; ``close`` it.

    A file is copied to a temporary one, which is kept until the next is needed.

    Args:
        store: that the files are staged in.
        files: in their order.
    """

    def __init__(self, store: JobStore, files: Sequence[StagedFile]) -> None:
        self._store = store
        self._files = files
        self._open: tuple[str, pq.ParquetFile] | None = None
        self._copies = ExitStack()

    def close(self) -> None:
        """Delete the temporary file."""
        self._open = None
        self._copies.close()

    def between(self, start: int, stop: int) -> Iterator[Iterable[Record]]:
        """Return the records of some rows; only the files, and of these the row groups, that have some of them are read.

        Args:
            start: the first row's number among the rows of all files.
            stop: that of the first row which is not wanted any more.

        Raises:
            StoreError: a file cannot be read.
        """
        first = 0
        for file in self._files:
            last = first + file.rows
            if first < stop and last > start:
                yield from _of_file(self._opened(file.path), start - first, stop - first)
            first = last

    def _opened(self, path: str) -> pq.ParquetFile:
        if self._open is None or self._open[0] != path:
            self.close()
            self._open = path, self._copies.enter_context(parquet_copy(self._store, path))
        return self._open[1]


def _of_file(file: pq.ParquetFile, start: int, stop: int) -> Iterator[Iterable[Record]]:
    sizes = [file.metadata.row_group(number).num_rows for number in range(file.num_row_groups)]
    ends = list(accumulate(sizes))
    wanted = [number for number, end in enumerate(ends) if end > start and end - sizes[number] < stop]
    at = ends[wanted[0]] - sizes[wanted[0]] if wanted else 0
    for batch in file.iter_batches(batch_size=BATCH_ROWS, row_groups=wanted):
        rows = batch.num_rows
        low, high = max(start - at, 0), min(stop - at, rows)
        if low < high:
            yield _records(batch.slice(low, high - low))
        at += rows


def _records(batch: Any) -> Iterable[Record]:  # noqa: ANN401 - PyArrow has no types
    columns = [name for name in batch.schema.names if name.startswith(HEADER)]
    keys, values = batch.column(KEY).to_pylist(), batch.column(VALUE).to_pylist()
    if not columns:
        return zip(keys, values, repeat(None))
    names = [bytes.fromhex(name.removeprefix(HEADER)).decode() for name in columns]
    headers = zip(*(batch.column(name).to_pylist() for name in columns), strict=True)
    return ((key, value, list(zip(names, row, strict=True))) for key, value, row in zip(keys, values, headers, strict=True))

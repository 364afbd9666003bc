"""Reads an epoch's staged rows as records: a key, a value and headers, in the order of the files and of their rows."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Sequence
from itertools import repeat
from typing import Any, Final

import pyarrow.parquet as pq

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


def staged_records(store: JobStore, files: Sequence[StagedFile], start: int, stop: int) -> Iterator[Iterable[Record]]:
    """Return the records of some rows of all, in batches; only the files that have some of them are read.

    Args:
        store: that the files are staged in.
        files: in their order.
        start: the first row's number among the rows of all files.
        stop: that of the first row which is not wanted any more.

    Raises:
        StoreError: a file cannot be read.
    """
    first = 0
    for file in files:
        last = first + file.rows
        if first < stop and last > start:
            yield from _of_file(store.get(file.path), start - first, stop - first)
        first = last


def _of_file(data: bytes, start: int, stop: int) -> Iterator[Iterable[Record]]:
    at = 0
    for batch in pq.ParquetFile(io.BytesIO(data)).iter_batches(batch_size=BATCH_ROWS):
        rows = batch.num_rows
        low, high = max(start - at, 0), min(stop - at, rows)
        if low < high:
            yield _records(batch.slice(low, high - low))
        at += rows
        if at >= stop:
            return


def _records(batch: Any) -> Iterable[Record]:  # noqa: ANN401 - PyArrow has no types
    columns = [name for name in batch.schema.names if name.startswith(HEADER)]
    keys, values = batch.column(KEY).to_pylist(), batch.column(VALUE).to_pylist()
    if not columns:
        return zip(keys, values, repeat(None))
    names = [bytes.fromhex(name.removeprefix(HEADER)).decode() for name in columns]
    headers = zip(*(batch.column(name).to_pylist() for name in columns), strict=True)
    return ((key, value, list(zip(names, row, strict=True))) for key, value, row in zip(keys, values, headers, strict=True))

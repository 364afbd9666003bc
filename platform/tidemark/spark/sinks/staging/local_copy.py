"""Reads a staged file from a copy on the local disk, so that no more than a batch of it is in memory."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, cast

import pyarrow.parquet as pq

from tidemark.state.store.store import JobStore


@contextmanager
def parquet_copy(store: JobStore, path: str) -> Iterator[pq.ParquetFile]:
    """Return a Parquet file of a store, from a temporary copy that is deleted afterwards.

    Raises:
        FileNotFoundError: there is no such file.
        StoreError: it cannot be read.
    """
    with tempfile.TemporaryFile() as local:
        for chunk in store.chunks(path):
            local.write(chunk)
        local.seek(0)
        with pq.ParquetFile(cast("IO[bytes]", local)) as file:
            yield file

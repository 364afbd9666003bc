"""Few rows are processed in one task: then Spark neither shuffles them nor writes one file per partition."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.parquet as pq

from tidemark.graph.model.nodes import FunctionNode, Node, StatefulNode, TransformNode
from tidemark.graph.operators.registry import kind_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

FEW_BYTES: Final = 1024 * 1024
"""Up to so many bytes of an epoch's files, a second task costs more than it saves: measured with Parquet, where 1 MiB is 50,000 rows."""

FEW_ROWS: Final = 50_000
"""The same for rows of state."""

_DRIVER_BYTES: Final = 4 * 1024 * 1024

UNPACKED_BYTES: Final = 64 * 1024 * 1024
"""Up to so many bytes of rows that were packed are in the driver at once."""

_PACKED_ROWS: Final = 500_000
_PACKED_BYTES: Final = 16 * 1024 * 1024

_COMPRESSED: Final = frozenset({".bz2", ".deflate", ".gz", ".lz4", ".snappy", ".zst"})
"""Suffixes by which Hadoop knows that a file is compressed."""


def runs_python(nodes: Iterable[Node]) -> bool:
    """Whether a graph runs the user's Python functions, whose rows may take long and so keep several tasks."""
    return any(
        any(True for _ in kind_of(node).functions(node))
        if isinstance(node, StatefulNode)
        else isinstance(node, FunctionNode | TransformNode)
        for node in nodes
    )


def local_path(address: str) -> Path | None:
    """Return the path of a local file by its address, None for a file elsewhere."""
    return Path("/" + address.removeprefix("file:").lstrip("/")) if address.startswith("file:") else None


def has_few_rows(addresses: Iterable[str]) -> bool:
    """Whether local Parquet files have few rows together, by their footers; False where that is not known."""
    total = 0
    for address in addresses:
        path = local_path(address)
        if path is None:
            return False
        try:
            total += pq.read_metadata(path).num_rows
        except (OSError, pa.ArrowException):
            return False
        if total > FEW_ROWS:
            return False
    return True


def has_few_lines(addresses: Iterable[str]) -> bool:
    """Whether local text files have few lines together, however they end; False where that is not known, as of compressed ones."""
    return _have_few(addresses, b"\n\r")


def has_few_records(addresses: Iterable[str]) -> bool:
    """Whether local files of JSON have few records together, of which a line may have several; False where that is not known."""
    return _have_few(addresses, b"\n\r{")


def _have_few(addresses: Iterable[str], marks: bytes) -> bool:
    total = 0
    for address in addresses:
        path = local_path(address)
        if path is None or path.suffix.lower() in _COMPRESSED:
            return False
        try:
            with path.open("rb") as file:
                text = file.read(FEW_BYTES + 1)
        except OSError:
            return False
        # It has grown since it was listed.
        if len(text) > FEW_BYTES:
            return False
        total += sum(text.count(mark) for mark in marks) + 1
        if total > FEW_ROWS:
            return False
    return True


def driver_can_read(rows: int, size: int) -> bool:
    """Whether rows that a pass wrote, in files of so many bytes, are few enough for the driver to hold."""
    return rows <= FEW_ROWS and size <= _DRIVER_BYTES


def driver_can_unpack(rows: int, size: int) -> bool:
    """Whether packed rows, in files of so many bytes, are few enough for the driver, which unpacks and writes them with Arrow."""
    return rows <= _PACKED_ROWS and size <= _PACKED_BYTES


def in_one_task(rows: DataFrame) -> DataFrame:
    """Return rows in one partition, of which Spark knows that it needs no shuffle."""
    return rows.coalesce(1)

"""Elements given in the program, kept as one Parquet file per epoch, so that an epoch can be read again.

A file's name has the epoch's number and a digest of its elements. A program may add epochs from run to run, and change those that
were not read yet; one that was read is part of outputs and state, which a change would not reach.
"""

from __future__ import annotations

import hashlib
import io
import os
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from tidemark.errors import DefinitionError
from tidemark.graph.model.nodes import SourceNode
from tidemark.graph.model.source_specs import ElementsSpec
from tidemark.spark.columns.error_text import first_line
from tidemark.spark.columns.typed_batches import missing_values
from tidemark.state.store.store import JobStore

_HOLDS_NOTHING = "_elements"
"""Spark requires that the folder exists, and ignores files whose names begin so."""


def store_elements(node: SourceNode, spec: ElementsSpec, schema: StructType, *, store: JobStore, read: int) -> str:
    """Store a source's elements; returns the folder for Spark to read, in which each file is an epoch.

    Args:
        node: the source.
        spec: its elements.
        schema: of an element, and the row's number at the end.
        store: of the elements of all sources.
        read: the number of epochs that the job has committed.

    Raises:
        DefinitionError: an element does not fit the schema, or one that was read has changed; nothing was stored.
        LinkedPathError: elements of an earlier program lie behind a symbolic link, and are not deleted.
    """
    arrow = to_arrow_schema(schema, timezone="UTC")
    tables = [_as_table(node, batch, arrow, number) for number, batch in enumerate(spec.batches)]
    for number, table in enumerate(tables):
        _require_values(node, table, number)
    wanted = [f"{number:09d}-{_digest(table)}.parquet" for number, table in enumerate(tables)]
    folder = store.at(node.name)
    there = {file.path for file in folder.list()}
    _require_unchanged(node, wanted, sorted(there - {_HOLDS_NOTHING})[:read])
    stale = sorted(there - {*wanted, _HOLDS_NOTHING})
    for name in stale:
        # Spark would read a file that is left.
        folder.require_no_link(name)
    folder.delete(stale)
    if not there:
        folder.put(_HOLDS_NOTHING, b"")
    for number, (name, table) in enumerate(zip(wanted, tables, strict=True)):
        if name not in there:
            folder.put(name, _as_parquet(table))
        _date(folder, name, number)
    return store.spark_uri(node.name)


def _require_unchanged(node: SourceNode, wanted: Sequence[str], read: Sequence[str]) -> None:
    for number, name in enumerate(read):
        if number >= len(wanted) or wanted[number] != name:
            raise DefinitionError(
                f"the elements of source {node.name!r} in epoch {number} were read by an earlier run and are "
                f"now {'missing' if number >= len(wanted) else 'different'}",
                fix="leave epochs that were read as they are and add new ones after them, or give the job another name to start again",
                uid=node.name,
                place=node.place,
            )


def _as_table(node: SourceNode, batch: Sequence[Sequence[object]], schema: pa.Schema, number: int) -> pa.Table:
    rows = [(*row, (number << 32) + place) for place, row in enumerate(batch)]
    try:
        columns = list(zip(*rows, strict=True)) if rows else [()] * len(schema)
        return pa.Table.from_arrays([pa.array(c, f.type) for c, f in zip(columns, schema, strict=True)], schema=schema)
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise DefinitionError(
            f"an element of source {node.name!r} (epoch {number}) does not fit its schema: {first_line(error)}",
            fix="give rows with the columns and types of schema=...",
            uid=node.name,
            place=node.place,
        ) from error


def _require_values(node: SourceNode, table: pa.Table, number: int) -> None:
    """Raise DefinitionError for a null in a NOT NULL column, which Parquet does not take."""
    missing = next((name for column in table.schema for name in missing_values(column, table[column.name].combine_chunks())), None)
    if missing is not None:
        raise DefinitionError(
            f"an element of source {node.name!r} (epoch {number}) has no {missing!r}, which its schema declares NOT NULL",
            fix="give each element a value, or leave out NOT NULL in schema=...",
            uid=node.name,
            place=node.place,
        )


def _digest(table: pa.Table) -> str:
    """Return a digest of the rows; not of the file, in which the library's version is written."""
    stream = io.BytesIO()
    with pa.ipc.new_stream(stream, table.schema) as writer:
        writer.write_table(table)
    return hashlib.sha256(stream.getvalue()).hexdigest()[:16]


def _as_parquet(table: pa.Table) -> bytes:
    buffer = io.BytesIO()
    pq.write_table(table, buffer)
    return buffer.getvalue()


def _date(folder: JobStore, name: str, number: int) -> None:
    """Give local files ascending modification times, since Spark takes the oldest first; object stores list files by name."""
    local = folder.spark_uri(name).removeprefix("file://")
    if "://" not in local:
        os.utime(local, (1_000_000_000 + number, 1_000_000_000 + number))

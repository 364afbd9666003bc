"""Copies staged Parquet files into a temporary table: batch by batch, as CSV text that Arrow writes and COPY reads."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.csv as pa_csv

from tidemark.savepoints.postgres.tables import names, type_of
from tidemark.spark.sinks.staging.local_copy import parquet_copy
from tidemark.state.log.records import StagedFile
from tidemark.state.store.store import JobStore

if TYPE_CHECKING:
    from tidemark.savepoints.postgres.database import PostgresConnection

_BATCH_ROWS: Final = 16_384
# A null is nothing between two commas, and an empty text is quoted: so COPY distinguishes them.
_CSV: Final = pa_csv.WriteOptions(include_header=False, quoting_style="all_valid")


def copy_files(connection: PostgresConnection, into: str, files: Sequence[StagedFile], store: JobStore, columns: Mapping[str, str]) -> None:
    """Create a temporary table, which the end of the transaction drops, and copy rows into it.

    Args:
        connection: in a transaction.
        into: the temporary table's name.
        files: staged.
        store: that their paths are relative to.
        columns: the columns to copy, with their types of Postgres.
    """
    from psycopg import sql

    described = [sql.SQL("{} {}").format(sql.Identifier(name), type_of(kind)) for name, kind in columns.items()]
    table = sql.Identifier("pg_temp", into)
    connection.execute(sql.SQL("CREATE TEMPORARY TABLE {} ({}) ON COMMIT DROP").format(sql.Identifier(into), sql.SQL(", ").join(described)))
    statement = sql.SQL("COPY {} ({}) FROM STDIN (FORMAT csv)").format(table, names(list(columns)))
    with connection.cursor().copy(statement) as copy:
        for file in files:
            for text in _texts(file, store, list(columns)):
                copy.write(text)
    connection.execute(sql.SQL("ANALYZE {}").format(table))


def _texts(file: StagedFile, store: JobStore, columns: list[str]) -> Iterator[bytes]:
    with parquet_copy(store, file.path) as copied:
        for batch in copied.iter_batches(batch_size=_BATCH_ROWS, columns=columns):
            # By name: the file's order may be another.
            rows = pa.Table.from_batches([batch]).select(columns)
            written = pa.BufferOutputStream()
            pa_csv.write_csv(rows, written, _CSV)
            yield written.getvalue().to_pybytes()

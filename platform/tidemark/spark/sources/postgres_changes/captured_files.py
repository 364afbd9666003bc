"""Captured rows as files in the job's folder: written before the epoch that reads them is planned, read by Spark, also in a replay."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from pyspark.sql import functions as F
from pyspark.sql import types as T

from tidemark.crashpoints import crash_point
from tidemark.graph.model.postgres_changes_spec import CapturedTable, PostgresChangesSpec
from tidemark.spark.columns.expressions import quoted
from tidemark.spark.columns.schemas import no_rows, nullable, struct_of
from tidemark.spark.sources.intake import BLOCK, PATH, ROW
from tidemark.spark.sources.postgres_changes.positions import CapturedFile
from tidemark.state.log.parquet_files import write_parquet
from tidemark.state.store.layout import source_folder
from tidemark.state.store.store import JobStore

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FILE_BYTES: Final = 64 * 1024 * 1024
FILE_ROWS: Final = 200_000
"""After so many bytes of values, or so many rows, further rows are written to further files: the driver holds no more of them."""

_COMPRESSION: Final = "zstd"
_NUMBER: Final = "number"
"""The column of a row's number within the epoch, by which the changes of a key are ordered."""

_OWN: Final = pa.schema(
    [
        ("table", pa.string()),
        ("operation", pa.string()),
        ("committed_at", pa.timestamp("us", "UTC")),
        ("lsn", pa.int64()),
        ("tx", pa.int64()),
        (_NUMBER, pa.int64()),
    ]
)


@dataclass(frozen=True)
class CapturedRow:
    """A row, of the snapshot or of a change: its values as texts in the order of the declared columns, and where it is from.

    ``committed_at`` is in microseconds since 1970; ``lsn`` and ``tx`` are those of the transaction, None for rows of the snapshot.
    """

    operation: str
    committed_at: int
    values: tuple[str | None, ...]
    lsn: int | None = None
    tx: int | None = None

    @property
    def size(self) -> int:
        """The number of characters of its values."""
        return sum(len(value) for value in self.values if value is not None)


def captured_schema(spec: PostgresChangesSpec) -> T.StructType:
    """Return the columns of the rows, with the engine's, by which they are ordered."""
    return nullable(struct_of(spec.row_ddl)).add(PATH, "string").add(BLOCK, "long").add(ROW, "long")


def write_rows(store: JobStore, source: str, rows: Iterable[tuple[CapturedTable, CapturedRow]]) -> tuple[CapturedFile, ...]:
    """Write the rows of an epoch, a file for each table, or several of bounded size; nothing names the files yet.

    Args:
        store: at the job's folder.
        source: its name.
        rows: in the order of the changes of each key.

    Raises:
        StoreError: a file cannot be written.
    """
    files, attempt = list[CapturedFile](), uuid.uuid4().hex
    for held in _held(rows):
        for table, numbered in held.values():
            path = f"{source_folder(source)}/rows-{attempt}-{len(files)}.parquet"
            written = write_parquet(store, path, _arrow(table, numbered), compression=_COMPRESSION)
            files.append(CapturedFile(path, written.rows, written.bytes))
    crash_point("changes-copied")
    return tuple(files)


_Held = dict[str, tuple[CapturedTable, list[tuple[int, CapturedRow]]]]


def _held(rows: Iterable[tuple[CapturedTable, CapturedRow]]) -> Iterator[_Held]:
    """Yield rows by the labels of their tables, numbered over all of them, as many at a time as the driver holds."""
    held: _Held = {}
    count = size = 0
    for number, (table, row) in enumerate(rows):
        held.setdefault(table.label, (table, []))[1].append((number, row))
        count, size = count + 1, size + row.size
        if count >= FILE_ROWS or size >= FILE_BYTES:
            yield held
            held, count, size = {}, 0, 0
    yield held


def _arrow(table: CapturedTable, rows: Sequence[tuple[int, CapturedRow]]) -> pa.Table:
    names = table.columns.names
    # Texts of more than 2 GiB need 64 bits.
    values = [pa.array([row.values[place] for _, row in rows], pa.large_string()) for place in range(len(names))]
    columns = [
        pa.array([table.label] * len(rows), pa.string()),
        pa.array([row.operation for _, row in rows], pa.string()),
        pa.array([row.committed_at for _, row in rows], pa.timestamp("us", "UTC")),
        pa.array([row.lsn for _, row in rows], pa.int64()),
        pa.array([row.tx for _, row in rows], pa.int64()),
        pa.array([number for number, _ in rows], pa.int64()),
        pa.StructArray.from_arrays(values, names=list(names)),
    ]
    return pa.table(columns, names=[*_OWN.names, table.row_column])


def read_rows(spark: SparkSession, store: JobStore, spec: PostgresChangesSpec, files: Sequence[CapturedFile]) -> DataFrame:
    """Return the rows of an epoch's files, with the columns of ``captured_schema``; columns that a file lacks are null.

    Args:
        spark: the session.
        store: at the job's folder.
        spec: of the source.
        files: of the epoch.
    """
    schema = nullable(struct_of(spec.row_ddl))
    if not files:
        return no_rows(spark, captured_schema(spec))
    reader = spark.read.schema(T.StructType([*schema, T.StructField(_NUMBER, T.LongType())]))
    rows = reader.option("parquet.page.verify-checksum.enabled", "true").parquet(*(store.spark_uri(file.path) for file in files))
    return rows.select(
        *map(quoted, schema.names),
        F.lit("").alias(PATH),
        F.lit(0).cast("long").alias(BLOCK),
        F.col(_NUMBER).alias(ROW),
    )

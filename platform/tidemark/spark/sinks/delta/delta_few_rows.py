"""Copy-on-write of small tables without Spark: for few rows, planning and starting its jobs takes ten times as long as the rows do."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import types as T
from pyspark.sql.pandas.types import to_arrow_schema

from tidemark.errors import StoreError
from tidemark.spark.columns.error_text import first_line
from tidemark.spark.prepared.prepared_plan import is_writable
from tidemark.spark.sinks.delta.delta_files import LiveFile
from tidemark.spark.sinks.delta.delta_rewrite import COMPRESSION, Change, SparkRewriter, schema_of_text
from tidemark.spark.sinks.staging.arrow_files import write_rows
from tidemark.state.log.records import StagedFile

logger = logging.getLogger("tidemark")

MOST_ROWS: Final = 100_000
MOST_BYTES: Final = 8 * 1024 * 1024
"""Of more rows, or files with more bytes, Spark's tasks take care: the driver holds them all at a time."""

_COMPARED: Final = (
    T.BooleanType,
    T.ByteType,
    T.ShortType,
    T.IntegerType,
    T.LongType,
    T.BinaryType,
    T.DateType,
    T.TimestampType,
    T.TimestampNTZType,
)
"""Types whose values are equal to Arrow where they are to Spark, besides strings without a collation. Floats are not: NaN."""

_SOME: Final = {pa.string(): "", pa.binary(): b"", pa.bool_(): False}
"""A value of each type that has no 0."""

_NUMBER: Final = "__tm_number"


class FewRowsRewriter(SparkRewriter):
    """Rewrites few rows on the driver, others with Spark; arguments as of ``SparkRewriter``.

    Spark is asked, too, where a file cannot be read or has columns that Arrow does not convert: its error says what is wrong.
    """

    def touched(self, change: Change, files: Sequence[LiveFile]) -> dict[str, int]:
        """Return the number of rows to replace, by path, of the files that have any."""
        if _is_small(change, files):
            try:
                gone = self._gone(change)
                counts = {file.path: pc.sum(_among(self._rows(file.path, _keys(change)), gone)).as_py() or 0 for file in files}
                return {path: count for path, count in counts.items() if count}
            except (pa.ArrowException, OSError, StoreError) as error:
                logger.debug("the rows to replace are found by Spark: %s", first_line(error))
        return super().touched(change, files)

    def survivors(self, schema: str, change: Change, files: Sequence[LiveFile], folder: str) -> list[StagedFile]:
        """Write the rows of files that stay into a folder, in the files' order."""
        kind = schema_of_text(schema)
        if _is_small(change, files) and is_writable(kind):
            try:
                gone, keys = self._gone(change), list(change.upsert.keys)
                read = (self._rows(file.path, kind) for file in files)
                kept = pa.concat_tables([rows.filter(pc.invert(_among(rows.select(keys), gone))) for rows in read])
            except (pa.ArrowException, OSError, StoreError) as error:
                logger.debug("the rows that stay are written by Spark: %s", first_line(error))
            else:
                written = write_rows(self._store, folder, kept, kind, compression=COMPRESSION)
                return [file.as_staged_file() for file in written]
        return super().survivors(schema, change, files, folder)

    def _gone(self, change: Change) -> pa.Table:
        """Return the keys of new rows, some of them twice."""
        return pa.concat_tables([self._rows(file.path, _keys(change)) for file in change.files])

    def _rows(self, path: str, kind: T.StructType) -> pa.Table:
        """Return columns of a file; those that it lacks are null."""
        wanted = to_arrow_schema(kind, timezone="UTC")
        file = pq.ParquetFile(pa.BufferReader(self._store.get(path)), coerce_int96_timestamp_unit="us")
        there = set(file.schema_arrow.names)
        if {name.lower() for name in wanted.names if name not in there} & {name.lower() for name in there}:
            raise pa.ArrowInvalid(f"{path} spells a column otherwise, which Spark finds")
        found = file.read([name for name in wanted.names if name in there])
        rows = file.metadata.num_rows
        columns = [found[field.name].cast(field.type) if field.name in there else pa.nulls(rows, field.type) for field in wanted]
        return pa.table(columns, schema=wanted)


def _is_small(change: Change, files: Sequence[LiveFile]) -> bool:
    """Whether rows are few, and are replaced by nothing but their keys, which Arrow compares as Spark does."""
    upsert, given = change.upsert, change.type
    if upsert.versions or upsert.replaced_by(given) is not None or not change.files:
        return False
    rows = [file.rows for file in files]
    if None in rows or sum(row or 0 for row in rows) + sum(file.rows for file in change.files) > MOST_ROWS:
        return False
    if sum(file.bytes for file in files) + sum(file.bytes for file in change.files) > MOST_BYTES:
        return False
    return all(isinstance(given[key].dataType, _COMPARED) or given[key].dataType == T.StringType() for key in upsert.keys)


def _keys(change: Change) -> T.StructType:
    return T.StructType([change.type[key] for key in change.upsert.keys])


def _among(rows: pa.Table, gone: pa.Table) -> pa.ChunkedArray:
    """Return for each row whether it is among others; nulls are equal."""
    numbers = pa.array(range(rows.num_rows), pa.int64())
    found = _without_nulls(rows).append_column(_NUMBER, numbers).join(_without_nulls(gone), _names(rows), join_type="left semi")
    return pc.is_in(pa.chunked_array([numbers]), value_set=found[_NUMBER].combine_chunks())


def _names(rows: pa.Table) -> list[str]:
    return [str(number) for number in range(2 * rows.num_columns)]


def _without_nulls(rows: pa.Table) -> pa.Table:
    """Return each column with any value in the place of a null, and after it where the nulls are: a join has no nulls that are equal."""
    columns: list[pa.ChunkedArray] = []
    for column in rows.columns:
        columns += [_filled(column), pc.is_null(column)]
    return pa.table(columns, names=_names(rows))


def _filled(column: pa.ChunkedArray) -> pa.ChunkedArray:
    return column.fill_null(pa.scalar(_SOME.get(column.type, 0), column.type))

"""Few rows as Arrow has them, in files like those that Spark writes."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql import types as T
from pyspark.sql.pandas.types import to_arrow_schema

from tidemark.savepoints.delta.result_tables import SPARK_SCHEMA
from tidemark.spark.columns.state_files import write_few
from tidemark.state.log.parquet_files import ParquetSummary
from tidemark.state.store.store import JobStore


def write_rows(store: JobStore, folder: str, rows: pa.Table, schema: T.StructType, *, compression: str) -> list[ParquetSummary]:
    """Write rows as the only file of a folder; return its description, nothing where there are no rows.

    Args:
        store: where the folder is.
        folder: a new one.
        rows: few of them; their columns are made those of ``schema``.
        schema: as Spark has it, noted in the file as Spark does.
        compression: a codec of Parquet.

    Raises:
        StoreError: the file cannot be written.
    """
    table = rows.cast(to_arrow_schema(schema, timezone="UTC")).replace_schema_metadata({SPARK_SCHEMA: schema.json()})
    return write_few(store, folder, table, compression=compression)

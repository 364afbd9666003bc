"""Parquet folders that are written once, under a unique name, and never changed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING

from pyspark.sql.types import StructType

from tidemark.spark.file_relation import read_parquet
from tidemark.state.gc.state_file_check import owner_store
from tidemark.state.log.parquet_files import ParquetSummary, describe_parquet, write_parquet
from tidemark.state.log.records import StateFile
from tidemark.state.store.store import JobStore

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

_WRITE_OPTIONS = {
    "mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
    "mapreduce.fileoutputcommitter.algorithm.version": "2",
    "parquet.enable.summary-metadata": "false",
}

_READ_OPTIONS = {"parquet.page.verify-checksum.enabled": "true"}


def write_folder(
    rows: DataFrame,
    store: JobStore,
    folder: str,
    *,
    compression: str,
    time_column: str | None = None,
    options: Mapping[str, str] = MappingProxyType({}),
    apart: Sequence[str] = (),
) -> list[ParquetSummary]:
    """Write rows as Parquet files under a folder of a store; one Spark job.

    ``options`` are further ones of Spark's writer. Rows are partitioned by the columns ``apart`` into folders ``column=value``.

    Returns:
        The files that hold rows, described from their footers, in the order of their names; paths are relative to the store.
    """
    writer = rows.write.mode("error").options(**_WRITE_OPTIONS, **options).option("compression", compression)
    (writer.partitionBy(*apart) if apart else writer).parquet(store.spark_uri(folder))
    paths = [file.path for file in store.list(folder) if file.path.endswith(".parquet")]
    return [summary for summary in describe_parquet(store, paths, time_column) if summary.rows]


def write_few(store: JobStore, folder: str, rows: pa.Table, *, compression: str, time_column: str | None = None) -> list[ParquetSummary]:
    """Write few rows, read already, as the only file of a new folder, as ``write_folder`` does, without a Spark job."""
    if not rows.num_rows:
        return []
    return [write_parquet(store, f"{folder}/part-00000.parquet", rows, compression=compression, time_column=time_column)]


def read_files(spark: SparkSession, store: JobStore, files: Iterable[StateFile], schema: StructType) -> DataFrame:
    """Return the rows of state files, which all have this schema; a page with a wrong checksum fails the read.

    ``store`` is the store at the folder of the job whose record names the files; some may be in another job's folder.
    """
    return read_parquet(spark, [address_of(store, file) for file in files], schema, _READ_OPTIONS)


def address_of(store: JobStore, file: StateFile) -> str:
    """Return the address of a state file, which may be in another job's folder; ``store`` as for ``read_files``."""
    return owner_store(store, file).spark_uri(file.path)


def overlapping(files: Sequence[StateFile], low: int, high: int) -> list[StateFile]:
    """Return the files that may hold rows with a time in [low, high]."""
    return [file for file in files if (file.max_time is None or file.max_time >= low) and (file.min_time is None or file.min_time <= high)]

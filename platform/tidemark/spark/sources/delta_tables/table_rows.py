"""The rows of a Delta table's files, with the values of partition columns and, for changes, what each row is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import reduce
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from pyspark.sql import functions as F
from pyspark.sql import types as T

from tidemark.graph.model.source_specs import DeltaTableSpec
from tidemark.spark.columns.expressions import quoted
from tidemark.spark.columns.schemas import no_rows, nullable, struct_of
from tidemark.spark.sources.delta_tables.logged_versions import DataFile
from tidemark.spark.sources.intake import BLOCK, PATH

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_TYPE: Final = "_change_type"
_ADDED: Final = T.StructType().add(_TYPE, "string").add("_commit_version", "long").add("_commit_timestamp", "timestamp")
_FILE: Final = "__tm_file"
_NAME: Final = "__tm_file_name"
_GIVEN: Final = "__tm_given_"
_FILE_NAME: Final = "url_decode(replace(_metadata.file_name, '+', '%2B'))"
"""A file's name: Spark gives it as a part of an address, where a plus stands for itself."""


def table_schema(spec: DeltaTableSpec) -> T.StructType:
    """Return the columns of the rows, with the engine's of where they come from."""
    schema = _columns(spec)
    return schema.add(PATH, "string").add(BLOCK, "long")


def table_rows(spark: SparkSession, spec: DeltaTableSpec, files: Sequence[DataFile], addresses: Sequence[str]) -> DataFrame:
    """Return the rows of files, with the columns of ``table_schema``.

    Args:
        spark: the session.
        spec: of the source.
        files: to read.
        addresses: of the files, as Spark reads them, without characters of patterns.
    """
    parts = [_rows(spark, spec, part) for part in _parts(list(zip(files, addresses, strict=True)))]
    return reduce(lambda left, right: left.unionByName(right), parts) if parts else no_rows(spark, table_schema(spec))


def _columns(spec: DeltaTableSpec) -> T.StructType:
    schema = nullable(struct_of(spec.schema))
    return T.StructType([*schema, *_ADDED]) if spec.changes else schema


def _parts(files: Sequence[tuple[DataFile, str]]) -> Iterator[list[tuple[DataFile, str]]]:
    """Yield files that are read together: of one kind and with the same partition columns, and none has the name of another."""
    parts: dict[tuple[bool, tuple[str, ...], int], list[tuple[DataFile, str]]] = {}
    seen: dict[tuple[bool, str], int] = {}
    for file, address in files:
        feed, name = file.change == "feed", _name_of(file)
        number = seen[feed, name] = seen.get((feed, name), -1) + 1
        parts.setdefault((feed, tuple(sorted(file.partition or {})), number), []).append((file, address))
    yield from parts.values()


def _rows(spark: SparkSession, spec: DeltaTableSpec, part: Sequence[tuple[DataFile, str]]) -> DataFrame:
    files = [file for file, _ in part]
    columns, feed = _columns(spec), files[0].change == "feed"
    in_path = {name.lower() for name in files[0].partition or {}}
    stored = [field for field in nullable(struct_of(spec.schema)) if field.name.lower() not in in_path]
    read = T.StructType([*stored, *([_ADDED[_TYPE]] if feed else [])])
    metadata = [F.col("_metadata.file_path").alias(PATH), F.col("_metadata.file_block_start").alias(BLOCK)]
    rows = spark.read.schema(read).parquet(*(address for _, address in part))
    found = rows.select(*map(quoted, read.names), *metadata, F.expr(_FILE_NAME).alias(_NAME))
    values = [_values(file, spec, columns, in_path, feed=feed) for file in files]
    names = [name for name in columns.names if name not in read.names]
    if all(each == values[0] for each in values):
        given = {name: F.lit(values[0][name]) for name in names}
    else:
        # A join on the files' names: unions would make a plan as large as the number of partitions.
        texts: dict[str, list[str | None]] = {_FILE: [_name_of(file) for file in files]}
        texts |= {_GIVEN + name: [each[name] for each in values] for name in names}
        table = pa.table({name: pa.array(column, pa.string()) for name, column in texts.items()})
        found = found.join(F.broadcast(spark.createDataFrame(table)), F.col(_NAME) == F.col(_FILE), "left")
        unknown = F.raise_error(F.concat(F.lit("rows of a file that is not to be read: "), F.col(PATH)))
        given = {name: F.when(F.col(_FILE).isNull(), unknown.cast("string")).otherwise(F.col(quoted(_GIVEN + name))) for name in names}
    return found.select(*(_column(field, given) for field in columns), PATH, BLOCK)


def _name_of(file: DataFile) -> str:
    return file.path.rpartition("/")[2]


def _values(file: DataFile, spec: DeltaTableSpec, columns: T.StructType, in_path: set[str], *, feed: bool) -> dict[str, str | None]:
    """Return the values that the file itself does not have, as texts."""
    partition = {name.lower(): value for name, value in (file.partition or {}).items()}
    values = {name: partition[name.lower()] for name in columns.names if name.lower() in in_path}
    if spec.changes:
        values |= {} if feed else {_TYPE: file.change}
        values |= {"_commit_version": str(file.version), "_commit_timestamp": None if file.at is None else str(file.at)}
    return values


def _column(field: T.StructField, given: dict[str, Column]) -> Column:
    if field.name not in given:
        return F.col(quoted(field.name))
    value = given[field.name]
    if field.name == "_commit_timestamp":
        return F.timestamp_millis(value.cast("long")).alias(field.name)
    return value.cast(field.dataType).alias(field.name)

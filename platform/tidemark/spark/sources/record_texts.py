"""The texts of the records in an epoch's files, with the columns that Spark reads of each: a second reading, for malformed rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F
from pyspark.sql import types as T

from tidemark.graph.model.nodes import SourceNode
from tidemark.graph.model.source_specs import FilesSpec
from tidemark.spark.columns.expressions import CORRUPT, RAW, quoted
from tidemark.spark.columns.schemas import ddl_of, struct_of
from tidemark.spark.sources.files.folder_columns import ROOT, depth_of, folder_columns
from tidemark.spark.sources.sources import escaped

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_UTF_8: Final = ("", "utf-8", "utf8")
_PATH: Final = "__tm_path"
_READ: Final = "__tm_read"
_PADDING: Final = tuple(f"__tm_padding_{number}" for number in range(40))
"""Columns that no record has: Spark returns the texts of CSV records with an unexpected number of fields, so with these, of all records."""

_OF_THE_FILE: Final = ("header", "enforceschema", "linesep", "mode", "columnnameofcorruptrecord")
"""Options that are about files, not about a record in one."""


@dataclass(frozen=True)
class RecordTexts:
    """A second reading of the records of one source in one epoch.

    Args:
        spark: session of the epoch.
        node: the source.
        paths: of the epoch's files, where it consists of some.
    """

    spark: SparkSession
    node: SourceNode
    paths: Sequence[str] = ()

    def columns(self, spec: FilesSpec) -> tuple[T.StructType, list[T.StructField]]:
        """Return the columns of a record, and the partition columns that come from folder names."""
        schema = struct_of(spec.schema)
        below = {name for path in self.paths for name in folder_columns(spec, path)}
        folders = [field for field in schema if field.name in below]
        return T.StructType([field for field in schema if field not in folders]), folders

    def read(self) -> DataFrame | None:
        """Return the source's columns as read from each record, ``CORRUPT``, and the record's text as ``RAW``.

        None where records have no text of their own: other formats, multi-line JSON, other encodings than UTF-8. Only the text of a
        record is parsed, so columns that depend on the rest of the file may differ from the epoch's.
        """
        spec = self.node.spec
        if not isinstance(spec, FilesSpec) or spec.format not in ("json", "csv"):
            return None
        options = {name.lower(): value for name, value in spec.options.items()}
        encoding = options.get("encoding", options.get("charset", "")).lower()
        if encoding not in _UTF_8 or (spec.format == "json" and options.get("multiline", "").lower() == "true"):
            return None
        data, folders = self.columns(spec)
        texts = _texts(self.spark, spec, options, self.paths, data)
        columns = [
            _of_folder(field, depth_of(spec)) if field in folders else f"{_READ}.{quoted(field.name)}" for field in struct_of(spec.schema)
        ]
        read = texts.withColumn(_READ, F.expr(parsed_text(spec, RAW, data)))
        return read.selectExpr(*columns, f"{_READ}.{CORRUPT}", RAW)


def parsed_text(spec: FilesSpec, text: str, schema: T.StructType) -> str:
    """Return SQL that parses a record's text as the source does: a struct of the schema's columns and ``CORRUPT``."""
    columns = ", ".join(f"{quoted(field.name)} {ddl_of(field.dataType)}" for field in (*schema, T.StructField(CORRUPT, T.StringType())))
    read = {name: value for name, value in spec.options.items() if name.lower() not in _OF_THE_FILE}
    options = {**read, "mode": "PERMISSIVE", "columnNameOfCorruptRecord": CORRUPT}
    given = ", ".join(f"{_literal(name)}, {_literal(value)}" for name, value in options.items())
    return f"from_{spec.format}({text}, {_literal(columns)}, map({given}))"


def _texts(spark: SparkSession, spec: FilesSpec, options: Mapping[str, str], paths: Sequence[str], data: T.StructType) -> DataFrame:
    """Return the text of each record, and the path of its file."""
    files = [escaped(path) for path in paths]
    if spec.format == "json":
        reader = spark.read.format("text")
        if "linesep" in options:
            reader = reader.option("lineSep", options["linesep"])
        lines = reader.schema("value STRING").load(files)
        # Blank lines are no records.
        return lines.where(r"value RLIKE '\\S'").select(F.col("value").alias(RAW), F.col("_metadata.file_path").alias(_PATH))
    names = [*data.names, *_PADDING, CORRUPT]
    padded = T.StructType([T.StructField(name, T.StringType()) for name in names])
    given = {**spec.options, "mode": "PERMISSIVE", "columnNameOfCorruptRecord": CORRUPT, "enforceSchema": "true"}
    records = spark.read.format("csv").schema(padded).options(**given).load(files)
    # Spark refuses to read the texts alone; so the query reads each record's first field, too.
    read = f"{CORRUPT} IS NOT NULL AND length(coalesce({quoted(data.names[0])}, '')) >= 0"
    return records.where(read).select(F.col(CORRUPT).alias(RAW), F.col("_metadata.file_path").alias(_PATH))


def _of_folder(field: T.StructField, depth: int) -> str:
    """Return SQL of a partition column, from the names of folders below the source's."""
    name = field.name.replace("'", "\\'")
    text = f"regexp_extract({_PATH}, '{ROOT}(?:/[^/]*){{{depth}}}(?:/[^/]*)*?/\\\\Q{name}\\\\E=([^/]*)/', 1)"
    value = f"try_url_decode({text})"
    return f"try_cast(nullif({value}, '__HIVE_DEFAULT_PARTITION__') AS {ddl_of(field.dataType)}) AS {quoted(field.name)}"


def as_read_of_text(kind: T.DataType, value: str) -> str:
    """Return SQL that reads a value of a file's JSON as ``from_json`` reads it from a record's text.

    For a string column whose JSON value is no string, such as a number, the file reader returns the characters (``7.50``), and
    ``from_json`` the parsed value (``7.5``). After this both are equal.
    """
    if isinstance(kind, T.StringType):
        return f"coalesce(from_json(concat('[', {value}, ']'), 'array<string>')[0], {value})"
    if isinstance(kind, T.StructType):
        fields = (f"{_literal(field.name)}, {as_read_of_text(field.dataType, f'{value}.{quoted(field.name)}')}" for field in kind)
        return f"if({value} IS NULL, NULL, named_struct({', '.join(fields)}))"
    if isinstance(kind, T.ArrayType):
        return f"transform({value}, item -> {as_read_of_text(kind.elementType, 'item')})"
    if isinstance(kind, T.MapType):
        return f"transform_values({value}, (key, item) -> {as_read_of_text(kind.valueType, 'item')})"
    return value


def _literal(text: str) -> str:
    """Return a string as an SQL literal, whatever characters it has."""
    escapes = text.replace("\\", "\\\\").replace("'", "\\'").replace("\n", "\\n").replace("\r", "\\r").replace("\t", "\\t")
    return f"'{escapes}'"

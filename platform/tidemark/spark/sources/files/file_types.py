"""Types of columns in the Parquet and ORC files of a source: values that Spark would change without a word are an error."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from pyspark.sql.types import StructType

from tidemark.errors import SourceError
from tidemark.graph.model.source_specs import FilesSpec
from tidemark.spark.columns.schemas import struct_of
from tidemark.spark.compiled_java import shared_object
from tidemark.spark.sources.files.folder_columns import files_by_columns, folder_columns

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tidemark.graph.model.nodes import SourceNode

_SEPARATOR: Final = "\0"
_CLASS: Final = "FileTypes"
_CHANGED: Final = {"parquet": False, "orc": True}
"""Formats whose readers change values, and whether they change all that do not fit, and not just whole numbers."""


def require_types_of_files(spark: SparkSession, source: SourceNode, paths: Sequence[str]) -> None:
    """Raise if a file has a column whose values do not all fit the type that it is read as, by the files' footers.

    Args:
        spark: the session.
        source: that reads the files; only of Parquet and ORC are values changed.
        paths: of the files. One that cannot be read is left to the reader, whose error says what is wrong.

    Raises:
        SourceError: it names the column, its types and the file.
    """
    spec = source.spec
    if not isinstance(spec, FilesSpec) or spec.format not in _CHANGED or not paths:
        return
    types = shared_object(spark, __package__, _CLASS)
    for part in files_by_columns(spec, paths):
        besides = {name.lower() for name in folder_columns(spec, part[0])}
        read = StructType([field for field in struct_of(spec.schema) if field.name.lower() not in besides])
        found = types.misfit(spark._jsparkSession, _CHANGED[spec.format], _SEPARATOR.join(part), read.json())  # noqa: SLF001
        if not found:
            continue
        column, type_, declared, path = found.split(_SEPARATOR)
        raise SourceError(
            f"column {column!r} is {type_} in the file {path}, and {declared} in schema=: "
            "Spark would change values that do not fit without a word",
            fix=f"declare it as {type_} in schema=, and cast it in a later step",
            uid=source.name,
            place=source.place,
        )

"""Reads tables that streams look rows up in: versions of Delta tables, and Parquet folders and tables of databases as they are."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError
from pyspark.sql import types as T

from tidemark.errors import SourceError
from tidemark.graph.operators.lookup.node import LookupNode
from tidemark.locations import Location
from tidemark.spark.columns.error_text import first_line
from tidemark.spark.columns.schemas import no_rows, nullable
from tidemark.spark.operators.lookup.databases import database_rows
from tidemark.spark.sources.delta_tables.logged_versions import unreadable_features
from tidemark.state.encoding.redaction import without_secrets
from tidemark.state.store.store import JobStore, ListedFile

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_OF: Final = "@"
"""Between the number of a version and the id of its table."""


@dataclass(frozen=True)
class TableReader:
    """Reads an operator's table.

    Args:
        node: the operator.
    """

    node: LookupNode

    def newest(self) -> str:
        """Return the newest version of a Delta table: its number, and the id of the table, which another one in its place does not have.

        Raises:
            SourceError: there is no such table, or it cannot be read.
        """
        table = self._delta(None)
        return f"{table.version()}{_OF}{table.metadata().id}"

    def is_there(self, version: str) -> bool:
        """Return whether a version is that of the table that is in its place; those that an earlier build wrote do not say of which.

        Raises:
            SourceError: there is no table, or it cannot be read.
        """
        number, _, table = version.partition(_OF)
        if not table:
            return True
        try:
            found = self._delta(int(number))
        except SourceError:
            # It is too old, or another table in its place has fewer.
            found = self._delta(None)
        return str(found.metadata().id) == table

    def listing(self) -> str:
        """Return a hash of the names, sizes and times of the files of a folder; empty for a table of a database.

        Raises:
            SourceError: there are no such files.
        """
        if self.node.table.format == "jdbc":
            return ""
        return hashlib.sha256(json.dumps([tuple(file) for file in self._files()]).encode()).hexdigest()[:16]

    def current(self, spark: SparkSession) -> DataFrame:
        """Return the rows of the table as it is.

        Raises:
            SourceError: there is no such table, or it cannot be read.
            DefinitionError: an environment variable that holds a secret of its database is not set.
        """
        match self.node.table.format:
            case "delta":
                return self.version(spark, self.newest())
            case "parquet":
                root = Location.parse(self.node.table.path).spark_uri
                # With the folder as base path, folders such as day=1 are columns.
                reader = spark.read.option("basePath", root)
                return reader.parquet(*(f"{root}/{file.path}" for file in self._files()))
            case "jdbc":
                return database_rows(self.node, spark)

    def version(self, spark: SparkSession, version: str) -> DataFrame:
        """Return the rows of a version of a Delta table.

        Raises:
            SourceError: there is no such version, or it cannot be read, or another table is in its place.
        """
        root = Location.parse(self.node.table.path).spark_uri
        number, _, wanted = version.partition(_OF)
        table = self._delta(int(number))
        if wanted and str(table.metadata().id) != wanted:
            what = f"is another one than the one whose version {number} the epoch read: it was deleted and made again"
            raise self._error(what, "restore that one in its place, or rewind the job to an epoch before")
        schema = nullable(T.StructType.fromJson(json.loads(table.schema().to_json())))
        paths = [unquote(entry["path"]) for entry in pa.table(table.get_add_actions()).select(["path"]).to_pylist()]
        self._require_readable(table, paths)
        if not paths:
            return no_rows(spark, schema)
        return spark.read.schema(schema).option("basePath", root).parquet(*(f"{root}/{path}" for path in paths))

    def _require_readable(self, table: DeltaTable, paths: list[str]) -> None:
        metadata = table.metadata()
        lacking = unreadable_features(table.protocol().reader_features or (), metadata.configuration)
        if lacking:
            raise self._error(f"needs {', '.join(lacking)} to be read", "write the table without these features")
        partitions = metadata.partition_columns
        if any("://" in path for path in paths):
            raise self._error("has files outside its folder", "copy the table: a shallow clone has no files of its own")
        odd = next((path for path in paths if any(f"{name}=" not in unquote(path) for name in partitions)), None)
        if odd is not None:
            raise self._error(f"has a file without its partition in the path: {odd}", "rewrite the table with its partitions as folders")

    def _delta(self, version: int | None) -> DeltaTable:
        path = self.node.table.path
        try:
            return DeltaTable(Location.parse(path).uri, version=version)
        except TableNotFoundError as error:
            raise self._error("does not exist", "create it before the job runs, or correct the path") from without_secrets(error)
        except (DeltaError, OSError) as error:
            what = "" if version is None else f" in version {version}"
            fix = "keep versions longer (vacuum), or check the table and the credentials in the environment"
            raise self._error(f"cannot be read{what}: {first_line(error)}", fix) from without_secrets(error)

    def _files(self) -> list[ListedFile]:
        store = JobStore.open(self.node.table.path)
        found = [each for each in store.list() if _is_data(each.path)]
        if not found:
            raise self._error("has no Parquet files", "write it before the job runs, or correct the path")
        return found

    def _error(self, what: str, fix: str) -> SourceError:
        node = self.node
        return SourceError(f"the {node.table.format} table {node.table.path!r} {what}", fix=fix, uid=node.uid, place=node.place)


def _is_data(path: str) -> bool:
    return path.endswith(".parquet") and not any(part.startswith(("_", ".")) for part in path.split("/"))

"""Copy-on-write: finds the table's files with rows to replace and writes new files with their other rows. Spark reads only those files."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import TYPE_CHECKING, Final, Protocol
from urllib.parse import unquote

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from tidemark.graph.checks.upsert_keys import REPLACES, START
from tidemark.spark.columns.expressions import quoted
from tidemark.spark.columns.replaced_sessions import REPLACED_TYPE
from tidemark.spark.columns.schemas import no_rows
from tidemark.spark.columns.state_files import write_folder
from tidemark.spark.env.start.session_settings import SETTINGS
from tidemark.spark.sinks.delta.delta_changes import is_deletion
from tidemark.spark.sinks.delta.delta_files import LiveFile
from tidemark.spark.sinks.delta.delta_upsert import Upsert
from tidemark.spark.sinks.delta.delta_versions import followed, versions
from tidemark.state.log.records import StagedFile
from tidemark.state.store.store import JobStore

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

APPENDED_BYTES: Final = 128 * 1024 * 1024
UPSERTED_BYTES: Final = 16 * 1024 * 1024
"""Target file size in bytes: replacing one row rewrites a whole file."""

COMPRESSION: Final = "snappy"
_FILE: Final = "__tm_file"


@dataclass(frozen=True)
class Change:
    """New rows for a table.

    ``schema`` is their type as Spark's JSON text, ``files`` their staged files, ``replaced`` the bounds of the starts that they
    replace besides their own, microseconds.
    """

    upsert: Upsert
    schema: str
    files: tuple[StagedFile, ...]
    replaced: tuple[int, int] | None = None

    @property
    def type(self) -> T.StructType:
        """The type of the rows as they are staged."""
        visible = schema_of_text(self.schema)
        hidden = self.upsert.listed not in (REPLACES, *visible.names)
        return T.StructType([*visible.fields, T.StructField(self.upsert.listed, REPLACED_TYPE)]) if hidden else visible


class Rewriter(Protocol):
    """Reads and writes a table's files; nothing refers to the files that it writes until they are committed."""

    @property
    def file_bytes(self) -> int:
        """Target size of the files that it writes, bytes."""
        ...

    def starts(self, change: Change, limit: int) -> list[int | None] | None:
        """Return the window starts of the rows to replace, microseconds; None where there are more than ``limit``."""
        ...

    def touched(self, change: Change, files: Sequence[LiveFile]) -> dict[str, int]:
        """Return the number of rows to replace, by path, of the files that have any."""
        ...

    def survivors(self, schema: str, change: Change, files: Sequence[LiveFile], folder: str) -> list[StagedFile]:
        """Write the rows of files that stay into a folder, with all columns of the table, whose type is ``schema``."""
        ...

    def versions(self, schema: str, change: Change, files: Sequence[LiveFile], folder: str) -> list[StagedFile]:
        """Write the versions of changed keys, as far as new ones begin before they end, into a folder; arguments as of ``survivors``."""
        ...

    def merged(self, schema: str, files: Sequence[LiveFile], folder: str) -> list[StagedFile]:
        """Write all rows of files into a folder, in few files; rows of adjacent files stay adjacent."""
        ...


class SparkRewriter:
    """Rewrites with Spark, in its own session with the settings that every job has.

    Args:
        store: at the table.
        file_bytes: target size of the files that it writes.
    """

    def __init__(self, store: JobStore, file_bytes: int = UPSERTED_BYTES) -> None:
        self._store = store
        self.file_bytes = file_bytes

    def starts(self, change: Change, limit: int) -> list[int | None] | None:
        """Return the window starts of the rows to replace."""
        replaced = change.upsert.replaced_keys(self._new(change))
        name = change.upsert.replaced_key_columns[change.upsert.keys.index(START)]
        found = replaced.select(F.unix_micros(name)).distinct().limit(limit + 1).collect()
        return None if len(found) > limit else [row[0] for row in found]

    def touched(self, change: Change, files: Sequence[LiveFile]) -> dict[str, int]:
        """Return the number of rows to replace, by path, of the files that have any; reads the key columns only."""
        if not files:
            return {}
        old = self._read(files, change.type)
        keys = (F.col(quoted(key)) for key in change.upsert.compared_columns)
        # A user's column may be called _metadata, too.
        old = old.select(*keys, old.metadataColumn("_metadata").getField("file_path").alias(_FILE))
        replaced = change.upsert.replaced_keys(self._new(change))
        hit = old.join(replaced, change.upsert.matches(old, replaced), "left_semi").groupBy(_FILE).count().collect()
        # Of two paths that end alike the longer one is meant.
        paths = sorted((file.path for file in files), key=len, reverse=True)
        return {next(path for path in paths if unquote(uri).endswith(f"/{path}")): count for uri, count in hit}

    def survivors(self, schema: str, change: Change, files: Sequence[LiveFile], folder: str) -> list[StagedFile]:
        """Write the rows of files that stay into a folder; the usual number of keys is broadcast, so that nothing is shuffled."""
        replaced = change.upsert.replaced_keys(self._new(change))

        def kept(old: DataFrame) -> DataFrame:
            return old.join(replaced, change.upsert.matches(old, replaced), "left_anti")

        return self._write(files, schema_of_text(schema), folder, kept)

    def versions(self, schema: str, change: Change, files: Sequence[LiveFile], folder: str) -> list[StagedFile]:
        """Write the versions of changed keys into a folder."""
        kind, replaced = schema_of_text(schema), change.upsert.replaced_keys(self._new(change))
        old = self._read(files, kind) if files else no_rows(self._session, kind)
        touched = old.join(replaced, change.upsert.matches(old, replaced), "left_semi")
        new, ended = (self._staged(change, deleted=deleted, schema=kind) for deleted in (False, True))
        keys = change.upsert.keys
        found = followed(touched, new, ended, keys) if change.upsert.follows else versions(touched, new, keys)
        made = found.select(*map(quoted, kind.names))
        return [file.as_staged_file() for file in write_folder(made, self._store, folder, compression=COMPRESSION)]

    def _staged(self, change: Change, *, deleted: bool, schema: T.StructType) -> DataFrame:
        """Return staged rows whose keys are gone, or all others, with the columns of the table."""
        files = [self._store.spark_uri(file.path) for file in change.files if is_deletion(file) == deleted]
        return self._session.read.schema(schema).parquet(*files) if files else no_rows(self._session, schema)

    def merged(self, schema: str, files: Sequence[LiveFile], folder: str) -> list[StagedFile]:
        """Write all rows of files into a folder."""
        return self._write(files, schema_of_text(schema), folder, lambda rows: rows)

    @cached_property
    def _session(self) -> SparkSession:
        from pyspark.sql import SparkSession

        # A run may have been given its own session, and a table is published before the first batch brings one.
        session = SparkSession.builder.getOrCreate().newSession()
        for key, value in SETTINGS.items():
            session.conf.set(key, value)
        session.conf.set("spark.sql.shuffle.partitions", str(session.sparkContext.defaultParallelism))
        # Otherwise a union of groups of one partition each is one partition, too, and so one file.
        session.conf.set("spark.sql.unionOutputPartitioning", "false")
        return session

    def _new(self, change: Change) -> DataFrame:
        return self._session.read.schema(change.type).parquet(*(self._store.spark_uri(file.path) for file in change.files))

    def _read(self, files: Sequence[LiveFile], schema: T.StructType) -> DataFrame:
        return self._session.read.schema(schema).parquet(*(self._store.spark_uri(file.path) for file in files))

    def _write(
        self, files: Sequence[LiveFile], schema: T.StructType, folder: str, choose: Callable[[DataFrame], DataFrame]
    ) -> list[StagedFile]:
        """Write the chosen rows of files: one file per group of adjacent files, all groups in one job, without a shuffle."""
        parts = [choose(self._read(group, schema)).coalesce(1) for group in in_groups(files, self.file_bytes)]
        rows = reduce(DataFrame.unionAll, parts)
        return [file.as_staged_file() for file in write_folder(rows, self._store, folder, compression=COMPRESSION)]


def in_groups(files: Sequence[LiveFile], size: int) -> list[list[LiveFile]]:
    """Return files in groups of adjacent ones, of about equal size, not much more than the given one, or of one file."""
    total, before = max(1, sum(file.bytes for file in files)), 0
    groups: dict[int, list[LiveFile]] = {}
    for file in files:
        groups.setdefault(before * math.ceil(total / size) // total, []).append(file)
        before += file.bytes
    return list(groups.values())


def schema_of_text(text: str) -> T.StructType:
    """Return a type from its JSON text, Spark's or Delta's, which are the same."""
    return T.StructType.fromJson(json.loads(text))

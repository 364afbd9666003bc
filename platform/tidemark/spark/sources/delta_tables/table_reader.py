"""Reads the versions of a Delta table that is a source: where it begins, what each version changes, and whether it can be read."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from typing import Final
from urllib.parse import unquote

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError
from pyspark.sql import types as T

from tidemark.clock import format_ms
from tidemark.errors import SourceError
from tidemark.graph.expressions.ddl import parse_schema
from tidemark.graph.model.nodes import DeltaTableSpec, SourceNode
from tidemark.locations import Location
from tidemark.savepoints.delta.table_versions import commits_back
from tidemark.spark.columns.error_text import first_line
from tidemark.spark.sources.delta_tables.logged_versions import (
    DataFile,
    LoggedVersion,
    TableMetadata,
    logged_version,
    schema_trouble,
    table_columns,
    unreadable_features,
)
from tidemark.spark.sources.delta_tables.positions import TablePosition, UnreadVersion
from tidemark.state.encoding.redaction import without_secrets
from tidemark.state.store.store import JobStore

_THREADS: Final = 16
_CHANGES_FIX: Final = (
    "read its changes: tm.delta_changes(name, tm.delta_source(path, schema=..., changes=True), key=[...]); or ignore all of such versions: "
    "on_rewrite='skip'"
)
_LOST_FIX: Final = (
    "restore the table's folder from a backup; or read the table again under another name of the source; and keep more of it: "
    "delta.logRetentionDuration, delta.deletedFileRetentionDuration"
)


class TableReader:
    """Reads a table.

    Args:
        source: that reads it.
        spec: of the source.

    Raises:
        SourceError: there is no such table, or it cannot be read.
    """

    def __init__(self, source: SourceNode, spec: DeltaTableSpec) -> None:
        self.spec = spec
        self._source = source
        table = self._open(None)
        self.newest = table.version()
        found = table.metadata()
        self.id = str(found.id)
        metadata = TableMetadata(self.id, table.schema().to_json(), tuple(found.partition_columns), found.configuration)
        self._require_readable(self.newest, metadata, tuple(table.protocol().reader_features or ()))

    def refresh(self) -> int:
        """Return the table's newest version of now."""
        self.newest = self._open(None).version()
        return self.newest

    def beginning(self) -> TablePosition:
        """Return the position at which the source begins.

        Raises:
            SourceError: the table's log does not reach back to it.
        """
        spec = self.spec
        if spec.from_version is not None:
            return TablePosition(self.id, spec.from_version)
        if spec.from_ms is not None:
            return TablePosition(self.id, self._version_at(spec.from_ms))
        if spec.start == "latest":
            return TablePosition(self.id, self.newest + 1)
        return TablePosition(self.id, self.newest, snapshot=True)

    def resumed(self, stored: object) -> TablePosition:
        """Return a stored position.

        Raises:
            SourceError: it is none in this table.
        """
        found = TablePosition.parse(stored)
        if found is None:
            raise self._error(f"is read from a position that is none of a Delta table: {stored}", "restore a savepoint of this job")
        if found.table != self.id:
            raise self._error(
                f"is another one than the job has read so far: its id is {self.id}, and was {found.table}",
                "give the source another name, so that the new table is read from its beginning, or correct the path",
            )
        return found

    def snapshot(self, position: TablePosition) -> UnreadVersion:
        """Return the files of a snapshot that come after a position in it.

        Raises:
            SourceError: the version can no longer be read.
        """
        version = position.version
        table = self._open(version)
        entry = self._entry(version)
        found = pa.table(table.get_add_actions()).to_pylist()
        files = [
            DataFile(
                unquote(each["path"]),
                int(each["size_bytes"]),
                version,
                entry.at if entry is not None and entry.at is not None else int(each["modification_time"]),
                partition={name: _as_text(value) for name, value in (each.get("partition") or {}).items()},
                rows=each["num_records"],
            )
            for each in sorted(found, key=lambda each: (each["modification_time"], each["path"]))
        ]
        first = position.index + 1
        return UnreadVersion(version, tuple(files[first:]), first, snapshot=True)

    def version(self, version: int, first: int = 0) -> UnreadVersion | None:
        """Return the files that a version has for the source from an index on, None for a version that does not exist yet.

        Raises:
            SourceError: it was removed from the table's log, or it changes the table so that the source cannot read it.
        """
        entry = self._entry(version)
        if entry is None:
            if version > self.newest:
                return None
            raise self._error(f"no longer has version {version}, which comes next: its log was cleaned up", _LOST_FIX)
        if entry.metadata is not None or entry.features:
            self._require_readable(version, entry.metadata, entry.features)
        if entry.has_vectors:
            raise self._vectors(version)
        return UnreadVersion(version, self._files(entry)[first:], first)

    def between(self, before: TablePosition, after: TablePosition) -> Iterator[DataFile]:
        """Yield the files that were read between two positions.

        Raises:
            SourceError: they can no longer be read.
        """
        version, first = before.version, before.index + 1
        if before.snapshot:
            files = self.snapshot(before).files
            yield from files[: after.index - before.index] if after.snapshot else files
            if after.snapshot:
                return
            version, first = version + 1, 0
        while version <= after.version:
            last = after.index if version == after.version else None
            found = self.version(version, first) if last != -1 else None
            if found is not None:
                yield from found.files if last is None else found.files[: last + 1 - first]
            version, first = version + 1, 0

    def require(self, files: Sequence[DataFile]) -> None:
        """Make sure that files are still there.

        Raises:
            SourceError: one was removed, by VACUUM for example.
        """
        store = self._store
        if len(files) > 1 and store.location.scheme != "file":
            with ThreadPoolExecutor(_THREADS) as threads:
                there = list(threads.map(lambda file: store.exists(file.path), files))
        else:
            there = [store.exists(file.path) for file in files]
        lost = next((file for file, exists in zip(files, there, strict=True) if not exists), None)
        if lost is not None:
            raise self._error(f"no longer has file {lost.path} of version {lost.version}, which comes next: it was vacuumed", _LOST_FIX)

    def address(self, file: DataFile) -> str:
        """Return the address at which Spark reads a file."""
        return f"{Location.parse(self.spec.path).spark_uri}/{file.path}"

    @cached_property
    def _store(self) -> JobStore:
        return JobStore.open(self.spec.path, make=False)

    def _files(self, entry: LoggedVersion) -> tuple[DataFile, ...]:
        if self.spec.changes:
            return self._inside(entry.changed_files())
        if not entry.removed:
            return self._inside(entry.added)
        if self.spec.on_rewrite == "skip":
            return ()
        raise self._error(
            f"deletes or replaces rows in version {entry.version} ({entry.operation}), and the source reads only rows that are added",
            _CHANGES_FIX,
        )

    def _inside(self, files: tuple[DataFile, ...]) -> tuple[DataFile, ...]:
        if any("://" in file.path or file.path.startswith("/") for file in files):
            raise self._error("has files outside its folder", "copy the table: a shallow clone has no files of its own")
        return files

    def _entry(self, version: int) -> LoggedVersion | None:
        name = f"{version:020d}.json"
        try:
            return logged_version(version, self._store.get(f"_delta_log/{name}"))
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise self._error(f"has a damaged entry in its log: {name}", "restore that file from a backup of the table") from error

    def _require_readable(self, version: int, metadata: TableMetadata | None, features: tuple[str, ...]) -> None:
        if "deletionVectors" in features:
            raise self._vectors(version)
        lacking = unreadable_features(features, metadata.configuration if metadata is not None else {})
        if lacking:
            raise self._error(f"needs {', '.join(lacking)} to be read, since version {version}", "write the table without these features")
        if metadata is None:
            return
        if metadata.id != self.id:
            raise self._error(f"becomes another one in version {version}: its id is {metadata.id}", "give the source another name")
        wanted = parse_schema(self.spec.schema)
        fields = T.StructType.fromJson(json.loads(metadata.schema))
        trouble = schema_trouble(wanted, table_columns([(field.name, field.dataType.simpleString()) for field in fields]))
        if trouble is not None:
            fix = "correct schema=...; after a column was dropped, renamed or changed in the table, read the table under another name"
            raise self._error(f"cannot be read with the schema since version {version}: {trouble}", fix)

    def _vectors(self, version: int) -> SourceError:
        return self._error(
            f"has deletion vectors since version {version}, and rows that they hide would be read",
            "turn them off (delta.enableDeletionVectors = false) and purge them: REORG TABLE ... APPLY (PURGE)",
        )

    def _version_at(self, ms: int) -> int:
        """Return the first version that is not older than a time."""
        first = self.newest + 1
        for commit in commits_back(self.spec.path, self.newest):
            if commit.at is not None and commit.at < ms:
                return first
            first = commit.version
        if first > 0:
            raise self._error(
                f"has no log before version {first}, which is later than {format_ms(ms)}: what came first after that is not known",
                "begin with a later time, or with the rows that the table has: start='snapshot'",
            )
        return first

    def _open(self, version: int | None) -> DeltaTable:
        try:
            return DeltaTable(Location.parse(self.spec.path).uri, version=version)
        except TableNotFoundError as error:
            raise self._error("does not exist", "create it before the job runs, or correct the path") from without_secrets(error)
        except (DeltaError, OSError) as error:
            if version is None:
                what, fix = "cannot be read", "repair the table, or check its place and the credentials in the environment"
            else:
                what, fix = f"can no longer be read in version {version}", _LOST_FIX
            raise self._error(f"{what}: {first_line(error)}", fix) from without_secrets(error)

    def _error(self, what: str, fix: str) -> SourceError:
        return SourceError(
            f"the Delta table {self.spec.path!r} of source {self._source.name!r} {what}",
            fix=fix,
            uid=self._source.name,
            place=self._source.place,
        )


def _as_text(value: object) -> str | None:
    """Return a partition's value as Delta's log writes it."""
    if value is None or value == "":
        return None
    return str(value).lower() if isinstance(value, bool) else str(value)

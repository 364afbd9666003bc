"""Reads the versions of a Delta table that is a source: where it begins, what each version changes, and whether it can be read."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, Final
from urllib.parse import unquote

import pyarrow as pa
from pyspark.sql import types as T

from tidemark.errors import SourceError
from tidemark.graph.expressions.ddl import parse_schema
from tidemark.graph.model.nodes import SourceNode
from tidemark.graph.model.source_specs import DeltaTableSpec
from tidemark.locations import Location
from tidemark.spark.sources.delta_tables.logged_versions import (
    DataFile,
    LoggedVersion,
    TableMetadata,
    schema_trouble,
    table_columns,
    unreadable_features,
)
from tidemark.spark.sources.delta_tables.positions import TablePosition, UnreadVersion
from tidemark.spark.sources.delta_tables.table_log import LOST_FIX, TableLog

_THREADS: Final = 16
_CHANGES_FIX: Final = (
    "read its changes: tm.delta_changes(name, tm.delta_source(path, schema=..., changes=True), key=[...]); or ignore all of such versions: "
    "on_rewrite='skip'"
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
        self._log = TableLog(source, spec)
        self._partitions: tuple[str, ...] = ()
        self._begins_at: int | None = None

    def refresh(self) -> int:
        """Return the table's newest version of now.

        Raises:
            SourceError: it is another table than before, or an older state of it.
        """
        return self._log.refresh()

    @property
    def last(self) -> tuple[int, str | None]:
        """The last version that was read, with the digest of its entry."""
        return self._log.last

    def require_same(self, last: tuple[int, str | None]) -> None:
        """Make sure that the table is still the one in which a version was the last one read.

        Raises:
            SourceError: it is another table, or an older state of it.
        """
        if not self._log.require_same(*last):
            self._log.refresh()

    def beginning(self) -> TablePosition:
        """Return the position at which the source begins.

        Raises:
            SourceError: the table's log does not reach back to it.
        """
        spec, log = self.spec, self._log
        if spec.from_version is None and spec.from_ms is None and spec.start == "snapshot":
            return TablePosition(log.id, log.newest, snapshot=True, digest=log.digest(log.newest))
        version = log.newest + 1
        if spec.from_version is not None:
            version = spec.from_version
        elif spec.from_ms is not None:
            version = log.first_at(spec.from_ms)
            # Versions that come may be older than that time.
            self._begins_at = spec.from_ms if version > log.newest else None
        return TablePosition(log.id, version, digest=log.digest(version - 1))

    def resumed(self, stored: object) -> TablePosition:
        """Return a stored position.

        Raises:
            SourceError: it is none in this table, or the table was reset to an older state.
        """
        found = TablePosition.parse(stored)
        if found is None:
            raise self._log.error(f"is read from a position that is none of a Delta table: {stored}", "restore a savepoint of this job")
        self._log.require_position(found)
        return found

    def begin(self, position: TablePosition) -> None:
        """Begin to read at a position; its version is the first that the schema has to fit.

        Raises:
            SourceError: the source cannot read the table there.
        """
        self._log.resume_after(position)
        if self._begins_at is None:
            self._begin_with(position.version)

    def snapshot(self, position: TablePosition) -> UnreadVersion:
        """Return the files of a snapshot that come after a position in it.

        Raises:
            SourceError: the version can no longer be read, or has files outside the table's folder.
        """
        version = position.version
        entry = self._log.entry(version)
        files = tuple(
            DataFile(
                unquote(each["path"]),
                int(each["size_bytes"]),
                version,
                entry.at if entry is not None else int(each["modification_time"]),
                partition=_partition(each),
                rows=each["num_records"],
            )
            for each in self._added_until(version)
        )
        first = position.index + 1
        digest = None if entry is None else entry.digest
        return UnreadVersion(version, self._inside(files)[first:], first, snapshot=True, digest=digest)

    def version(self, version: int, first: int = 0) -> UnreadVersion | None:
        """Return the files that a version has for the source from an index on, None for a version that does not exist yet.

        Raises:
            SourceError: it was removed from the table's log, or it changes the table so that the source cannot read it.
        """
        entry = self._log.read_next(version)
        if entry is None:
            return None
        if self._begins_at is not None:
            if entry.at is not None and entry.at < self._begins_at:
                return UnreadVersion(version, (), digest=entry.digest, before_start=True)
            self._begins_at = None
            self._log.refresh()
            self._begin_with(version)
        if entry.metadata is not None or entry.features:
            self._require_readable(version, entry.metadata, entry.features)
        if entry.has_vectors:
            raise self._vectors(version)
        files = self._files(entry)
        if entry.metadata is not None:
            self._partitions = entry.metadata.partition_columns
        return UnreadVersion(version, files[first:], first, digest=entry.digest)

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
        store = self._log.store
        if len(files) > 1 and store.location.scheme != "file":
            with ThreadPoolExecutor(_THREADS) as threads:
                there = list(threads.map(lambda file: store.exists(file.path), files))
        else:
            there = [store.exists(file.path) for file in files]
        lost = next((file for file, exists in zip(files, there, strict=True) if not exists), None)
        if lost is not None:
            what = f"no longer has file {lost.path} of version {lost.version}, which comes next: it was vacuumed"
            raise self._log.error(what, LOST_FIX)

    def address(self, file: DataFile) -> str:
        """Return the address at which Spark reads a file."""
        return f"{Location.parse(self.spec.path).spark_uri}/{file.path}"

    def _files(self, entry: LoggedVersion) -> tuple[DataFile, ...]:
        if self.spec.changes:
            return self._inside(self._with_partitions(entry, entry.changed_files()))
        if not entry.removed:
            return self._inside(self._with_partitions(entry, entry.added))
        if self.spec.on_rewrite == "skip":
            return ()
        raise self._log.error(
            f"deletes or replaces rows in version {entry.version} ({entry.operation}), and the source reads only rows that are added",
            _CHANGES_FIX,
        )

    def _with_partitions(self, entry: LoggedVersion, files: tuple[DataFile, ...]) -> tuple[DataFile, ...]:
        """Return files with their partitions' values: an entry need not have those of files that it removes."""
        added_by = self._partitions if entry.metadata is None else entry.metadata.partition_columns
        columns = {"delete": set(self._partitions), "insert": set(added_by), "feed": set(added_by)}
        if all(file.partition is not None and columns[file.change] <= set(file.partition) for file in files):
            return files
        earlier: Mapping[str, dict[str, str | None]] = {}
        if columns["delete"]:
            earlier = {unquote(each["path"]): _partition(each) for each in self._added_until(entry.version - 1)}
        found = []
        for file in files:
            values = {**(file.partition or {}), **(earlier.get(file.path, {}) if file.change == "delete" else {})}
            lacking = sorted(columns[file.change] - set(values))
            if lacking:
                raise self._log.error(
                    f"does not say in version {entry.version} which value of {lacking[0]!r} the rows of file {file.path} have",
                    "write the table by a writer that logs partitionValues of the files it removes; or set delta.enableChangeDataFeed",
                )
            found.append(replace(file, partition=values))
        return tuple(found)

    def _added_until(self, version: int) -> list[dict[str, Any]]:
        """Return the files that the table has at a version, oldest first."""
        found = pa.table(self._log.open(version).get_add_actions()).to_pylist()
        return sorted(found, key=lambda each: (each["modification_time"], each["path"]))

    def _inside(self, files: tuple[DataFile, ...]) -> tuple[DataFile, ...]:
        if any("://" in file.path or file.path.startswith("/") for file in files):
            raise self._log.error("has files outside its folder", "copy the table: a shallow clone has no files of its own")
        return files

    def _begin_with(self, version: int) -> None:
        """Check the table as of the first version that is read; a later change of it is checked in the version that has it."""
        metadata, features = self._log.metadata_at(version)
        self._partitions = metadata.partition_columns
        self._require_readable(min(version, self._log.newest), metadata, features)

    def _require_readable(self, version: int, metadata: TableMetadata | None, features: tuple[str, ...]) -> None:
        if "deletionVectors" in features:
            raise self._vectors(version)
        lacking = unreadable_features(features, metadata.configuration if metadata is not None else {})
        if lacking:
            what = f"needs {', '.join(lacking)} to be read, since version {version}"
            raise self._log.error(what, "write the table without these features")
        if metadata is None:
            return
        self._log.require_id(metadata.id)
        wanted = parse_schema(self.spec.schema)
        fields = T.StructType.fromJson(json.loads(metadata.schema))
        found = table_columns([(field.name, field.dataType.simpleString()) for field in fields])
        trouble = schema_trouble(wanted, found)
        if trouble is not None:
            fix = "correct schema=...; after a column was dropped, renamed or changed in the table, read the table under another name"
            raise self._log.error(f"cannot be read with the schema since version {version}: {trouble}", fix)
        for name in metadata.partition_columns:
            column = wanted.find(name)
            if column is not None and column.type == "BINARY":
                raise self._log.error(
                    f"has the partition column {name!r} of type BINARY since version {version}, whose values writers log differently",
                    "leave the column out of schema=..., or partition the table by a text",
                )

    def _vectors(self, version: int) -> SourceError:
        return self._log.error(
            f"has deletion vectors since version {version}, and rows that they hide would be read",
            "turn them off (delta.enableDeletionVectors = false) and purge them: REORG TABLE ... APPLY (PURGE)",
        )


def _partition(action: Mapping[str, object]) -> dict[str, str | None]:
    """Return the values of a file's partitions as Delta's log writes them."""
    values = action.get("partition")
    return {name: _as_text(value) for name, value in values.items()} if isinstance(values, Mapping) else {}


def _as_text(value: object) -> str | None:
    if value is None or value == "":
        return None
    return str(value).lower() if isinstance(value, bool) else str(value)

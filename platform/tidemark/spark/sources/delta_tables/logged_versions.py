"""What a version of a Delta table did, by its entry in the table's log: the files that it added, removed, or has changes in. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal
from urllib.parse import unquote

from tidemark.graph.expressions.ddl import parse_type
from tidemark.graph.model.schema import Schema
from tidemark.state.encoding.envelope import sha256

Change = Literal["insert", "delete", "feed"]
"""What the rows of a file are: added, removed, or each with its own kind of change in the column ``_change_type``."""

READABLE_FEATURES: Final = frozenset({"timestampNtz", "v2Checkpoint", "vacuumProtocolCheck", "typeWidening", "appendOnly", "invariants"})
"""Features of a table that need nothing of a reader of its files."""

_WIDENED: Final = ("TINYINT", "SMALLINT", "INT", "BIGINT")
_WIDENED_FLOATS: Final = ("FLOAT", "DOUBLE")


@dataclass(frozen=True)
class DataFile:
    """A file of a table: its path in the table's folder, its bytes, the version it is of with its time, and what its rows are.

    ``partition`` has the values of partition columns as the log writes them, None where the entry has none of them; ``rows`` is the
    number of rows, where that is known.
    """

    path: str
    bytes: int
    version: int
    at: int | None
    change: Change = "insert"
    partition: Mapping[str, str | None] | None = field(default_factory=dict)
    rows: int | None = None


@dataclass(frozen=True)
class TableMetadata:
    """A table's identity, its columns as Delta's JSON, its partition columns and its settings."""

    id: str
    schema: str
    partition_columns: tuple[str, ...] = ()
    configuration: Mapping[str, str | None] = field(default_factory=dict)


@dataclass(frozen=True)
class LoggedVersion:
    """A version: when it was made and by which operation, and its files with changed rows.

    Files that a version only moves, as compaction does, are in none of them. ``metadata`` and ``features`` are there where it changes
    them. ``digest`` is the checksum of its entry.
    """

    version: int
    at: int | None
    operation: str
    added: tuple[DataFile, ...] = ()
    removed: tuple[DataFile, ...] = ()
    feed: tuple[DataFile, ...] = ()
    metadata: TableMetadata | None = None
    features: tuple[str, ...] = ()
    has_vectors: bool = False
    digest: str = ""

    def changed_files(self) -> tuple[DataFile, ...]:
        """Return the files with all changes of the version: of its change data feed, or else those that it removed and added."""
        return self.feed or (*self.removed, *self.added)


def logged_version(version: int, data: bytes, *, modified: int | None = None) -> LoggedVersion:
    """Return a version from the bytes of its entry, which has an action in each line.

    Args:
        version: its number.
        data: the entry.
        modified: when the entry was written, milliseconds: the version's time where its writer stated none.

    Raises:
        ValueError, KeyError, TypeError, AttributeError: the entry is damaged.
    """
    # Only a line feed ends an action: texts may hold other characters that end lines.
    actions: list[dict[str, Any]] = [json.loads(line) for line in data.split(b"\n") if line.strip()]
    if not actions:
        raise ValueError("no action")
    info: dict[str, Any] = _first(actions, "commitInfo") or {}
    at = info.get("inCommitTimestamp", info.get("timestamp"))
    time = at if isinstance(at, int) else modified
    changing = {
        kind: [each[kind] for each in actions if kind in each and (kind == "cdc" or each[kind].get("dataChange"))]
        for kind in ("add", "remove", "cdc")
    }
    metadata, protocol = _first(actions, "metaData"), _first(actions, "protocol") or {}
    return LoggedVersion(
        version,
        time,
        str(info.get("operation") or "unnamed change"),
        tuple(_file(each, version, time, "insert") for each in changing["add"]),
        tuple(_file(each, version, time, "delete") for each in changing["remove"]),
        tuple(_file(each, version, time, "feed") for each in changing["cdc"]),
        None if metadata is None else _metadata(metadata),
        tuple(protocol.get("readerFeatures") or ()),
        any(each.get("deletionVector") for kind in ("add", "remove") for each in changing[kind]),
        sha256(data),
    )


def unreadable_features(features: Sequence[str], configuration: Mapping[str, str | None]) -> tuple[str, ...]:
    """Return what a table requires of its readers that this one lacks.

    >>> unreadable_features(["timestampNtz", "deletionVectors"], {"delta.columnMapping.mode": "name"})
    ('columnMapping', 'deletionVectors')
    """
    mapped = (configuration.get("delta.columnMapping.mode") or "none").lower() != "none"
    return tuple(sorted({*features, *(["columnMapping"] if mapped else [])} - READABLE_FEATURES))


def schema_trouble(wanted: Schema, found: Schema) -> str | None:
    """Return why columns cannot be read from a table with other columns, None where they can; it may have more columns.

    A column of a narrower number can be read as a wider one.

    >>> schema_trouble(Schema.of([("zone", "BIGINT")]), Schema.of([("zone", "INT"), ("fare", "DOUBLE")])) is None
    True
    >>> schema_trouble(Schema.of([("zone", "INT")]), Schema.of([("zone", "STRING")]))
    "column 'zone' is STRING, and INT in the schema"
    """
    for column in wanted.columns:
        other = found.find(column.name)
        if other is None:
            return f"column {column.name!r} is missing"
        if column.type is not None and other.type is not None and not _readable_as(other.type, column.type):
            return f"column {column.name!r} is {other.type}, and {column.type} in the schema"
    return None


def table_columns(fields: Sequence[tuple[str, str]]) -> Schema:
    """Return a table's columns from their names and Spark's names of their types; a type that has no DDL is not known."""
    return Schema.of((name, parse_type(kind)) for name, kind in fields)


def _readable_as(stored: str, wanted: str) -> bool:
    if stored == wanted:
        return True
    return any(stored in kinds and wanted in kinds and kinds.index(stored) < kinds.index(wanted) for kinds in (_WIDENED, _WIDENED_FLOATS))


def _first(actions: Sequence[Mapping[str, Any]], kind: str) -> dict[str, Any] | None:
    return next((each[kind] for each in actions if kind in each), None)


def _file(action: Mapping[str, Any], version: int, at: int | None, change: Change) -> DataFile:
    return DataFile(
        unquote(action["path"]),
        int(action.get("size") or 0),
        version,
        at,
        change,
        _partition(action.get("partitionValues")),
        _rows(action.get("stats")),
    )


def _partition(values: Mapping[str, str | None] | None) -> dict[str, str | None] | None:
    # Delta writes a null as an empty text, too.
    return None if values is None else {name: value or None for name, value in values.items()}


def _rows(stats: object) -> int | None:
    found = json.loads(stats).get("numRecords") if isinstance(stats, str) and stats else None
    return found if isinstance(found, int) else None


def _metadata(action: Mapping[str, Any]) -> TableMetadata:
    partitions = tuple(action.get("partitionColumns") or ())
    return TableMetadata(str(action["id"]), action["schemaString"], partitions, action.get("configuration") or {})

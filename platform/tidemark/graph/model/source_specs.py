"""What a source reads: one class per kind of source."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from tidemark.graph.model.postgres_changes_spec import PostgresChangesSpec
from tidemark.graph.model.record_decoding import RecordDecoding


@dataclass(frozen=True)
class ElementsSpec:
    """Elements given in the program; each batch is one epoch's input, in this order."""

    batches: tuple[tuple[tuple[object, ...], ...], ...] = field(repr=False)
    schema: str


@dataclass(frozen=True)
class FilesSpec:
    """A folder of files that arrive over time; each file is read once, oldest first."""

    path: str
    format: Literal["json", "csv", "parquet", "orc", "text"]
    schema: str
    options: Mapping[str, str] = field(default_factory=dict, repr=False)
    max_files_per_epoch: int | None = None
    max_bytes_per_epoch: int | None = None


@dataclass(frozen=True)
class FormatSpec:
    """Any Structured Streaming source by its format name and options.

    ``environment`` names the environment variables that hold options. ``decoding`` is how a topic's values become columns, None where
    they are bytes. ``on_remade`` is what to do where a topic was deleted and made again; None leaves that to Spark.
    """

    format: str
    options: Mapping[str, str] = field(default_factory=dict, repr=False)
    schema: str | None = None
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)
    decoding: RecordDecoding | None = None
    on_remade: Literal["fail", "restart"] | None = None


@dataclass(frozen=True)
class RateSpec:
    """Spark's rate source: columns ``timestamp`` and ``value``."""

    rows_per_second: int
    partitions: int | None = None


@dataclass(frozen=True)
class DeltaTableSpec:
    """A Delta table that is read version by version: the rows that are added to it, or with ``changes`` all changes of its rows.

    It begins with the rows that the table has (``snapshot``), with those that come (``latest``), with a version, or with the first
    version that is not older than a time, in milliseconds.
    """

    path: str
    schema: str
    changes: bool = False
    start: Literal["snapshot", "latest"] = "snapshot"
    from_version: int | None = None
    from_ms: int | None = None
    on_rewrite: Literal["fail", "skip"] = "fail"
    max_versions_per_epoch: int | None = None
    max_bytes_per_epoch: int | None = None


SourceSpec = ElementsSpec | FilesSpec | FormatSpec | RateSpec | DeltaTableSpec | PostgresChangesSpec

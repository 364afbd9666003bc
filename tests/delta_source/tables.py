"""Delta tables of these tests, and planners over them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

import tidemark as tm
from tidemark.graph import DeltaTableSpec, SourceNode
from tidemark.spark.sources.delta_tables.logged_versions import DataFile
from tidemark.spark.sources.planning.delta_planner import DeltaPlanner

SCHEMA = "id BIGINT, zone STRING, fare DOUBLE"
FEED = {"delta.enableChangeDataFeed": "true"}


def rides(first: int, count: int, *, zone: str = "a", fare: float = 1.0) -> pa.Table:
    """Return rows with ids from ``first`` on."""
    return pa.table({"id": range(first, first + count), "zone": [zone] * count, "fare": [fare] * count})


def append(path: Path, table: pa.Table, **options: Any) -> None:
    """Add rows as a version."""
    write_deltalake(str(path), table, mode="append", **options)


def source_of(path: Path, **options: Any) -> SourceNode:
    """Return a source of the table, declared as users do."""
    options.setdefault("schema", SCHEMA)
    stream = tm.source("rides", tm.delta_source(str(path), **options), watermarks=tm.ingestion_time())
    return cast("SourceNode", stream.node)


def planner_of(source: SourceNode, position: object = None) -> DeltaPlanner:
    """Return what plans a source; without a session nothing can be read."""
    return DeltaPlanner(cast("Any", None), source, cast("DeltaTableSpec", source.spec), position)


def plan(planner: DeltaPlanner, source: SourceNode) -> Iterator[tuple[list[DataFile], dict[str, Any]]]:
    """Yield the files of each epoch, and the position after it, until nothing is left."""
    planner.look()
    while planner.has_unread:
        taken = planner.take(source, None)
        assert taken is not None
        assert taken.read is not None
        position = json.loads(json.dumps(taken.position))
        yield list(cast("Any", taken.read).args[2]), position


def version_of(path: Path) -> int:
    """Return the newest version of a table."""
    return DeltaTable(str(path)).version()


def entry(path: Path, version: int) -> Path:
    """Return the path of a version's entry in the table's log."""
    return path / "_delta_log" / f"{version:020d}.json"

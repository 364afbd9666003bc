"""A source without Spark: its epochs are planned against the server, and their files folded into the content of the tables."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pyarrow.parquet as pq

import tidemark as tm
from tests.postgres.rig import VARIABLE
from tidemark.graph.model.nodes import SourceNode
from tidemark.spark.sources.intake_limits import limited
from tidemark.spark.sources.planning.postgres_planner import PostgresPlanner
from tidemark.spark.sources.planning.source_planner import PlannedJob
from tidemark.spark.sources.postgres_changes.positions import ChangesPosition
from tidemark.state.store.store import JobStore

OPENED: list[PostgresPlanner] = []
"""Planners of a test, whose connections end with it."""

Content = dict[tuple[str, ...], dict[str, str | None]]


def source_node(schema: str, columns: Mapping[str, tuple[str, list[str]]], **options: Any) -> SourceNode:
    """Return the node of a source that captures tables of a schema."""
    tables = {f"{schema}.{name}": tm.postgres_table(ddl, key=key) for name, (ddl, key) in columns.items()}
    changes = tm.postgres_changes("shop", dsn_env=VARIABLE, tables=tables, **options)
    job = tm.Job("shop", {"out": tm.memory(changes.table(next(iter(tables))), "out")}, store="unused")
    return job.sources["shop"]


@dataclass
class Source:
    """A source of a job in a folder; ``position`` is the one after the newest committed epoch."""

    folder: Path
    node: SourceNode
    lineage: str = "l1"
    position: object = None
    contents: dict[str, Content] = field(default_factory=dict)
    planner: PostgresPlanner | None = None
    epochs: int = 0
    operations: Counter[str] = field(default_factory=Counter)

    @property
    def store(self) -> JobStore:
        return JobStore.open(str(self.folder)).at("shop")

    @property
    def is_unfinished(self) -> bool:
        """Whether rows of the snapshot are left."""
        read = ChangesPosition.parse(self.position)
        return read is None or read.unfinished is not None

    def open(self, planned: Mapping[str, object] | None = None) -> PostgresPlanner:
        """Open it, as a start of the job does."""
        self.close()
        job = PlannedJob("shop", self.store, self.lineage, planned or {})
        self.planner = PostgresPlanner(cast("Any", None), self.node, job, self.position)
        OPENED.append(self.planner)
        return self.planner

    def close(self) -> None:
        if self.planner is not None:
            self.planner.close()
            self.planner = None

    def take(self) -> ChangesPosition | None:
        """Plan an epoch, which is not committed yet."""
        planner = self.planner or self.open()
        planner.look()
        if not planner.has_unread:
            return None
        taken = planner.take(limited(self.node), self.position)
        return None if taken is None else ChangesPosition.parse(taken.position)

    def commit(self, position: ChangesPosition) -> None:
        """Commit a planned epoch: its rows are applied, and the slot may move."""
        assert self.planner is not None
        for label, row in self.rows_of(position):
            self.operations[row["operation"]] += 1
            table = self.node_table(label)
            key = tuple(str(row["values"][name]) for name in table.keys)
            if row["operation"] == "delete":
                self.contents.setdefault(label, {}).pop(key, None)
            else:
                self.contents.setdefault(label, {})[key] = row["values"]
        self.position = json.loads(json.dumps(position.as_stored()))
        self.epochs += 1
        self.planner.committed(self.position)

    def run(self, most: int = 1_000) -> None:
        """Run epochs until nothing is left to read."""
        for _ in range(most):
            position = self.take()
            if position is None:
                return
            self.commit(position)
        raise AssertionError("it never ends")

    def rows_of(self, position: ChangesPosition) -> list[tuple[str, dict[str, Any]]]:
        """Return the rows that an epoch reads, in order."""
        found = []
        for file in position.files:
            for row in pq.read_table(self.folder / "shop" / file.path).to_pylist():
                label = row["table"]
                found.append((row["number"], label, {**row, "values": row[self.node_table(label).row_column]}))
        return [(label, row) for _, label, row in sorted(found, key=lambda each: each[0])]

    def node_table(self, label: str) -> Any:
        table = cast("Any", self.node.spec).table(label)
        assert table is not None
        return table

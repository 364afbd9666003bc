"""A sink without Spark: epochs are staged with pyarrow, as Spark would stage them, and published by the sink."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, cast

from tests.postgres.rig import LINEAGE, VARIABLE, Rig, record_of
from tests.sql_tables.place import Database
from tidemark.graph.connectors.sql_table.node import SqlTable
from tidemark.spark.sinks.sql_table.sql_table_sink import SqlTableSink
from tidemark.spark.sinks.staging.missing import Expected
from tidemark.spark.sinks.staging.sink_owner import SinkOwner
from tidemark.state.log.records import SinkPosition
from tidemark.state.store.store import JobStore


@dataclass
class SqlRig(Rig):
    """One output of a job, staged below a folder and published to a table; ``schema`` is the database's name."""

    schema: str = "mariadb"

    @property
    def sql_table(self) -> SqlTable:
        return SqlTable(self.variable, "", self.name, cast("Database", self.schema))

    def open(self, *, term: int | None = None, before: SinkPosition | None = None) -> SqlTableSink:
        """Return the sink as another driver opens it."""
        owner = SinkOwner(JobStore.open(str(self.folder)).at(self.job), self.term if term is None else term)
        upserts = self.mode == "upsert"
        mode: Literal["append", "upsert"] = "upsert" if upserts else "append"
        sink = SqlTableSink(
            "orders", self.sql_table, owner, mode=mode, keys=self.keys if upserts else (), with_epoch=self.mode == "history"
        )
        sink.expect(Expected(before))
        return sink


def publish_staged(folder: str, database: str, epoch: str, record: str) -> None:
    """Publish a staged epoch; in a process of its own, which is killed."""
    rig = SqlRig(Path(folder), database)
    rig.sink.publish(record_of(json.loads(record)), LINEAGE, int(epoch))


__all__ = ["LINEAGE", "VARIABLE", "SqlRig", "publish_staged"]

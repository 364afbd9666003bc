"""A sink without Spark: epochs are staged with pyarrow, as Spark would stage them, and published by the sink."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

import pyarrow as pa
from pyspark.sql.types import StructType

from tidemark.graph.connectors.postgres.node import PostgresTable
from tidemark.spark.sinks.database.database_sink import DatabaseSink
from tidemark.spark.sinks.database.publication import options_of
from tidemark.spark.sinks.delta.delta_changes import DELETED
from tidemark.spark.sinks.postgres.postgres_sink import PostgresSink
from tidemark.spark.sinks.staging.missing import Expected
from tidemark.spark.sinks.staging.sink_owner import SinkOwner
from tidemark.spark.sinks.staging.staging import new_staging
from tidemark.state.log.parquet_files import write_parquet
from tidemark.state.log.records import OutputRecord, SinkPosition
from tidemark.state.store.store import JobStore

VARIABLE: Final = "SHOP_DSN"
LINEAGE: Final = "l1"
NAME: Final = "orders"

Row = dict[str, Any]
Mode = Literal["append", "history", "upsert"]

COLUMNS: Final = {"k": "string", "v": "long"}
ARROW: Final = {"string": pa.string(), "long": pa.int64(), "integer": pa.int32(), "timestamp": pa.timestamp("us", "UTC")}


def schema_of(columns: Mapping[str, str]) -> str:
    fields = [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in columns.items()]
    return json.dumps({"type": "struct", "fields": fields})


def struct(columns: Mapping[str, str]) -> StructType:
    return StructType.fromJson(json.loads(schema_of(columns)))


@dataclass
class Rig:
    """One output of a job, staged below a folder and published to a table of a schema."""

    folder: Path
    schema: str
    mode: Mode = "upsert"
    keys: tuple[str, ...] = ("k",)
    term: int = 1
    lineage: str = LINEAGE
    job: str = "job"
    columns: Mapping[str, str] = field(default_factory=lambda: dict(COLUMNS))
    name: str = NAME
    variable: str = VARIABLE

    def __post_init__(self) -> None:
        self.sink = self.open()

    @property
    def table(self) -> PostgresTable:
        return PostgresTable(self.variable, self.schema, self.name)

    def open(self, *, term: int | None = None, before: SinkPosition | None = None) -> DatabaseSink:
        """Return the sink as another driver opens it."""
        owner = SinkOwner(JobStore.open(str(self.folder)).at(self.job), self.term if term is None else term)
        upserts = self.mode == "upsert"
        mode: Literal["append", "upsert"] = "upsert" if upserts else "append"
        sink = PostgresSink("orders", self.table, owner, mode=mode, keys=self.keys if upserts else (), with_epoch=self.mode == "history")
        sink.expect(Expected(before))
        return sink

    def stage(self, epoch: int, rows: Sequence[Row], deleted: Sequence[Row] = ()) -> OutputRecord:
        """Stage an epoch; returns its record."""
        columns = {**self.columns, **({"epoch": "long"} if self.mode == "history" else {})}
        given = [{**row, "epoch": epoch} for row in rows] if self.mode == "history" else rows
        arrow = pa.schema([(name, ARROW[kind]) for name, kind in columns.items()])
        folder = self.sink.staging_folder(new_staging(self.lineage, epoch))
        files = []
        for part, found in ((f"{DELETED}=false", given), (f"{DELETED}=true", deleted)):
            if found:
                path = f"{folder}/{part}/part-0.parquet" if self.mode == "upsert" else f"{folder}/part-0.parquet"
                table = pa.Table.from_pylist(list(found), schema=arrow)
                files.append(write_parquet(self.sink.staging, path, table, compression="snappy").as_staged_file())
        return OutputRecord(
            self.sink.kind,
            self.sink.location,
            schema_of(columns),
            tuple(files),
            len(rows) + len(deleted),
            options_of(self.mode, self.keys if self.mode == "upsert" else ()),
            before=self.sink.position,
        )

    def publish(self, epoch: int, rows: Sequence[Row], deleted: Sequence[Row] = ()) -> OutputRecord:
        record = self.stage(epoch, rows, deleted)
        self.sink.publish(record, self.lineage, epoch)
        return record


def publish_staged(folder: str, schema: str, epoch: str, record: str) -> None:
    """Publish a staged epoch; in a process of its own, which is killed."""
    rig = Rig(Path(folder), schema)
    stored = json.loads(record)
    rig.sink.publish(record_of(stored), LINEAGE, int(epoch))


def record_of(stored: Mapping[str, Any]) -> OutputRecord:
    from tidemark.state.encoding.codec import from_jsonable

    return from_jsonable(OutputRecord, stored, path="")

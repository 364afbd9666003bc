"""A sink without Spark: epochs are staged with pyarrow, as Spark would stage them, and published by the sink."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.table import Table
from pyspark.sql.types import StructType

from tidemark.graph.connectors.iceberg.node import IcebergTable, PartitionBy
from tidemark.savepoints.iceberg.columns import NO_TEXTS, TableTexts
from tidemark.spark.sinks.iceberg.iceberg_sink import DATA, IcebergSink
from tidemark.spark.sinks.staging.missing import Expected
from tidemark.spark.sinks.staging.sink_owner import SinkOwner
from tidemark.spark.sinks.staging.staging import new_staging
from tidemark.state.encoding.codec import from_jsonable
from tidemark.state.log.parquet_files import write_parquet
from tidemark.state.log.records import OutputRecord, SinkPosition
from tidemark.state.store.store import JobStore

CATALOG: Final = "lake"
LINEAGE: Final = "l1"

Row = dict[str, Any]

COLUMNS: Final = {"k": "string", "v": "long"}
ARROW: Final = {"string": pa.string(), "long": pa.int64(), "integer": pa.int32(), "timestamp": pa.timestamp("us", "UTC")}


@dataclass(frozen=True)
class Lake:
    """A catalog in a file of SQLite, and the folder that it puts tables in."""

    folder: Path

    def __post_init__(self) -> None:
        (self.folder / "tables").mkdir(parents=True, exist_ok=True)

    @property
    def settings(self) -> dict[str, str]:
        return {"type": "sql", "uri": f"sqlite:///{self.folder}/catalog.db", "warehouse": f"file://{self.folder}/tables"}

    @property
    def variables(self) -> dict[str, str]:
        return {f"PYICEBERG_CATALOG__{CATALOG.upper()}__{name.upper()}": value for name, value in self.settings.items()}

    def catalog(self) -> Catalog:
        """Return the catalog as another program opens it."""
        return load_catalog(CATALOG, **self.settings)

    def table(self, name: str = "orders") -> Table:
        return self.catalog().load_table(f"shop.{name}")

    def location(self, name: str) -> str:
        return IcebergTable(CATALOG, f"shop.{name}").location

    def rows(self, name: str = "orders", columns: Sequence[str] = ("k", "v")) -> list[tuple[Any, ...]]:
        """Return the rows that readers see, in any order."""
        found = self.table(name).scan(selected_fields=tuple(columns)).to_arrow().to_pylist()
        return sorted((tuple(row[column] for column in columns) for row in found), key=repr)


def schema_of(columns: Mapping[str, object]) -> str:
    fields = [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in columns.items()]
    return json.dumps({"type": "struct", "fields": fields})


def struct(columns: Mapping[str, object]) -> StructType:
    return StructType.fromJson(json.loads(schema_of(columns)))


@dataclass
class Rig:
    """One output of a job, and its table."""

    folder: Path
    lineage: str = LINEAGE
    job: str = "job"
    columns: Mapping[str, str] = field(default_factory=lambda: dict(COLUMNS))
    partition_by: tuple[PartitionBy, ...] = ()
    texts: TableTexts = NO_TEXTS
    table: str = "shop.orders"

    def __post_init__(self) -> None:
        self.sink = self.open()

    def open(self, *, before: SinkPosition | None = None) -> IcebergSink:
        """Return the sink as another driver opens it."""
        owner = SinkOwner(JobStore.open(str(self.folder)).at(self.job))
        sink = IcebergSink("orders", IcebergTable(CATALOG, self.table), owner, partition_by=self.partition_by, texts=self.texts)
        sink.expect(Expected(before))
        return sink

    def stage(self, epoch: int, rows: Sequence[Row]) -> OutputRecord:
        """Stage an epoch; returns its record."""
        self.sink.create(struct(self.columns))
        arrow = pa.schema([(name, ARROW[kind]) for name, kind in self.columns.items()])
        path = f"{self.sink.staging_folder(new_staging(self.lineage, epoch))}/part-0.parquet"
        file = write_parquet(self.sink.staging, path, pa.Table.from_pylist(list(rows), schema=arrow), compression="snappy")
        options = {DATA: self.sink.staging.uri}
        return OutputRecord(
            "iceberg",
            self.sink.location,
            schema_of(self.columns),
            (file.as_staged_file(),),
            len(rows),
            options,
            before=self.sink.position,
        )

    def publish(self, epoch: int, rows: Sequence[Row]) -> OutputRecord:
        record = self.stage(epoch, rows)
        self.sink.publish(record, self.lineage, epoch)
        return record


def publish_staged(folder: str, epoch: str, record: str) -> None:
    """Publish a staged epoch; in a process of its own, which is killed."""
    Rig(Path(folder)).sink.publish(from_jsonable(OutputRecord, json.loads(record), path=""), LINEAGE, int(epoch))

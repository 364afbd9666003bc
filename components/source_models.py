"""Sources in YAML."""

from __future__ import annotations

from typing import Literal, Self

import dagster as dg
from pydantic import Field, model_validator

import tidemark as tm
from tidemark.components.choices import chosen, given
from tidemark.graph import SourceSpec
from tidemark.semantics import WatermarkStrategy


class FilesModel(dg.Model, dg.Resolvable):
    """The files that arrive in a folder; each is read once, oldest first."""

    path: str = Field(description="Folder or glob, local or of an object store.")
    format: Literal["json", "csv", "parquet", "orc", "text"] = Field(description="How the files are written.")
    schema_: str | None = Field(default=None, alias="schema", description="Spark DDL of the columns to read; not needed for text.")
    options: dict[str, str] | None = Field(default=None, description="Reader options of Spark.")
    max_files_per_epoch: int | None = Field(default=None, description="Greatest number of files of one epoch.")
    max_bytes_per_epoch: int | None = Field(default=None, description="Greatest number of bytes of one epoch; one of the two.")


class KafkaModel(dg.Model, dg.Resolvable):
    """The records of topics."""

    servers: list[str] = Field(description="Brokers to start from, host:port.")
    topics: list[str] | None = Field(default=None, description="Names of topics.")
    pattern: str | None = Field(default=None, description="A regular expression of Java for whole names of topics, instead.")
    format: Literal["raw", "json", "avro"] = Field(default="raw", description="Of the values.")
    schema_: str | None = Field(default=None, alias="schema", description="Spark DDL of the columns to read of a value.")
    registry: str | None = Field(default=None, description="Address of the schema registry, for Avro.")
    registry_env: str | None = Field(default=None, description="Environment variable with the registry's credentials.")
    start: Literal["earliest", "latest"] = Field(default="earliest", description="Where a job begins that has read nothing yet.")
    options: dict[str, str] | None = Field(default=None, description="Options of Spark's connector; no secrets.")
    options_env: dict[str, str] | None = Field(default=None, description="Options by the environment variables that hold them.")
    max_rows_per_epoch: int | None = Field(default=None, description="Greatest number of records of one epoch.")


class DeltaTableModel(dg.Model, dg.Resolvable):
    """The rows that are added to a Delta table, version by version."""

    path: str = Field(description="Of the table, which has to exist.")
    schema_: str = Field(alias="schema", description="Spark DDL of the columns to read.")
    start: Literal["snapshot", "latest"] = Field(
        default="snapshot", description="Begin with the rows that the table has, or those that come."
    )
    max_versions_per_epoch: int | None = Field(default=None, description="Greatest number of versions of one epoch.")
    max_bytes_per_epoch: int | None = Field(default=None, description="Greatest number of bytes of one epoch.")


class EventTimeModel(dg.Model, dg.Resolvable):
    """The event time of a source's elements, and how far out of order they come."""

    timestamp: str = Field(description="SQL expression of type TIMESTAMP, DATE or BIGINT (milliseconds).")
    bound: str = Field(default="0 seconds", description="How far out of order elements may come, such as '5 minutes'.")
    idle_after: str | None = Field(default=None, description="Time without rows after which a split no longer holds the watermark back.")
    split_by: str | None = Field(default=None, description="Column whose values are the source's splits, each with its own watermark.")
    max_future_skew: str = Field(default="1 day", description="Elements further ahead of the clock are malformed.")
    advance_when_idle: bool = Field(default=False, description="Whether the watermark follows the clock when all splits are idle.")


class SourceModel(dg.Model, dg.Resolvable):
    """A source: one of `files`, `kafka`, `delta`; and its event time, without which it is the time of ingestion."""

    files: FilesModel | None = Field(default=None, description="Files of a folder.")
    kafka: KafkaModel | None = Field(default=None, description="Topics of Kafka.")
    delta: DeltaTableModel | None = Field(default=None, description="A Delta table.")
    event_time: EventTimeModel | None = Field(default=None, description="Event time; the time of ingestion by default.")
    malformed_to: str | None = Field(
        default=None, description="Name of the side output of malformed records; they are counted without one."
    )

    @model_validator(mode="after")
    def _reads_one_thing(self) -> Self:
        chosen(self, "files", "kafka", "delta")
        return self

    def spec(self) -> SourceSpec:
        """Return what is read."""
        if self.files is not None:
            return tm.files(**given(self.files))
        if self.kafka is not None:
            return tm.kafka_source(**given(self.kafka))
        return tm.delta_source(**given(self.delta))

    def watermarks(self) -> WatermarkStrategy:
        """Return the timestamps and watermarks."""
        return tm.ingestion_time() if self.event_time is None else tm.bounded_out_of_orderness(**given(self.event_time))

"""Outputs and their sinks in YAML."""

from __future__ import annotations

from typing import Any, Literal, Self

import dagster as dg
from pydantic import Field, model_validator

import tidemark as tm
from tidemark.components.choices import chosen, given
from tidemark.graph import Output


class DeltaModel(dg.Model, dg.Resolvable):
    """A Delta table, exactly once."""

    path: str = Field(description="Of the table, which is created if it does not exist.")
    mode: Literal["append", "upsert", "scd2"] = Field(default="append", description="Add rows, replace them by key, or keep all versions.")
    keys: list[str] | None = Field(default=None, description="Key columns of an upsert; the results of windows have default keys.")
    sequence: str | None = Field(default=None, description="Of scd2: the column from which on a version is valid.")


class ParquetModel(dg.Model, dg.Resolvable):
    """A folder of Parquet files, each row exactly once."""

    path: str = Field(description="Of the folder.")
    readers_move_files: bool = Field(default=False, description="Whether readers move or delete files that they have read.")


class KafkaSinkModel(dg.Model, dg.Resolvable):
    """A topic of Kafka."""

    servers: list[str] = Field(description="Brokers to start from, host:port.")
    topic: str = Field(description="Its name.")
    key: list[str] | None = Field(default=None, description="Columns of the records' keys.")
    mode: Literal["append", "upsert"] = Field(default="append", description="Add records, or the newest of each key with tombstones.")
    guarantee: Literal["exactly_once", "at_least_once"] = Field(default="exactly_once", description="Transactions, or none.")
    options: dict[str, str] | None = Field(default=None, description="Options of the producer; no secrets.")
    options_env: dict[str, str] | None = Field(default=None, description="Options by the environment variables that hold them.")


class PostgresModel(dg.Model, dg.Resolvable):
    """A table of Postgres, exactly once."""

    table: str = Field(description="Its name, such as shop.orders.")
    dsn_env: str = Field(description="Environment variable with the connection string.")
    mode: Literal["append", "upsert"] = Field(default="append", description="Add rows, or replace them by key.")
    keys: list[str] | None = Field(default=None, description="Key columns of an upsert; the results of windows have default keys.")
    with_epoch: bool = Field(default=False, description="Of append: have each row's epoch, so that a rewind can delete it.")


class SqlTableModel(dg.Model, dg.Resolvable):
    """A table of MariaDB, MySQL or SQLite, exactly once."""

    database: Literal["mariadb", "mysql", "sqlite"] = Field(description="The database.")
    table: str = Field(description="Its name, such as orders.")
    dsn_env: str = Field(description="Environment variable with the connection string.")
    mode: Literal["append", "upsert"] = Field(default="append", description="Add rows, or replace them by key.")
    keys: list[str] | None = Field(default=None, description="Key columns of an upsert; the results of windows have default keys.")
    with_epoch: bool = Field(default=False, description="Of append: have each row's epoch, so that a rewind can delete it.")


class IcebergModel(dg.Model, dg.Resolvable):
    """A table of Iceberg, exactly once."""

    table: str = Field(description="Its name with its namespace, such as shop.orders.")
    catalog: str = Field(description="The catalog's name in PyIceberg's configuration.")
    partition_by: list[str] = Field(default_factory=list, description="Of a table that is created: columns, or such as day(at).")


class OutputModel(dg.Model, dg.Resolvable):
    """A stream bound to a sink: one of `delta`, `parquet`, `kafka`, `postgres`, `sql_table`, `iceberg`."""

    input: str = Field(description="The stream, source or side output that is written.")
    delta: DeltaModel | None = Field(default=None, description="A Delta table.")
    parquet: ParquetModel | None = Field(default=None, description="A folder of Parquet files.")
    kafka: KafkaSinkModel | None = Field(default=None, description="A topic of Kafka.")
    postgres: PostgresModel | None = Field(default=None, description="A table of Postgres.")
    sql_table: SqlTableModel | None = Field(default=None, description="A table of MariaDB, MySQL or SQLite.")
    iceberg: IcebergModel | None = Field(default=None, description="A table of Iceberg.")
    description: str = Field(default="", description="What its rows are, for readers.")
    columns: dict[str, str] | None = Field(default=None, description="What its columns are, by name.")

    @model_validator(mode="after")
    def _writes_to_one_place(self) -> Self:
        chosen(self, "delta", "parquet", "kafka", "postgres", "sql_table", "iceberg")
        return self

    def bind(self, stream: tm.Stream) -> Output:
        """Return the stream bound to the sink.

        Raises:
            DefinitionError: the sink does not take the stream's rows.
        """
        texts: dict[str, Any] = {"description": self.description, "columns": self.columns}
        if self.delta is not None:
            return tm.delta(stream, **given(self.delta), **texts)
        if self.parquet is not None:
            return tm.parquet(stream, **given(self.parquet), **texts)
        if self.kafka is not None:
            return tm.kafka_sink(stream, **given(self.kafka), **texts)
        if self.postgres is not None:
            return tm.postgres(stream, **given(self.postgres), **texts)
        if self.sql_table is not None:
            return tm.sql_table(stream, **given(self.sql_table), **texts)
        return tm.iceberg(stream, **given(self.iceberg), **texts)

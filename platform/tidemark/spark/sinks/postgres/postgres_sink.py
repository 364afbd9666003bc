"""A table of Postgres."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidemark.graph.connectors.database.node import TableMode
from tidemark.graph.connectors.postgres.node import PostgresTable
from tidemark.savepoints.postgres.dialect import POSTGRES
from tidemark.spark.sinks.database.database_sink import DatabaseSink
from tidemark.spark.sinks.database.limits import Limits
from tidemark.spark.sinks.postgres.staging import as_copied
from tidemark.spark.sinks.staging.sink_owner import SinkOwner
from tidemark.state.log.records import OutputRecord

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class PostgresSink(DatabaseSink):
    """One table; the arguments are those of ``DatabaseSink``."""

    kind = "postgres"

    def __init__(
        self,
        name: str,
        table: PostgresTable,
        owner: SinkOwner,
        *,
        mode: TableMode = "append",
        keys: tuple[str, ...] = (),
        with_epoch: bool = False,
        former: OutputRecord | None = None,
    ) -> None:
        super().__init__(name, table, POSTGRES, owner, mode=mode, keys=keys, with_epoch=with_epoch, former=former)

    def prepared(self, rows: DataFrame, limits: Limits) -> DataFrame:
        """Return rows as COPY takes them."""
        return as_copied(rows, limits)

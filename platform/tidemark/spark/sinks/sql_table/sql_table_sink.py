"""A table of MariaDB, MySQL or SQLite."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidemark.graph.connectors.database.node import TableMode
from tidemark.graph.connectors.sql_table.node import SqlDatabase, SqlTable
from tidemark.savepoints.sql_table.dialects import dialect_of
from tidemark.spark.sinks.database.database_sink import DatabaseSink
from tidemark.spark.sinks.database.limits import Limits
from tidemark.spark.sinks.sql_table.staging import as_loaded
from tidemark.spark.sinks.staging.sink_owner import SinkOwner
from tidemark.state.log.records import OutputRecord

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class SqlTableSink(DatabaseSink):
    """One table; the arguments are those of ``DatabaseSink``."""

    kind = "sql_table"

    def __init__(
        self,
        name: str,
        table: SqlTable,
        owner: SinkOwner,
        *,
        mode: TableMode = "append",
        keys: tuple[str, ...] = (),
        with_epoch: bool = False,
        former: OutputRecord | None = None,
    ) -> None:
        super().__init__(name, table, dialect_of(table), owner, mode=mode, keys=keys, with_epoch=with_epoch, former=former)
        self._database: SqlDatabase = table.database

    def prepared(self, rows: DataFrame, limits: Limits) -> DataFrame:
        """Return rows as the database's driver takes them."""
        return as_loaded(rows, limits, self._database)

"""The declaration of a source that captures the changes of tables of Postgres."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from tidemark.graph.model.schema import Schema, SchemaColumn

OPERATIONS: Final = ("read", "insert", "update", "delete")

CHANGE_COLUMNS: Final = Schema.of(
    [("table", "STRING"), ("operation", "STRING"), ("committed_at", "TIMESTAMP"), ("lsn", "BIGINT"), ("tx", "BIGINT")]
)
"""The columns of every captured row, whatever its table; ``operation`` is one of ``OPERATIONS``."""


@dataclass(frozen=True)
class CapturedTable:
    """A table whose changes are captured: schema and name, the columns that are read with their Spark types, and the primary key."""

    schema: str
    name: str
    columns: Schema
    keys: tuple[str, ...]

    @property
    def label(self) -> str:
        """Schema and name."""
        return f"{self.schema}.{self.name}"

    @property
    def row_column(self) -> str:
        """The column of the source that has the rows of the table, as texts."""
        return f"{self.schema}__{self.name}"


@dataclass(frozen=True)
class PostgresChangesSpec:
    """The rows of tables of Postgres, then their changes, by logical replication.

    ``dsn_env`` names the environment variable of the connection string. A ``publication`` or ``slot`` of None is made by the job. Without
    ``snapshot`` only changes are read. ``max_rows_per_epoch`` bounds the rows of a part of the snapshot, and the changes of an epoch.
    """

    dsn_env: str
    tables: tuple[CapturedTable, ...]
    publication: str | None = None
    slot: str | None = None
    snapshot: bool = True
    on_truncate: Literal["fail", "skip"] = "fail"
    max_rows_per_epoch: int | None = None

    def table(self, label: str) -> CapturedTable | None:
        """Return the table with a schema and name, None if it is not captured."""
        return next((table for table in self.tables if table.label == label), None)

    @property
    def row_schema(self) -> Schema:
        """The columns of the source: those of every change, and a struct of texts for each table."""
        rows = (SchemaColumn(table.row_column, f"STRUCT<{_texts(table)}>") for table in self.tables)
        return Schema((*CHANGE_COLUMNS.columns, *rows))

    @property
    def row_ddl(self) -> str:
        """The columns of the source as DDL."""
        return ", ".join(f"{_quoted(column.name)} {column.type}" for column in self.row_schema.columns)


def _texts(table: CapturedTable) -> str:
    return ", ".join(f"{_quoted(name)}: STRING" for name in table.columns.names)


def _quoted(name: str) -> str:
    return f"`{name.replace('`', '``')}`"

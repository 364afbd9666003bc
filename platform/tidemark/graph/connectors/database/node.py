"""A table of a database, and the declaration of a sink that writes to it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Final, Literal, Self

from tidemark.graph.checks.output_columns import EPOCH, EPOCH_COLUMN, HISTORY_COLUMNS
from tidemark.graph.connectors.tables import fork_table
from tidemark.graph.model.connector_spec import ConnectorSpec
from tidemark.graph.model.schema import SchemaColumn

TableMode = Literal["append", "upsert"]

BOOKKEEPING: Final = "tidemark_epochs"
"""The table, beside an output's table, that has a row for each published epoch."""


@dataclass(frozen=True)
class DatabaseTable(ABC):
    """A table: the environment variable that holds the connection string, the schema (empty where a database has none), the name."""

    dsn_env: str
    schema: str
    name: str

    longest_name: ClassVar[int]

    @property
    @abstractmethod
    def location(self) -> str:
        """The table as records and errors show it."""

    @property
    def label(self) -> str:
        """Schema and name."""
        return f"{self.schema}.{self.name}" if self.schema else self.name


@dataclass(frozen=True)
class DatabaseSpec(ConnectorSpec):
    """A table of a database; exactly once, by a row for each epoch in ``tidemark_epochs``, written in the same transaction.

    ``append`` adds every row, with the epoch's number if ``with_epoch``; ``upsert`` has a row replace the one whose ``keys`` are the same.
    """

    table: DatabaseTable
    mode: TableMode = "append"
    keys: tuple[str, ...] = ()
    with_epoch: bool = False

    @property
    def location(self) -> str:
        """The table, by the name of the variable that holds the connection string."""
        return self.table.location

    @property
    def table_name(self) -> str:
        """Schema and name."""
        return self.table.label

    @property
    def guarantee(self) -> str:
        """What it guarantees."""
        return "exactly once, the newest row of each key" if self.mode == "upsert" else "exactly once"

    @property
    def on_rewind(self) -> str:
        """What a rewind does."""
        if self.mode == "upsert":
            return "refused if rows were written since: the values before are not kept"
        return (
            "rows of later epochs are deleted, by the column `epoch`; refused if there are any and the table has no such column, or was "
            "not created by this output"
        )

    @property
    def variables(self) -> Mapping[str, str]:
        """The variable of the connection string."""
        return {self.table.dsn_env: "the connection string"}

    @property
    def row_keys(self) -> tuple[str, ...]:
        """The key of an upsert."""
        return self.keys

    @property
    @abstractmethod
    def database(self) -> str:
        """The database's name, as drawings of the graph have it."""

    def describe(self) -> str:
        """Return the table and the mode."""
        how = f", upsert by {', '.join(self.keys)}" if self.mode == "upsert" else ", with the epoch" if self.with_epoch else ""
        return f"{self.database} {self.table.label} by {self.table.dsn_env}{how}"

    def added_columns(self, *, changelog: bool) -> tuple[SchemaColumn, ...]:
        """Return operation and epoch of a changelog's history, or the epoch."""
        if self.mode == "upsert":
            return ()
        return HISTORY_COLUMNS if changelog else (EPOCH_COLUMN,) if self.with_epoch else ()

    def encoded(self) -> list[object]:
        """Return the mode."""
        return [type(self).__name__, self.mode, list(self.keys), *([EPOCH] if self.with_epoch else [])]

    def redirected(self, fork: str) -> Self:
        """Return it with a table beside the original's: ``<fork>_<table>``, with a checksum where the database has no such names."""
        name = fork_table(fork, self.table.name, longest=self.table.longest_name)
        return replace(self, table=replace(self.table, name=name))

"""The declaration of a Postgres sink."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Final, Literal

from tidemark.errors import SinkError
from tidemark.graph.checks.output_columns import EPOCH, EPOCH_COLUMN, HISTORY_COLUMNS
from tidemark.graph.connectors.tables import fork_table
from tidemark.graph.model.connector_spec import ConnectorSpec
from tidemark.graph.model.schema import SchemaColumn

PostgresMode = Literal["append", "upsert"]

MAX_NAME_BYTES: Final = 63
"""Postgres silently cuts longer names off."""

_SCHEME: Final = "postgres://"
_LOCATION: Final = re.compile(rf"{_SCHEME}(?P<variable>[A-Z][A-Z0-9_]*)/(?P<schema>\w+)\.(?P<table>\w+)", re.ASCII)


@dataclass(frozen=True)
class PostgresTable:
    """A table: the environment variable that holds the connection string, the schema and the name."""

    dsn_env: str
    schema: str
    name: str

    @property
    def location(self) -> str:
        """The table as records and errors show it."""
        return f"{_SCHEME}{self.dsn_env}/{self.label}"

    @property
    def label(self) -> str:
        """Schema and name."""
        return f"{self.schema}.{self.name}"

    @classmethod
    def of_location(cls, location: str) -> PostgresTable:
        """Return the table of a recorded location.

        Raises:
            SinkError: it is none of a table.

        >>> PostgresTable.of_location("postgres://SHOP_DSN/public.orders").label
        'public.orders'
        """
        found = _LOCATION.fullmatch(location)
        if found is None:
            raise SinkError("the recorded place of an output is no table of Postgres", fix="report this", place=location)
        return cls(found["variable"], found["schema"], found["table"])


@dataclass(frozen=True)
class PostgresSpec(ConnectorSpec):
    """A table of Postgres; exactly once, by a row for each epoch in ``tidemark_epochs``, written in the same transaction.

    ``append`` adds every row, with the epoch's number if ``with_epoch``; ``upsert`` has a row replace the one whose ``keys`` are the same.
    """

    table: PostgresTable
    mode: PostgresMode = "append"
    keys: tuple[str, ...] = ()
    with_epoch: bool = False

    kind: ClassVar[str] = "postgres"

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

    def describe(self) -> str:
        """Return the table and the mode."""
        how = f", upsert by {', '.join(self.keys)}" if self.mode == "upsert" else ", with the epoch" if self.with_epoch else ""
        return f"postgres {self.table.label} by {self.table.dsn_env}{how}"

    def added_columns(self, *, changelog: bool) -> tuple[SchemaColumn, ...]:
        """Return operation and epoch of a changelog's history, or the epoch."""
        if self.mode == "upsert":
            return ()
        return HISTORY_COLUMNS if changelog else (EPOCH_COLUMN,) if self.with_epoch else ()

    def encoded(self) -> list[object]:
        """Return the mode."""
        return [type(self).__name__, self.mode, list(self.keys), *([EPOCH] if self.with_epoch else [])]

    def redirected(self, fork: str) -> PostgresSpec:
        """Return it with a table beside the original's: ``<fork>_<table>``, with a checksum where Postgres has no such names.

        >>> PostgresSpec(PostgresTable("DSN", "shop", "orders")).redirected("try").table.label
        'shop.try_orders'
        """
        return replace(self, table=replace(self.table, name=fork_table(fork, self.table.name, longest=MAX_NAME_BYTES)))

"""What differs between databases: connections, types, quoting, reading a table, locks, and how staged rows are written."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, ClassVar, Final

from tidemark.errors import SinkError
from tidemark.graph.connectors.database.node import DatabaseTable
from tidemark.savepoints.database.session import Session
from tidemark.savepoints.model.stored_types import shown_type

if TYPE_CHECKING:
    from tidemark.savepoints.database.stored import Longest, Missing, StoredColumn, StoredTable, Wanted

ROWS: Final = "tidemark_rows"
"""The temporary table with an epoch's rows."""

DELETED: Final = "tidemark_deleted"
"""The temporary table with the keys of the rows that an epoch deletes."""


class Dialect(ABC):
    """One database. Statements have ``%s`` for values; names of tables and columns are quoted by ``quoted``."""

    name: ClassVar[str]
    quote: ClassVar[str] = '"'
    epochs_columns: ClassVar[str]
    """The columns of the table of epochs, as ``CREATE TABLE`` takes them."""

    def quoted(self, name: str) -> str:
        """Return a name as statements have it."""
        return f"{self.quote}{name.replace(self.quote, self.quote * 2)}{self.quote}"

    def listed(self, names: Iterable[str]) -> str:
        """Return quoted names, with commas between them."""
        return ", ".join(map(self.quoted, names))

    def full_name(self, table: DatabaseTable, name: str | None = None) -> str:
        """Return the quoted name of a table, or of another one beside it, with its schema."""
        found = self.quoted(table.name if name is None else name)
        return f"{self.quoted(table.schema)}.{found}" if table.schema else found

    def column_types(self, schema: Mapping[str, Any], output: str, keys: Sequence[str]) -> dict[str, str]:
        """Return the database's types of the columns of an output's rows.

        Args:
            schema: Spark's JSON of the rows' type.
            output: its name, for the error.
            keys: of an upsert, empty for an append.

        Raises:
            SinkError: the database has no type for one of them.
        """
        found = {}
        for field in schema["fields"]:
            name, kind = field["name"], shown_type(field["type"])
            fault = self.column_fault(name, kind)
            if fault is not None:
                raise SinkError(f"output {output!r}: {fault[0]}", fix=fault[1], uid=output)
            found[name] = self.type_of(kind, name) or ""
        return self.with_keys(found, keys)

    def with_keys(self, types: Mapping[str, str], keys: Sequence[str]) -> dict[str, str]:  # noqa: ARG002 - of most databases nothing changes
        """Return types of columns, where those of a key can be in an index."""
        return dict(types)

    def longest(self, types: Mapping[str, str]) -> Mapping[str, Longest]:  # noqa: ARG002 - most databases have no such types
        """Return how long values may be, by column, of a table that is created with these types."""
        return {}

    def has_rows(self, session: Session, table: DatabaseTable) -> bool:
        """Return whether a table has any row."""
        return bool(session.query(f"SELECT 1 FROM {self.full_name(table)} LIMIT 1"))

    def may_have_rows(self, session: Session, table: DatabaseTable) -> bool:
        """Return whether a table has rows, as far as the user may know."""
        return self.has_rows(session, table)

    def create_table(self, session: Session, table: DatabaseTable, wanted: Wanted) -> None:
        """Create a table with these columns, all of which take nulls; an upsert's keys are unique."""
        parts = [f"{self.quoted(name)} {self.declared(kind)}" for name, kind in wanted.types.items()]
        if wanted.keys:
            parts.append(self.unique(wanted.keys))
        session.query(f"CREATE TABLE {self.full_name(table)} ({', '.join(parts)}){self.table_options()}")

    def declared(self, kind: str) -> str:
        """Return a type of a column as ``CREATE TABLE`` and ``ALTER TABLE`` take it."""
        return kind

    def unique(self, keys: Sequence[str]) -> str:
        """Return the constraint of a new table that makes keys unique."""
        return f"UNIQUE ({self.listed(keys)})"

    def table_options(self) -> str:
        """Return what follows the columns of a new table."""
        return ""

    def make_epochs(self, session: Session, table: DatabaseTable, name: str) -> None:
        """Create the table of epochs beside a table, unless another transaction has done so meanwhile."""
        session.query(f"CREATE TABLE IF NOT EXISTS {self.full_name(table, name)} ({self.epochs_columns}){self.table_options()}")

    def drop_table(self, session: Session, table: DatabaseTable) -> None:
        """Delete a table that the output has created and that never had rows."""
        session.query(f"DROP TABLE {self.full_name(table)}")

    def add_columns(self, session: Session, table: DatabaseTable, stored: StoredTable, types: Mapping[str, str]) -> None:
        """Add the columns that a table lacks."""
        for name, kind in types.items():
            if name not in stored.columns:
                session.query(f"ALTER TABLE {self.full_name(table)} ADD COLUMN {self.quoted(name)} {self.declared(kind)}")

    def unique_index(self, table: DatabaseTable, keys: Sequence[str]) -> str:
        """Return the statement by which an existing table gets the unique index that an upsert needs."""
        name = self.quoted(f"{table.name[:40]}_key")
        return f"CREATE UNIQUE INDEX {name} ON {table.label} ({self.listed(keys)})"

    @abstractmethod
    def transaction(self, table: DatabaseTable) -> AbstractContextManager[Session]:
        """Connect, and run the block in one transaction: committed at its end, rolled back if it raises.

        Raises:
            SetupError: a library is not installed.
            SinkError: the variable is not set, or holds no connection string.
            DatabaseError: the server cannot be reached, or refuses a statement.
        """

    @abstractmethod
    def column_fault(self, name: str, kind: str | None) -> tuple[str, str] | None:
        """Return why a column cannot be written, and what to write instead; None if it can, as far as is known."""

    @abstractmethod
    def type_of(self, kind: str, column: str) -> str | None:
        """Return the database's type for one of Spark's, None where there is none."""

    @abstractmethod
    def holds(self, stored: str, wanted: str) -> bool:
        """Return whether a table's column takes all values of a type, but for their length."""

    @abstractmethod
    def require_server(self, session: Session, table: DatabaseTable, output: str) -> None:
        """Raise SinkError where the server, or the database, cannot hold what is written."""

    @abstractmethod
    def read_table(self, session: Session, table: DatabaseTable) -> StoredTable | None:
        """Return a table as it is, None where there is none."""

    @abstractmethod
    def has_table(self, session: Session, table: DatabaseTable, name: str) -> bool:
        """Return whether there is a table of a name beside another one."""

    @abstractmethod
    def lock(self, session: Session, key: str) -> None:
        """Wait until no other transaction has the lock of this name, and keep others waiting until this one ends."""

    @abstractmethod
    def missing_privileges(
        self, session: Session, table: DatabaseTable, stored: StoredTable | None, wanted: Wanted, *, epochs: bool
    ) -> list[Missing]:
        """Return what the user lacks to publish rows.

        Args:
            session: in a transaction.
            table: its name.
            stored: as it is, None where it is created with the first rows.
            wanted: the rows.
            epochs: whether there is a table of epochs.
        """

    @abstractmethod
    def may_delete(self, session: Session, table: DatabaseTable) -> list[Missing]:
        """Return what the user lacks to delete rows of a table."""

    @abstractmethod
    def without_not_null(self, table: DatabaseTable, name: str, column: StoredColumn) -> str:
        """Return the statement by which a column takes nulls."""

    @abstractmethod
    def delete_rows(self, session: Session, table: DatabaseTable, keys: Sequence[str]) -> None:
        """Delete the rows with the keys in the temporary table ``DELETED``; nulls equal nulls."""

    @abstractmethod
    def write_rows(self, session: Session, table: DatabaseTable, columns: Sequence[str], keys: Sequence[str]) -> None:
        """Add the rows of the temporary table ``ROWS``; with keys, rows replace those that have the same, nulls being equal."""

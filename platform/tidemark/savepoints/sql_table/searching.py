"""What MariaDB, MySQL and SQLite share: privileges are tried, and rows are updated or inserted by a search for their keys."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import ClassVar

from tidemark.graph.connectors.database.node import DatabaseTable
from tidemark.savepoints.database.dialect import ROWS, Dialect
from tidemark.savepoints.database.session import Session
from tidemark.savepoints.database.stored import Missing, StoredTable, Wanted
from tidemark.savepoints.sql_table.rehearsal import rehearse, rehearse_deletion


class SearchingDialect(Dialect):
    """A database whose unique indexes take nulls as different, so that no statement of its own replaces rows by their keys."""

    loaded: ClassVar[str] = ROWS
    """The temporary table with the rows to write."""

    def missing_privileges(
        self, session: Session, table: DatabaseTable, stored: StoredTable | None, wanted: Wanted, *, epochs: bool
    ) -> list[Missing]:
        """Try what publishing needs, without an effect."""
        rehearse(session, self, table, stored, wanted, epochs=epochs)
        return []

    def may_delete(self, session: Session, table: DatabaseTable) -> list[Missing]:
        """Try a deletion, without an effect."""
        rehearse_deletion(session, self, table)
        return []

    def write_rows(self, session: Session, table: DatabaseTable, columns: Sequence[str], keys: Sequence[str]) -> None:
        """Update the rows whose key is there, and insert the others."""
        name, listed = self.full_name(table), self.listed(columns)
        given = ", ".join(f"r.{each}" for each in map(self.quoted, columns))
        insert = f"INSERT INTO {name} ({listed}) SELECT {given} FROM {self.loaded} AS r"
        if keys:
            others = [column for column in columns if column not in keys]
            if others:
                session.query(self.update(name, others, keys))
            insert += f" WHERE NOT EXISTS (SELECT 1 FROM {name} AS t WHERE {self.same_keys('r', keys)})"
        session.query(insert)

    @abstractmethod
    def update(self, name: str, columns: Sequence[str], keys: Sequence[str]) -> str:
        """Return the statement that sets columns of the rows ``t`` of a table to those of the loaded rows ``r`` with the same keys."""

    @abstractmethod
    def same_keys(self, other: str, keys: Sequence[str]) -> str:
        """Return the condition that a row ``t`` of the table and one of another table have the same keys; nulls are equal."""

"""SQLite: a file on this machine, its locks and its types."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar, Final

import pyarrow as pa

from tidemark.errors import SinkError
from tidemark.graph.connectors.database.node import DatabaseTable
from tidemark.graph.connectors.sql_table.checks import column_fault
from tidemark.graph.connectors.sql_table.types import sql_type
from tidemark.savepoints.database.dialect import DELETED, ROWS
from tidemark.savepoints.database.session import DatabaseError, Session
from tidemark.savepoints.database.stored import StoredColumn, StoredTable, UniqueKey
from tidemark.savepoints.sql_table.connection_strings import sqlite_file
from tidemark.savepoints.sql_table.searching import SearchingDialect
from tidemark.savepoints.sql_table.values import as_sqlite, rows_of

LOCK_SECONDS: Final = 120
"""How long a transaction waits for that of another program."""

LEAST_VERSION: Final = (3, 33, 0)
"""The first release with UPDATE … FROM."""

_BUSY: Final = frozenset({"SQLITE_BUSY", "SQLITE_LOCKED", "SQLITE_CANTOPEN", "SQLITE_IOERR"})
_INTEGER: Final = re.compile("INT")
_TEXT: Final = re.compile("CHAR|CLOB|TEXT")
_REAL: Final = re.compile("REAL|FLOA|DOUB")


@dataclass(frozen=True)
class SqliteSession:
    """A connection that begins to write when it takes the lock: before that each statement is a transaction of its own."""

    connection: sqlite3.Connection

    def query(self, statement: str, values: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """Run a statement, and return its rows."""
        return self.connection.execute(statement.replace("%s", "?") if values else statement, list(values)).fetchall()

    def load(self, into: str, types: Mapping[str, str], batches: Iterable[pa.RecordBatch]) -> None:
        """Create a temporary table, which is a file of its own, so that the database is not locked meanwhile."""
        columns = ", ".join(f"{SQLITE.quoted(name)} {kind}" for name, kind in types.items())
        self.query(f"CREATE TEMPORARY TABLE {into} ({columns})")
        self.query("BEGIN")
        statement = f"INSERT INTO temp.{into} VALUES ({', '.join('?' * len(types))})"
        for rows in rows_of(batches, as_sqlite):
            self.connection.executemany(statement, rows)
        self.query("COMMIT")


class SqliteDialect(SearchingDialect):
    """SQLite 3.33 or later."""

    name: ClassVar[str] = "SQLite"
    loaded: ClassVar[str] = f"temp.{ROWS}"
    epochs_columns: ClassVar[str] = (
        "job TEXT NOT NULL, lineage TEXT NOT NULL, output TEXT NOT NULL, epoch INTEGER NOT NULL, "
        'table_name TEXT NOT NULL, mode TEXT NOT NULL, term INTEGER NOT NULL, "rows" INTEGER NOT NULL, kept INTEGER, '
        "published_at TEXT NOT NULL DEFAULT (strftime('%Y-%m-%d %H:%M:%f', 'now')), PRIMARY KEY (job, lineage, output, epoch)"
    )

    def transaction(self, table: DatabaseTable) -> AbstractContextManager[Session]:
        """Open the file, which is made where it does not exist."""
        return _transaction(table)

    def column_fault(self, name: str, kind: str | None) -> tuple[str, str] | None:
        """Return why a column cannot be written."""
        return column_fault("sqlite", name, kind)

    def type_of(self, kind: str, column: str) -> str | None:
        """Return the type for one of Spark's."""
        return sql_type("sqlite", kind, column)

    def holds(self, stored: str, wanted: str) -> bool:
        """Return whether a column stores values as they are given.

        >>> SQLITE.holds("VARCHAR(20)", "TEXT"), SQLITE.holds("NUMERIC", "INTEGER"), SQLITE.holds("NUMERIC", "TEXT")
        (True, True, False)
        """
        there = _affinity(stored)
        return there == wanted or (there == "NUMERIC" and wanted == "INTEGER")

    def require_server(self, session: Session, table: DatabaseTable, output: str) -> None:  # noqa: ARG002 - the protocol's
        """Make sure that the library is new enough."""
        if sqlite3.sqlite_version_info < LEAST_VERSION:
            raise SinkError(
                f"output {output!r} needs SQLite 3.33, and this Python has {sqlite3.sqlite_version}",
                fix="run the driver with a newer Python",
                uid=output,
                place=table.location,
            )

    def read_table(self, session: Session, table: DatabaseTable) -> StoredTable | None:
        """Return a table as it is."""
        found = session.query(
            "SELECT type, sql FROM sqlite_master WHERE name = %s COLLATE NOCASE AND type IN ('table', 'view')", [table.name]
        )
        if not found:
            return None
        columns = {}
        for _, name, kind, required, default, primary, hidden in session.query("SELECT * FROM pragma_table_xinfo(%s)", [table.name]):
            # A single INTEGER PRIMARY KEY gets a number by itself.
            numbered = primary and kind.upper() == "INTEGER"
            columns[name] = StoredColumn(kind, bool(required), default is not None or numbered, hidden in (2, 3))
        keys = tuple(self._unique_keys(session, table.name))
        return StoredTable(columns, keys, _fault(*found[0]))

    def _unique_keys(self, session: Session, name: str) -> Iterator[UniqueKey]:
        indexes = 'SELECT name FROM pragma_index_list(%s) WHERE "unique" = 1 AND partial = 0'
        for (index,) in session.query(indexes, [name]):
            parts = session.query("SELECT name, coll FROM pragma_index_xinfo(%s) WHERE key = 1", [index])
            if all(column is not None and order == "BINARY" for column, order in parts):
                yield UniqueKey(frozenset(column for column, _ in parts), nulls_equal=True)
        primary = session.query("SELECT name, type FROM pragma_table_info(%s) WHERE pk > 0", [name])
        if len(primary) == 1 and primary[0][1].upper() == "INTEGER":
            yield UniqueKey(frozenset({primary[0][0]}), nulls_equal=False)

    def has_table(self, session: Session, table: DatabaseTable, name: str) -> bool:  # noqa: ARG002 - a file has no schemas
        """Return whether the file has a table of a name."""
        return bool(session.query("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = %s", [name]))

    def lock(self, session: Session, key: str) -> None:  # noqa: ARG002 - there is one lock for the whole file
        """Begin to write, which one connection at a time does."""
        session.query("BEGIN IMMEDIATE")

    def without_not_null(self, table: DatabaseTable, name: str, column: StoredColumn) -> str:  # noqa: ARG002 - the protocol's
        """Return what to do about a column that takes no null."""
        return f"give the column {self.quoted(name)} of {table.label} a default, in a new table to which the rows are copied"

    def delete_rows(self, session: Session, table: DatabaseTable, keys: Sequence[str]) -> None:
        """Delete rows by their keys: a search in the index for each."""
        name = self.full_name(table)
        same = self.same_keys("d", keys)
        found = f"SELECT t._rowid_ FROM temp.{DELETED} AS d CROSS JOIN {name} AS t ON {same}"
        session.query(f"DELETE FROM {name} WHERE _rowid_ IN ({found})")

    def update(self, name: str, columns: Sequence[str], keys: Sequence[str]) -> str:
        """Return the statement that sets columns of rows that are there."""
        new = ", ".join(f"{each} = r.{each}" for each in map(self.quoted, columns))
        return f"UPDATE {name} AS t SET {new} FROM {self.loaded} AS r WHERE {self.same_keys('r', keys)}"

    def same_keys(self, other: str, keys: Sequence[str]) -> str:
        """Return the condition that two rows have the same keys."""
        # As the unique index compares them: the column itself may have another collation.
        return " AND ".join(f"t.{key} COLLATE BINARY IS {other}.{key}" for key in map(self.quoted, keys))


SQLITE: Final = SqliteDialect()


@contextmanager
def _transaction(table: DatabaseTable) -> Iterator[SqliteSession]:
    path = sqlite_file(table)
    try:
        with closing(sqlite3.connect(path, timeout=LOCK_SECONDS, isolation_level=None)) as connection:
            connection.execute("PRAGMA foreign_keys = ON")
            yield SqliteSession(connection)
            if connection.in_transaction:
                connection.execute("COMMIT")
    except sqlite3.Error as error:
        code = str(getattr(error, "sqlite_errorname", ""))
        # The file's name may be a secret of the variable, and the library's texts do not have it.
        raise DatabaseError(str(error), state=code, lost=any(code.startswith(each) for each in _BUSY)) from None


def _affinity(declared: str) -> str:
    """Return how a column of a declared type converts values, by the rules of SQLite's "Determination Of Column Affinity"."""
    upper = declared.upper()
    if _INTEGER.search(upper):
        return "INTEGER"
    if _TEXT.search(upper):
        return "TEXT"
    if not upper or "BLOB" in upper:
        return "BLOB"
    return "REAL" if _REAL.search(upper) else "NUMERIC"


def _fault(kind: str, definition: str | None) -> tuple[str, str] | None:
    if kind != "table":
        return "is no table", "name a table, not a view"
    if definition is not None and re.search(r"\)[^)]*\bWITHOUT\s+ROWID\b[^)]*$", definition, re.IGNORECASE):
        return "is a table WITHOUT ROWID", "make it without that"
    return None

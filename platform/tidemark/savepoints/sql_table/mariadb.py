"""MariaDB and MySQL as databases of sinks: their catalog, types, locks, and how loaded rows get into a table.

What creates or changes a table ends the transaction before it, so the callers do that first.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import ClassVar, Final

from tidemark.errors import SinkError
from tidemark.graph.connectors.database.node import DatabaseTable
from tidemark.graph.connectors.sql_table.checks import column_fault
from tidemark.graph.connectors.sql_table.node import SqlDatabase
from tidemark.graph.connectors.sql_table.types import key_types, sql_type
from tidemark.savepoints.database.dialect import DELETED
from tidemark.savepoints.database.session import DatabaseError, Session
from tidemark.savepoints.database.stored import Longest, StoredColumn, StoredTable, UniqueKey
from tidemark.savepoints.sql_table.mariadb_session import LOCK_SECONDS, transaction
from tidemark.savepoints.sql_table.searching import SearchingDialect

IDLE_SECONDS: Final = 60
"""After that time without a statement the server ends a connection with a lock, so that a suspended driver does not hold it."""

_COLUMNS: Final = """
SELECT column_name, column_type, is_nullable, column_default, extra, character_set_name, collation_name, character_maximum_length,
    character_octet_length
FROM information_schema.columns WHERE table_schema = DATABASE() AND table_name = %s ORDER BY ordinal_position
"""
_KEYS: Final = """
SELECT index_name, column_name, sub_part FROM information_schema.statistics
WHERE table_schema = DATABASE() AND table_name = %s AND non_unique = 0 ORDER BY index_name, seq_in_index
"""
_WIDTH: Final = re.compile(r"(tinyint|smallint|mediumint|int|bigint)\(\d+\)")
_DECIMAL: Final = re.compile(r"decimal\((\d+),(\d+)\)")
_LENGTH: Final = re.compile(r"(varchar|varbinary)\((\d+)\)")
_TEXTS: Final = re.compile(r"longtext|mediumtext|text|varchar\(\d+\)")
_BINARIES: Final = re.compile(r"longblob|mediumblob|blob|varbinary\(\d+\)")
_OF: Final = " of "
_INTEGERS: Final = ("tinyint", "smallint", "mediumint", "int", "bigint")
_DIGITS: Final = {"tinyint": 3, "smallint": 5, "mediumint": 7, "int": 10, "bigint": 19}


class MariadbDialect(SearchingDialect):
    """MariaDB 10.6 or later."""

    name: ClassVar[str] = "MariaDB"
    quote: ClassVar[str] = "`"
    epochs_columns: ClassVar[str] = (
        "job varchar(100) NOT NULL, lineage varchar(250) NOT NULL, output varchar(100) NOT NULL, epoch bigint NOT NULL, "
        "table_name varchar(64) NOT NULL, mode varchar(20) NOT NULL, term bigint NOT NULL, `rows` bigint NOT NULL, kept bigint, "
        "published_at datetime(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6), PRIMARY KEY (job, lineage, output, epoch)"
    )
    database: ClassVar[SqlDatabase] = "mariadb"
    collation: ClassVar[str] = "utf8mb4_nopad_bin"
    """By which texts are compared byte for byte, also their spaces."""

    least: ClassVar[tuple[int, int, int]] = (10, 6, 0)

    def transaction(self, table: DatabaseTable) -> AbstractContextManager[Session]:
        """Run a block in one transaction."""
        return transaction(table, self.table_options())

    def column_fault(self, name: str, kind: str | None) -> tuple[str, str] | None:
        """Return why a column cannot be written."""
        return column_fault(self.database, name, kind)

    def type_of(self, kind: str, column: str) -> str | None:
        """Return the type for one of Spark's."""
        return sql_type(self.database, kind, column)

    def with_keys(self, types: Mapping[str, str], keys: Sequence[str]) -> dict[str, str]:
        """Return types where texts of a key have a greatest length, without which no index can have them."""
        return key_types(types, keys)

    def longest(self, types: Mapping[str, str]) -> Mapping[str, Longest]:
        """Return the lengths of texts of a key."""
        found = {name: _LENGTH.fullmatch(kind) for name, kind in types.items()}
        return {
            name: Longest(int(each[2]), int(each[2]) * (4 if each[1] == "varchar" else 1))
            for name, each in found.items()
            if each is not None
        }

    def holds(self, stored: str, wanted: str) -> bool:
        """Return whether a column takes all values of a type, but for their length.

        >>> MARIADB.holds("varchar(20)", "longtext"), MARIADB.holds("bigint", "int"), MARIADB.holds("decimal(8,2)", "decimal(10,2)")
        (True, True, False)
        """
        if wanted in _INTEGERS:
            wide = _DECIMAL.fullmatch(stored)
            if wide is not None:
                return int(wide[1]) - int(wide[2]) >= _DIGITS[wanted]
            return stored in _INTEGERS[_INTEGERS.index(wanted) :]
        if (asked := _DECIMAL.fullmatch(wanted)) is not None:
            there = _DECIMAL.fullmatch(stored)
            return there is not None and int(there[2]) >= int(asked[2]) and int(there[1]) - int(there[2]) >= int(asked[1]) - int(asked[2])
        for kinds in (_TEXTS, _BINARIES):
            if kinds.fullmatch(wanted):
                return kinds.fullmatch(stored) is not None
        return stored == wanted

    def require_server(self, session: Session, table: DatabaseTable, output: str) -> None:
        """Make sure that the server is the one that was declared, and new enough."""
        ((text,),) = session.query("SELECT VERSION()")
        numbers = tuple(int(part) for part in re.findall(r"\d+", text)[:3])
        kind = "MariaDB" if "mariadb" in text.lower() else "MySQL"
        if kind != self.name or numbers < self.least:
            least = ".".join(map(str, self.least))
            raise SinkError(
                f"the server of output {output!r} is {kind} {'.'.join(map(str, numbers))}, and the output is declared for {self.name} "
                f"{least} or later",
                fix=f"declare database={kind.lower()!r}" if kind != self.name else f"write to {self.name} {least} or later",
                uid=output,
                place=table.location,
            )

    def read_table(self, session: Session, table: DatabaseTable) -> StoredTable | None:
        """Return a table as it is."""
        found = session.query(
            "SELECT table_type, engine FROM information_schema.tables WHERE table_schema = DATABASE() AND table_name = %s", [table.name]
        )
        if not found:
            return None
        columns, comparable = {}, set()
        for name, kind, nullable, default, extra, charset, collation, characters, octets in session.query(_COLUMNS, [table.name]):
            plain = _WIDTH.sub(r"\1", kind)
            has_default = default not in (None, "NULL") or "auto_increment" in extra.lower()
            columns[name] = StoredColumn(
                plain if charset in (None, "utf8mb4") else f"{plain}{_OF}{charset}",
                nullable == "NO",
                has_default,
                "GENERATED" in extra.upper() and "DEFAULT_GENERATED" not in extra.upper(),
                Longest(int(characters), int(octets)) if characters is not None else None,
            )
            if collation in (None, self.collation):
                comparable.add(name)
        fault = None
        if found[0][0] != "BASE TABLE":
            fault = ("is no table", "name a table, not a view")
        elif found[0][1] != "InnoDB":
            fault = (f"has the engine {found[0][1]}, which has no transactions", f"ALTER TABLE {table.label} ENGINE = InnoDB")
        return StoredTable(columns, tuple(self._unique_keys(session, table, comparable)), fault)

    def _unique_keys(self, session: Session, table: DatabaseTable, comparable: set[str]) -> Iterator[UniqueKey]:
        indexes: dict[str, list[tuple[str | None, int | None]]] = {}
        for index, column, part in session.query(_KEYS, [table.name]):
            indexes.setdefault(index, []).append((column, part))
        for parts in indexes.values():
            if all(column in comparable and part is None for column, part in parts):
                yield UniqueKey(frozenset(column for column, _ in parts if column is not None), nulls_equal=True)

    def has_table(self, session: Session, table: DatabaseTable, name: str) -> bool:  # noqa: ARG002 - a database has no schemas
        """Return whether the database has a table of a name."""
        query = "SELECT 1 FROM information_schema.tables WHERE table_schema = DATABASE() AND table_name = %s"
        return bool(session.query(query, [name]))

    def lock(self, session: Session, key: str) -> None:
        """Take a lock of the server, which the end of the connection gives back."""
        session.query(f"SET SESSION wait_timeout = {IDLE_SECONDS}")
        ((taken,),) = session.query(f"SELECT GET_LOCK(SHA2(CONCAT(DATABASE(), '/', %s), 256), {LOCK_SECONDS})", [key])
        if taken != 1:
            raise DatabaseError(f"another transaction has held the lock of this output for {LOCK_SECONDS} seconds", lost=True)

    def table_options(self) -> str:
        """Return the engine, and how texts are compared."""
        return f" ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE {self.collation}"

    def unique_index(self, table: DatabaseTable, keys: Sequence[str]) -> str:
        """Return the statement, and how texts of a key must be compared."""
        return f"{super().unique_index(table, keys)} (texts: VARCHAR, COLLATE {self.collation})"

    def without_not_null(self, table: DatabaseTable, name: str, column: StoredColumn) -> str:
        """Return the statement by which a column takes nulls."""
        return f"ALTER TABLE {table.label} MODIFY {self.quoted(name)} {column.type.partition(_OF)[0]} NULL"

    def delete_rows(self, session: Session, table: DatabaseTable, keys: Sequence[str]) -> None:
        """Delete rows by their keys: a search in the index for each."""
        session.query(f"DELETE t FROM {DELETED} AS d STRAIGHT_JOIN {self.full_name(table)} AS t ON {self.same_keys('d', keys)}")

    def update(self, name: str, columns: Sequence[str], keys: Sequence[str]) -> str:
        """Return the statement that sets columns of rows that are there."""
        new = ", ".join(f"t.{each} = r.{each}" for each in map(self.quoted, columns))
        return f"UPDATE {self.loaded} AS r STRAIGHT_JOIN {name} AS t ON {self.same_keys('r', keys)} SET {new}"

    def same_keys(self, other: str, keys: Sequence[str]) -> str:
        """Return the condition that two rows have the same keys."""
        return " AND ".join(f"t.{key} <=> {other}.{key}" for key in map(self.quoted, keys))


class MysqlDialect(MariadbDialect):
    """MySQL 8.0.17 or later."""

    name: ClassVar[str] = "MySQL"
    database: ClassVar[SqlDatabase] = "mysql"
    collation: ClassVar[str] = "utf8mb4_0900_bin"
    least: ClassVar[tuple[int, int, int]] = (8, 0, 17)


MARIADB: Final = MariadbDialect()
MYSQL: Final = MysqlDialect()

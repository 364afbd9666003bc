"""A database that tests write to: one of a MariaDB server, or a file of SQLite."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Final, Literal, Protocol

import pytest

from tests.seeds import only_long
from tests.sql_tables.server import NEEDS_MARIADB, MariadbServer

Database = Literal["mariadb", "sqlite"]

ON_MARIADB: Final = (pytest.param("mariadb", marks=NEEDS_MARIADB), pytest.param("sqlite", marks=only_long))
"""For ``parametrize``, of a test of jobs that asks little of the database: MariaDB; SQLite, too, in the long profile."""

ON_SQLITE: Final = (pytest.param("mariadb", marks=[NEEDS_MARIADB, only_long]), "sqlite")
"""The same, the other way round."""


class Place(Protocol):
    """A database of its own for each test."""

    @property
    def database(self) -> Database: ...

    def dsn(self) -> str: ...

    def query(self, statement: str, *values: object) -> list[tuple[Any, ...]]:
        """Run a statement, with ``%s`` for values, in a transaction of its own; names as ``quoted`` returns them."""
        ...

    def quoted(self, name: str) -> str: ...


@dataclass(frozen=True)
class MariadbPlace:
    server: MariadbServer
    name: str
    database: ClassVar[Database] = "mariadb"

    def dsn(self) -> str:
        return self.server.dsn(self.name)

    def query(self, statement: str, *values: object) -> list[tuple[Any, ...]]:
        return self.server.query(self.name, statement, *values)

    def quoted(self, name: str) -> str:
        return f"`{name}`"


@dataclass(frozen=True)
class SqlitePlace:
    file: Path
    database: ClassVar[Database] = "sqlite"

    def dsn(self) -> str:
        return f"sqlite:///{self.file}"

    def query(self, statement: str, *values: object) -> list[tuple[Any, ...]]:
        with closing(sqlite3.connect(self.file)) as connection, connection:
            return connection.execute(statement.replace("%s", "?"), values).fetchall()

    def quoted(self, name: str) -> str:
        return f'"{name}"'


def columns(place: Place, table: str = "orders") -> dict[str, str]:
    """Return the types of a table's columns, by name."""
    if place.database == "sqlite":
        return dict(place.query("SELECT name, type FROM pragma_table_info(%s)", table))
    query = "SELECT column_name, column_type FROM information_schema.columns WHERE table_schema = DATABASE() AND table_name = %s"
    return dict(place.query(query, table))


def has_table(place: Place, table: str) -> bool:
    return bool(columns(place, table))

"""The dialects of MariaDB, MySQL and SQLite, by the table."""

from __future__ import annotations

from tidemark.graph.connectors.sql_table.node import SqlTable
from tidemark.savepoints.database.dialect import Dialect
from tidemark.savepoints.sql_table.mariadb import MARIADB, MYSQL
from tidemark.savepoints.sql_table.sqlite import SQLITE


def dialect_of(table: SqlTable) -> Dialect:
    """Return the dialect of a table's database."""
    return SQLITE if table.database == "sqlite" else MYSQL if table.database == "mysql" else MARIADB


def sql_table_of(location: str) -> tuple[SqlTable, Dialect]:
    """Return the table of a recorded location, and its dialect."""
    table = SqlTable.of_location(location)
    return table, dialect_of(table)

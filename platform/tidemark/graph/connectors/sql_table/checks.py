"""Checks of what is declared of a sink to MariaDB, MySQL or SQLite: the database, names, and the types of columns."""

from __future__ import annotations

from typing import Final

from tidemark.errors import DefinitionError
from tidemark.graph.connectors.database.declare import checked_parts
from tidemark.graph.connectors.sql_table.node import MAX_NAME, SqlDatabase, SqlTable
from tidemark.graph.connectors.sql_table.types import instead_of, sql_type
from tidemark.graph.expressions.expression_text import shortened

SHOWN: Final[dict[SqlDatabase, str]] = {"mariadb": "MariaDB", "mysql": "MySQL", "sqlite": "SQLite"}
"""The names of databases in texts."""

_POSTGRES: Final = frozenset({"postgres", "postgresql"})
_ROWID_NAMES: Final = frozenset({"rowid", "_rowid_", "oid"})


def checked_database(database: object, place: str) -> SqlDatabase:
    """Return the database of a declaration.

    Raises:
        DefinitionError: there is no sink to it.
    """
    if database in ("mariadb", "mysql", "sqlite"):
        return "mariadb" if database == "mariadb" else "mysql" if database == "mysql" else "sqlite"
    if isinstance(database, str) and database.lower() in _POSTGRES:
        raise DefinitionError(
            "sql_table(database='postgres'): Postgres has a sink of its own",
            fix="write tm.postgres(stream, table=..., dsn_env=...)",
            place=place,
        )
    raise DefinitionError(
        f"sql_table(database={shortened(repr(database))}): there is no sink to it. An epoch's rows and the row that says that it was "
        "published must be one transaction, which is written and tested for each database by itself",
        fix="write database='mariadb', 'mysql' or 'sqlite', or use tm.postgres",
        place=place,
    )


def checked_table(table: object, dsn_env: object, database: SqlDatabase, place: str) -> SqlTable:
    """Return the table of a declaration.

    Raises:
        DefinitionError: no such names. What is given for the variable may be a secret, and the message does not repeat it.
    """
    (name,) = checked_parts(table, dsn_env, place, caller="sql_table", longest=MAX_NAME, parts=1)
    if database == "sqlite" and name.lower().startswith("sqlite_"):
        raise DefinitionError(f"sql_table(table={name!r}): SQLite keeps such names for itself", fix="name another table", place=place)
    return SqlTable(str(dsn_env), "", name, database)


def column_fault(database: SqlDatabase, name: str, kind: str | None) -> tuple[str, str] | None:
    """Return why a column cannot be written to a table, and what to write instead; None if it can, as far as is known.

    Args:
        database: of the table.
        name: the column's.
        kind: its type as DDL, None if it is not known.
    """
    other = "give it another name in a select after the last operator"
    if not name or len(name) > MAX_NAME or "\0" in name or name != name.rstrip() or any(ord(sign) > 0xFFFF for sign in name):
        what = f"has more than {MAX_NAME} characters, a space at its end, or characters that names of columns cannot have"
        return f"the name of column {shortened(repr(name))} {what}", other
    if database == "sqlite" and name.lower() in _ROWID_NAMES:
        return f"tables of SQLite have a column {name!r} of their own", other
    if kind is not None and sql_type(database, kind, name) is None:
        return f"{SHOWN[database]} has no type for the values of column {name!r}, {kind}", instead_of(kind, name)
    return None

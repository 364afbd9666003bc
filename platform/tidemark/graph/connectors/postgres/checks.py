"""Checks of what is declared of a Postgres sink: names, and the types of its columns."""

from __future__ import annotations

from typing import Final

from tidemark.graph.connectors.database.declare import checked_parts
from tidemark.graph.connectors.postgres.node import MAX_NAME_BYTES, PostgresTable
from tidemark.graph.connectors.postgres.types import instead_of, postgres_type
from tidemark.graph.expressions.expression_text import shortened

DEFAULT_SCHEMA: Final = "public"

_SYSTEM_COLUMNS: Final = frozenset({"tableoid", "xmin", "cmin", "xmax", "cmax", "ctid"})


def checked_table(table: object, dsn_env: object, place: str) -> PostgresTable:
    """Return the table of a declaration; a name without a schema is one of ``public``.

    Raises:
        DefinitionError: no such names. What is given for the variable may be a secret, and the message does not repeat it.
    """
    parts = checked_parts(table, dsn_env, place, caller="postgres", longest=MAX_NAME_BYTES, parts=2)
    return PostgresTable(str(dsn_env), parts[0] if len(parts) == 2 else DEFAULT_SCHEMA, parts[-1])


def column_fault(name: str, kind: str | None) -> tuple[str, str] | None:
    """Return why a column cannot be written to a table of Postgres, and what to write instead; None if it can, as far as is known.

    Args:
        name: the column's.
        kind: its type as DDL, None if it is not known.
    """
    if len(name.encode()) > MAX_NAME_BYTES or "\0" in name or not name:
        return (
            f"the name of column {shortened(repr(name))} is longer than the {MAX_NAME_BYTES} bytes that Postgres keeps",
            "give it a shorter name in a select after the last operator",
        )
    if name.lower() in _SYSTEM_COLUMNS:
        return f"every table of Postgres has a column {name!r} of its own", "give it another name in a select after the last operator"
    if kind is not None and postgres_type(kind, name) is None:
        return f"Postgres has no type for the values of column {name!r}, {kind}", instead_of(kind, name)
    return None

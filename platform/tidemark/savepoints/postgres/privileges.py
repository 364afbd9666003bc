"""What the user of a sink may not do that publishing an epoch needs; reads the catalog, and writes nothing."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tidemark.graph.connectors.postgres.checks import BOOKKEEPING
from tidemark.graph.connectors.postgres.node import PostgresTable
from tidemark.savepoints.postgres.ledger import Ledger
from tidemark.savepoints.postgres.tables import StoredTable, identifier

if TYPE_CHECKING:
    from psycopg import sql

    from tidemark.savepoints.postgres.database import PostgresConnection

_OF_TABLE: Final = """
SELECT p.name FROM unnest(%s::text[]) AS p(name) WHERE NOT has_table_privilege(to_regclass(%s), p.name) AND CASE
    WHEN p.name = 'DELETE' OR cardinality(%s::text[]) = 0 THEN true
    ELSE EXISTS (SELECT 1 FROM unnest(%s::text[]) AS c(name) WHERE NOT has_column_privilege(to_regclass(%s), c.name, p.name)) END
"""
_OWNS: Final = "SELECT pg_has_role(relowner, 'USAGE') FROM pg_class WHERE oid = to_regclass(%s)"
_LEDGER: Final = ("SELECT", "INSERT", "UPDATE", "DELETE")


@dataclass(frozen=True)
class Missing:
    """What the user lacks, such as ``INSERT on the table shop.orders``, and the statement that gives it."""

    what: str
    grant: str


def missing_privileges(
    connection: PostgresConnection, ledger: Ledger, stored: StoredTable | None, wanted: Mapping[str, str], keys: Sequence[str]
) -> list[Missing]:
    """Return what the user lacks to publish rows.

    Args:
        connection: in a transaction.
        ledger: of the output.
        stored: its table, None where it is created with the first rows.
        wanted: types of the rows' columns.
        keys: of an upsert, empty for an append.
    """
    table = ledger.table
    found = []
    if not _holds(connection, "SELECT has_database_privilege(current_database(), 'TEMPORARY')"):
        found.append(Missing("TEMPORARY on the database", "GRANT TEMPORARY ON DATABASE ... TO ..."))
    has_ledger = ledger.exists(connection)
    if (stored is None or not has_ledger) and not _holds(connection, "SELECT has_schema_privilege(%s, 'CREATE')", table.schema):
        made = " and ".join(name for name, exists in ((table.label, stored), (f"{table.schema}.{BOOKKEEPING}", has_ledger)) if not exists)
        found.append(Missing(f"CREATE on the schema {table.schema}, to create {made}", f"GRANT CREATE ON SCHEMA {table.schema} TO ..."))
    if has_ledger:
        epochs = PostgresTable(table.dsn_env, table.schema, BOOKKEEPING)
        found += _of_table(connection, epochs, _LEDGER, ())
    if stored is not None:
        found += _of_stored(connection, table, stored, wanted, keys)
    return found


def may_delete(connection: PostgresConnection, table: PostgresTable) -> list[Missing]:
    """Return what the user lacks to delete rows of a table."""
    return _of_table(connection, table, ("DELETE",), ())


def may_have_rows(connection: PostgresConnection, table: PostgresTable) -> bool:
    """Return whether a table has rows; without the right to read it, whether it takes any room."""
    from psycopg import sql

    name = identifier(table).as_string(connection)
    if _holds(connection, "SELECT has_table_privilege(to_regclass(%s), 'SELECT')", name):
        query: sql.Composed = sql.SQL("SELECT EXISTS (SELECT 1 FROM {})").format(identifier(table))
        found = connection.execute(query).fetchone()
        return found is not None and bool(found[0])
    room = (
        "SELECT coalesce(pg_relation_size(to_regclass(%s)), 0) > 0 OR EXISTS "
        "(SELECT 1 FROM pg_partition_tree(to_regclass(%s)) AS t WHERE pg_relation_size(t.relid) > 0)"
    )
    return _holds(connection, room, name, name)


def _of_stored(
    connection: PostgresConnection, table: PostgresTable, stored: StoredTable, wanted: Mapping[str, str], keys: Sequence[str]
) -> list[Missing]:
    columns = [name for name in wanted if name in stored.columns]
    found = _of_table(connection, table, ("INSERT",), columns)
    if keys:
        # A column that is set to its EXCLUDED value counts as one that is read.
        found += _of_table(connection, table, ("SELECT",), columns)
        changed = [name for name in columns if name not in keys]
        if changed:
            found += _of_table(connection, table, ("UPDATE",), changed)
    added = [name for name in wanted if name not in stored.columns]
    if added and not _holds(connection, _OWNS, identifier(table).as_string(connection)):
        what = f"the ownership of {table.label}, to add column {added[0]!r}"
        found.append(Missing(what, f'ALTER TABLE {table.label} ADD COLUMN "{added[0]}" {wanted[added[0]]}, as its owner'))
    return found


def _of_table(connection: PostgresConnection, table: PostgresTable, names: Collection[str], columns: Sequence[str]) -> list[Missing]:
    """Return the privileges on a table that the user lacks; without ``columns`` on all of it."""
    name, given = identifier(table).as_string(connection), list(columns)
    rows = connection.execute(_OF_TABLE, [list(names), name, given, given, name]).fetchall()
    return [Missing(f"{each} on the table {table.label}", f"GRANT {each} ON {table.label} TO ...") for (each,) in rows]


def _holds(connection: PostgresConnection, query: str, *values: str) -> bool:
    found = connection.execute(query.encode(), values or None).fetchone()
    return found is not None and bool(found[0])

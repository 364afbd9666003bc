"""What the user of a sink may not do that publishing an epoch needs; reads the catalog, and writes nothing."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

from tidemark.graph.connectors.database.node import BOOKKEEPING, DatabaseTable
from tidemark.savepoints.database.dialect import Dialect
from tidemark.savepoints.database.session import Session
from tidemark.savepoints.database.stored import Missing, StoredTable, Wanted

_OF_TABLE: Final = """
SELECT p.name FROM unnest(%s::text[]) AS p(name) WHERE NOT has_table_privilege(to_regclass(%s), p.name) AND CASE
    WHEN p.name = 'DELETE' OR cardinality(%s::text[]) = 0 THEN true
    ELSE EXISTS (SELECT 1 FROM unnest(%s::text[]) AS c(name) WHERE NOT has_column_privilege(to_regclass(%s), c.name, p.name)) END
"""
_OWNS: Final = "SELECT pg_has_role(relowner, 'USAGE') FROM pg_class WHERE oid = to_regclass(%s)"
_LEDGER: Final = ("SELECT", "INSERT", "UPDATE", "DELETE")


def missing_privileges(
    session: Session, dialect: Dialect, table: DatabaseTable, stored: StoredTable | None, wanted: Wanted, *, epochs: bool
) -> list[Missing]:
    """Return what the user lacks to publish rows.

    Args:
        session: in a transaction.
        dialect: that of Postgres.
        table: the output's.
        stored: as it is, None where it is created with the first rows.
        wanted: the rows.
        epochs: whether there is a table of epochs.
    """
    found = []
    if not _holds(session, "SELECT has_database_privilege(current_database(), 'TEMPORARY')"):
        found.append(Missing("TEMPORARY on the database", "GRANT TEMPORARY ON DATABASE ... TO ..."))
    if (stored is None or not epochs) and not _holds(session, "SELECT has_schema_privilege(%s, 'CREATE')", table.schema):
        made = " and ".join(name for name, exists in ((table.label, stored), (f"{table.schema}.{BOOKKEEPING}", epochs)) if not exists)
        found.append(Missing(f"CREATE on the schema {table.schema}, to create {made}", f"GRANT CREATE ON SCHEMA {table.schema} TO ..."))
    if epochs:
        name = dialect.full_name(table, BOOKKEEPING)
        found += _of_table(session, name, f"{table.schema}.{BOOKKEEPING}", _LEDGER, ())
    if stored is not None:
        found += _of_stored(session, dialect, table, stored, wanted)
    return found


def may_delete(session: Session, dialect: Dialect, table: DatabaseTable) -> list[Missing]:
    """Return what the user lacks to delete rows of a table."""
    return _of_table(session, dialect.full_name(table), table.label, ("DELETE",), ())


def _of_stored(session: Session, dialect: Dialect, table: DatabaseTable, stored: StoredTable, wanted: Wanted) -> list[Missing]:
    name = dialect.full_name(table)
    columns = [each for each in wanted.types if each in stored.columns]
    found = _of_table(session, name, table.label, ("INSERT",), columns)
    if wanted.keys:
        # A column that is set to its EXCLUDED value counts as one that is read.
        found += _of_table(session, name, table.label, ("SELECT",), columns)
        changed = [each for each in columns if each not in wanted.keys]
        if changed:
            found += _of_table(session, name, table.label, ("UPDATE",), changed)
    added = [each for each in wanted.types if each not in stored.columns]
    if added and not _holds(session, _OWNS, name):
        what = f"the ownership of {table.label}, to add column {added[0]!r}"
        found.append(
            Missing(what, f"ALTER TABLE {table.label} ADD COLUMN {dialect.quoted(added[0])} {wanted.types[added[0]]}, as its owner")
        )
    return found


def _of_table(session: Session, name: str, label: str, privileges: Collection[str], columns: Sequence[str]) -> list[Missing]:
    """Return the privileges on a table that the user lacks; without ``columns`` on all of it."""
    given = list(columns)
    rows = session.query(_OF_TABLE, [list(privileges), name, given, given, name])
    return [Missing(f"{each} on the table {label}", f"GRANT {each} ON {label} TO ...") for (each,) in rows]


def _holds(session: Session, query: str, *values: str) -> bool:
    found = session.query(query, values)
    return bool(found) and bool(found[0][0])

"""Postgres as a database of sinks: its catalog, types, locks, and how copied rows get into a table."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import ClassVar, Final

from tidemark.errors import SinkError
from tidemark.graph.connectors.database.node import DatabaseTable
from tidemark.graph.connectors.postgres.checks import column_fault
from tidemark.graph.connectors.postgres.node import PostgresTable
from tidemark.graph.connectors.postgres.types import holds, postgres_type
from tidemark.savepoints.database.dialect import DELETED, ROWS, Dialect
from tidemark.savepoints.database.session import Session
from tidemark.savepoints.database.stored import Missing, StoredColumn, StoredTable, UniqueKey, Wanted
from tidemark.savepoints.postgres import privileges
from tidemark.savepoints.postgres.database import LEAST_VERSION
from tidemark.savepoints.postgres.session import transaction

_COLUMNS = """
SELECT a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull, a.atthasdef OR a.attidentity <> '',
    a.attgenerated <> '' OR a.attidentity = 'a'
FROM pg_attribute a WHERE a.attrelid = to_regclass(%s) AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum
"""
_KEYS = """
SELECT i.indnullsnotdistinct, keys.names, keys.are_exact FROM pg_index i CROSS JOIN LATERAL (
    SELECT array_agg(a.attname::text) AS names,
        NOT EXISTS (SELECT FROM pg_collation c WHERE NOT c.collisdeterministic
            AND c.oid = ANY(array_agg(a.attcollation) || array_agg(k.used))) AS are_exact
    FROM unnest(i.indkey::int2[], i.indcollation::oid[]) WITH ORDINALITY AS k(number, used, nth)
    JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.number WHERE k.nth <= i.indnkeyatts) keys
WHERE i.indrelid = to_regclass(%s) AND i.indisunique AND i.indimmediate AND i.indisvalid
    AND i.indpred IS NULL AND i.indexprs IS NULL
"""
_TEMPORARY: Final = "pg_temp."


class PostgresDialect(Dialect):
    """Postgres 15 or later."""

    name: ClassVar[str] = "Postgres"
    epochs_columns: ClassVar[str] = (
        "job text NOT NULL, lineage text NOT NULL, output text NOT NULL, epoch bigint NOT NULL, "
        "table_name text NOT NULL, mode text NOT NULL, term bigint NOT NULL, rows bigint NOT NULL, kept bigint, "
        "published_at timestamptz NOT NULL DEFAULT now(), PRIMARY KEY (job, lineage, output, epoch)"
    )

    def transaction(self, table: DatabaseTable) -> AbstractContextManager[Session]:
        """Run a block in one transaction."""
        return transaction(table)

    def column_fault(self, name: str, kind: str | None) -> tuple[str, str] | None:
        """Return why a column cannot be written."""
        return column_fault(name, kind)

    def type_of(self, kind: str, column: str) -> str | None:
        """Return the type for one of Spark's."""
        return postgres_type(kind, column)

    def holds(self, stored: str, wanted: str) -> bool:
        """Return whether a column takes all values of a type."""
        return holds(stored, wanted)

    def require_server(self, session: Session, table: DatabaseTable, output: str) -> None:
        """Make sure that the server is new enough, and that the database holds every text."""
        ((number, encoding),) = session.query("SELECT current_setting('server_version_num')::int, current_setting('server_encoding')")
        if number // 10_000 < LEAST_VERSION:
            raise SinkError(
                f"the server of output {output!r} is Postgres {number // 10_000}, whose unique keys cannot take nulls as equal",
                fix=f"write to Postgres {LEAST_VERSION} or later",
                uid=output,
                place=table.location,
            )
        if encoding != "UTF8":
            raise SinkError(
                f"the database of output {output!r} has the encoding {encoding}, which does not hold every text",
                fix="write to a database that was created with ENCODING 'UTF8'",
                uid=output,
                place=table.location,
            )

    def read_table(self, session: Session, table: DatabaseTable) -> StoredTable | None:
        """Return a table as it is."""
        name = [self.full_name(table)]
        kind = session.query("SELECT relkind::text FROM pg_class WHERE oid = to_regclass(%s)", name)
        if not kind:
            return None
        columns = {row[0]: StoredColumn(*row[1:]) for row in session.query(_COLUMNS, name)}
        keys = tuple(UniqueKey(frozenset(row[1]), row[0], is_exact=row[2]) for row in session.query(_KEYS, name))
        return StoredTable(columns, keys, None if kind[0][0] in ("r", "p") else ("is no table", "name a table, not a view"))

    def has_table(self, session: Session, table: DatabaseTable, name: str) -> bool:
        """Return whether the schema has a table of a name."""
        return _first(session, "SELECT to_regclass(%s) IS NOT NULL", self.full_name(table, name))

    def make_epochs(self, session: Session, table: DatabaseTable, name: str) -> None:
        """Create the table of epochs; two transactions that did this at once would disturb each other."""
        self.lock(session, f"tidemark/{table.schema}")
        super().make_epochs(session, table, name)

    def lock(self, session: Session, key: str) -> None:
        """Take an advisory lock, which the end of the transaction gives back."""
        session.query("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", [key])

    def may_have_rows(self, session: Session, table: DatabaseTable) -> bool:
        """Return whether a table has rows; without the right to read it, whether it takes any room."""
        name = self.full_name(table)
        if _first(session, "SELECT has_table_privilege(to_regclass(%s), 'SELECT')", name):
            return self.has_rows(session, table)
        return _first(
            session,
            "SELECT coalesce(pg_relation_size(to_regclass(%s)), 0) > 0 OR EXISTS "
            "(SELECT 1 FROM pg_partition_tree(to_regclass(%s)) AS t WHERE pg_relation_size(t.relid) > 0)",
            name,
            name,
        )

    def unique(self, keys: Sequence[str]) -> str:
        """Return the constraint by which nulls of a key are equal."""
        return f"UNIQUE NULLS NOT DISTINCT ({self.listed(keys)})"

    def unique_index(self, table: DatabaseTable, keys: Sequence[str]) -> str:
        """Return the statement that makes such an index."""
        return f"CREATE UNIQUE INDEX ON {table.label} ({self.listed(keys)}) NULLS NOT DISTINCT"

    def without_not_null(self, table: DatabaseTable, name: str, column: StoredColumn) -> str:  # noqa: ARG002 - the protocol's
        """Return the statement by which a column takes nulls."""
        return f"ALTER TABLE {table.label} ALTER COLUMN {self.quoted(name)} DROP NOT NULL"

    def missing_privileges(
        self, session: Session, table: DatabaseTable, stored: StoredTable | None, wanted: Wanted, *, epochs: bool
    ) -> list[Missing]:
        """Return what the user lacks, by the catalog."""
        return privileges.missing_privileges(session, self, table, stored, wanted, epochs=epochs)

    def may_delete(self, session: Session, table: DatabaseTable) -> list[Missing]:
        """Return whether the user lacks DELETE."""
        return privileges.may_delete(session, self, table)

    def delete_rows(self, session: Session, table: DatabaseTable, keys: Sequence[str]) -> None:
        """Delete rows by their keys; one statement for each combination of nulls, since only an equality can use an index."""
        deleted = f"{_TEMPORARY}{self.quoted(DELETED)}"
        nulls = ", ".join(f"{self.quoted(key)} IS NULL" for key in keys)
        for pattern in session.query(f"SELECT DISTINCT {nulls} FROM {deleted}"):
            same = [
                (f"t.{key} IS NULL AND d.{key} IS NULL" if is_null else f"t.{key} = d.{key}")
                for key, is_null in zip(map(self.quoted, keys), pattern, strict=True)
            ]
            session.query(f"DELETE FROM {self.full_name(table)} t USING {deleted} d WHERE {' AND '.join(same)}")

    def write_rows(self, session: Session, table: DatabaseTable, columns: Sequence[str], keys: Sequence[str]) -> None:
        """Insert rows; one whose key is there updates that row."""
        listed = self.listed(columns)
        insert = f"INSERT INTO {self.full_name(table)} ({listed}) SELECT {listed} FROM {_TEMPORARY}{self.quoted(ROWS)}"
        if keys:
            new = ", ".join(f"{name} = EXCLUDED.{name}" for name in map(self.quoted, [each for each in columns if each not in keys]))
            insert += f" ON CONFLICT ({self.listed(keys)}) DO {f'UPDATE SET {new}' if new else 'NOTHING'}"
        session.query(insert)


POSTGRES: Final = PostgresDialect()


def postgres_table(location: str) -> tuple[PostgresTable, PostgresDialect]:
    """Return the table of a recorded location, and its dialect."""
    return PostgresTable.of_location(location), POSTGRES


def _first(session: Session, query: str, *values: str) -> bool:
    ((found, *_),) = session.query(query, values)
    return bool(found)

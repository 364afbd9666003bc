"""Partitions of captured tables: one that is attached may have rows, which are in no change, and so they are read like those of a table."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from tidemark.graph.model.postgres_changes_spec import CapturedTable
from tidemark.spark.sources.postgres_changes.positions import ChangesPosition, TableProgress
from tidemark.spark.sources.postgres_changes.server import ChangesServer

if TYPE_CHECKING:
    from psycopg import sql

    from tidemark.spark.sources.postgres_changes.catalog import StoredTable

logger = logging.getLogger("tidemark")

# One that is detached and attached again has another transaction, by which it was attached. One that is being detached concurrently, which
# Postgres says since 14, is none any more.
_ATTACHED: Final = b"""
WITH RECURSIVE tree AS (
    SELECT i.inhrelid AS oid, i.xmin::text AS attached FROM pg_inherits i
    WHERE i.inhparent = %s::bigint::oid AND to_jsonb(i) ->> 'inhdetachpending' IS DISTINCT FROM 'true'
    UNION ALL
    SELECT i.inhrelid, t.attached || '.' || i.xmin::text FROM pg_inherits i JOIN tree t ON i.inhparent = t.oid
    WHERE to_jsonb(i) ->> 'inhdetachpending' IS DISTINCT FROM 'true'
)
SELECT t.oid::text, t.attached FROM tree t JOIN pg_class c ON c.oid = t.oid WHERE c.relkind <> 'p'
"""
_PARTITION: Final = b"""
SELECT n.nspname::text, c.relname::text, has_table_privilege(c.oid, 'SELECT') AND has_schema_privilege(n.oid, 'USAGE')
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.oid = %s::bigint::oid
"""
# The row of a system column is as old as its table. A table that was rewritten has another file, and rows of another transaction. What
# attaches a table writes the rows of all its columns again: with one as old as the table, it was a partition from the beginning.
_CREATED: Final = b"""
SELECT i.xmin::text, i.cmin::text, EXISTS (
    SELECT FROM pg_attribute o
    WHERE o.attrelid = c.oid AND o.attnum > 0 AND NOT o.attisdropped AND o.xmin = a.xmin AND o.cmin = a.cmin AND o.xmax = 0
)
FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid JOIN pg_attribute a ON a.attrelid = c.oid AND a.attname = 'tableoid'
WHERE c.oid = %s::bigint::oid AND a.xmin = i.xmin AND a.xmax = 0 AND i.xmin::text = %s AND i.xmax = 0 AND c.relfilenode = c.oid
"""


class Partitions:
    """The partitions of the tables of one source.

    Args:
        server: of the source.
        snapshot: whether rows are read, and not only changes.
    """

    def __init__(self, server: ChangesServer, *, snapshot: bool) -> None:
        self._server = server
        self._snapshot = snapshot

    def noticed(self, position: ChangesPosition, tables: Mapping[str, StoredTable]) -> ChangesPosition:
        """Return a position after which the rows of partitions are read that were attached since.

        Args:
            position: of the source.
            tables: by their labels, as they are on the server.
        """
        for label, table in tables.items():
            if table.partitioned:
                position = position.with_progress(label, self._noticed(label, position.tables[label], self._attached(table.oid)))
        return position

    def _attached(self, oid: int) -> dict[str, str]:
        rows = self._server.attempt(lambda connection: connection.execute(_ATTACHED, [oid]).fetchall())
        return {str(partition): str(attached) for partition, attached in rows}

    def _noticed(self, label: str, progress: TableProgress, now: Mapping[str, str]) -> TableProgress:
        if progress.partition and now.get(progress.partition) != progress.attached:
            progress = progress.after_part(None)  # what it had is no longer there to be read
        before = progress.partitions
        if before is None:
            return replace(progress, partitions=now)
        known = {oid: attached for oid, attached in before.items() if now.get(oid) == attached}
        if len(known) < len(before):
            logger.warning("partitions of %s were detached or dropped, which no change says: the rows that were read of them stay", label)
        new = {oid: attached for oid, attached in now.items() if oid not in known}
        if not self._snapshot:
            return replace(progress, partitions=now)
        if not progress.done or not new:
            return replace(progress, partitions=known)
        logger.info("partitions were attached to %s: the rows that they have are read", label)
        first = min(new, key=int)
        return replace(progress, partitions=known, partition=first, attached=new[first], after=None, done=False)

    def rows_of(self, table: CapturedTable, progress: TableProgress) -> sql.Composable:
        """Return the rows to read of a partition, as a query names them; they are read from the table if the user may read only that.

        All rows of a partition are read that was a table before. Of one that was created as a partition every row is among the changes.
        Where one transaction created a table and attached it, the rows that it wrote in between are not, and those of its subtransactions
        look like rows of later ones: all are read but its own that came after the attachment.
        """
        from psycopg import sql

        partition = progress.partition
        found = self._server.attempt(lambda connection: connection.execute(_PARTITION, [partition]).fetchone())
        created = self._server.attempt(lambda connection: connection.execute(_CREATED, [partition, progress.attached]).fetchone())
        rows = sql.Composed([sql.Identifier(table.schema, table.name)])
        wanted: list[sql.Composable] = [sql.SQL("tableoid = {}").format(_oid(partition))]
        if found is not None and found[2]:
            rows, wanted = sql.SQL("ONLY {}").format(sql.Identifier(found[0], found[1])), []
        if created is not None:
            transaction, command, from_the_beginning = created
            # Where a row was locked or deleted, its command is not known.
            own = "NOT (xmin = {}::xid AND xmax = 0 AND cmin::text::bigint > {}::bigint)"
            unpublished = sql.SQL(own).format(sql.Literal(transaction), sql.Literal(command))
            wanted.append(sql.SQL("false") if from_the_beginning else unpublished)
        if not wanted:
            return rows
        return sql.SQL("(SELECT * FROM {} WHERE {}) AS part").format(rows, sql.SQL(" AND ").join(wanted))


def _oid(partition: str) -> sql.Composed:
    from psycopg import sql

    return sql.SQL("{}::bigint::oid").format(sql.Literal(int(partition)))

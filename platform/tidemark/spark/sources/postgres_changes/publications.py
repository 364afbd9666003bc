"""The publication of the captured tables: made, completed, and compared with what the job has read so far."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from tidemark.graph.model.postgres_changes_spec import CapturedTable
from tidemark.spark.sources.postgres_changes.positions import TableProgress
from tidemark.spark.sources.postgres_changes.server import ChangesServer
from tidemark.spark.sources.postgres_changes.server_errors import RESTART

if TYPE_CHECKING:
    from psycopg import sql

    from tidemark.savepoints.postgres.database import PostgresConnection

_PUBLISHED: Final = b"""
SELECT schemaname::text || '.' || tablename::text, to_jsonb(p) -> 'attnames', to_jsonb(p) ->> 'rowfilter'
FROM pg_publication_tables p WHERE pubname = %s
"""
_ENTRIES: Final = b"""
SELECT c.oid::bigint, n.nspname::text || '.' || c.relname::text, coalesce(r.oid, s.oid, p.oid)::bigint, to_jsonb(t) ->> 'rowfilter',
    c.relpersistence::text
FROM pg_publication p JOIN pg_publication_tables t ON t.pubname = p.pubname
JOIN pg_namespace n ON n.nspname = t.schemaname JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = t.tablename
LEFT JOIN pg_publication_rel r ON r.prpubid = p.oid AND r.prrelid = c.oid
LEFT JOIN pg_publication_namespace s ON s.pnpubid = p.oid AND s.pnnspid = n.oid
WHERE p.pubname = %s AND c.oid = ANY (%s::bigint[]::oid[])
"""
_OPERATIONS: Final = b"SELECT pubinsert AND pubupdate AND pubdelete, pubtruncate FROM pg_publication WHERE pubname = %s"


class Publications:
    """The publication of one source.

    Args:
        server: of the source.
    """

    def __init__(self, server: ChangesServer) -> None:
        self._server = server

    def ready(self, own: str) -> str:
        """Return the publication of the source; the one of its own is made, or given the tables that it lacks.

        Args:
            own: name of the one that the source makes, if it is to use no other.

        Raises:
            SourceError: it does not publish what is captured.
        """
        given = self._server.spec.publication
        name = given or own
        published = self._published(name)
        if given is None:
            missing = [table for table in self._server.spec.tables if published is None or table.label not in published]
            if missing:
                self._publish(name, missing, new=published is None)
                published = self._published(name)
        self._check(name, published)
        return name

    def require(self, name: str, known: Mapping[str, TableProgress]) -> dict[str, int]:
        """Make sure that a publication has all changes of tables since they were read first.

        Args:
            name: the publication's.
            known: the tables, by their labels.

        Returns:
            The tables' entries in the publication, which an entry that is made again differs from.

        Raises:
            SourceError: a table was taken out, dropped, renamed, or added again, or operations or rows are left out.
        """
        self._check_operations(name)
        oids = [table.oid for table in known.values()]
        rows = self._server.attempt(lambda connection: connection.execute(_ENTRIES, [name, oids]).fetchall())
        found = {int(oid): (str(label), int(entry), condition, persistence) for oid, label, entry, condition, persistence in rows}
        entries = {}
        for label, table in known.items():
            now, entry, condition, persistence = found.get(table.oid, ("", 0, None, ""))
            if not now:
                what = f"table {label} is no longer in publication {name!r}: it was dropped or taken out, and changes since are unknown"
            elif now != label:
                what = f"captured table {label} was renamed to {now}"
            elif condition is not None or persistence != "p":
                what = f"publication {name!r} no longer has all changes of {label}: it has a condition on rows, or the table is unlogged"
            elif table.published not in (0, entry):
                what = f"table {label} was taken out of publication {name!r} and added again, and its changes between are not known"
            else:
                entries[label] = entry
                continue
            raise self._server.error(what, f"rename it back, or: {RESTART}" if now and now != label else RESTART)
        return entries

    def _published(self, name: str) -> dict[str, tuple[Any, Any]] | None:
        exists = self._server.attempt(lambda connection: _row(connection, b"SELECT 1 FROM pg_publication WHERE pubname = %s", [name]))
        if exists is None:
            return None
        found = self._server.attempt(lambda connection: connection.execute(_PUBLISHED, [name]).fetchall())
        return {str(label): (columns, condition) for label, columns, condition in found}

    def _publish(self, name: str, tables: Sequence[CapturedTable], *, new: bool) -> None:
        from psycopg import errors, sql

        listed = sql.SQL(", ").join(sql.SQL("ONLY {}").format(_quoted(table)) for table in tables)
        create = "CREATE PUBLICATION {} FOR TABLE {} WITH (publish = 'insert, update, delete, truncate', publish_via_partition_root = true)"
        statement = sql.SQL(create if new else "ALTER PUBLICATION {} ADD TABLE {}").format(sql.Identifier(name), listed)

        def publish(connection: PostgresConnection) -> bool:
            try:
                connection.execute(statement)
            except errors.InsufficientPrivilege:
                return False
            except errors.DuplicateObject:  # the connection was lost when it had been made
                return True
            return True

        if not self._server.attempt(publish):
            labels = ", ".join(table.label for table in tables)
            raise self._server.error(
                f"the user of {self._server.spec.dsn_env} may not publish {labels}",
                f"as the tables' owner: CREATE PUBLICATION {name} FOR TABLE {labels} WITH (publish_via_partition_root = true); "
                f"and give publication={name!r}",
            )

    def _check(self, name: str, published: Mapping[str, tuple[Any, Any]] | None) -> None:
        server = self._server
        if published is None:
            raise server.error(
                f"there is no publication {name!r}", f"CREATE PUBLICATION {name} FOR TABLE ..., or leave publication= out; {RESTART}"
            )
        self._check_operations(name)
        for table in server.spec.tables:
            if table.label not in published:
                raise server.error(
                    f"publication {name!r} does not have table {table.label}",
                    f"ALTER PUBLICATION {name} ADD TABLE {table.label}; of a partitioned one also SET (publish_via_partition_root = true)",
                )
            columns, condition = published[table.label]
            if condition is not None:
                raise server.error(
                    f"publication {name!r} has only some rows of {table.label}", f"ALTER PUBLICATION {name} SET TABLE {table.label}"
                )
            left_out = [each for each in table.columns.names if columns is not None and each not in columns]
            if left_out:
                raise server.error(
                    f"publication {name!r} does not have column {left_out[0]!r} of {table.label}",
                    f"publish it, or leave it out of the schema: ALTER PUBLICATION {name} SET TABLE {table.label}",
                )

    def _check_operations(self, name: str) -> None:
        found = self._server.attempt(lambda connection: _row(connection, _OPERATIONS, [name]))
        left_out = "" if found is None or found[0] else "inserts, updates or deletes"
        if found is not None and not left_out and not found[1] and self._server.spec.on_truncate == "fail":
            left_out = "TRUNCATE, at which the job is to end"
        if left_out:
            raise self._server.error(
                f"publication {name!r} leaves out {left_out}",
                f"ALTER PUBLICATION {name} SET (publish = 'insert, update, delete, truncate')"
                + ("" if found is not None and not found[0] else ", or on_truncate='skip'"),
            )


def _quoted(table: CapturedTable) -> sql.Identifier:
    from psycopg import sql

    return sql.Identifier(table.schema, table.name)


def _row(connection: PostgresConnection, query: bytes, values: Sequence[object]) -> tuple[Any, ...] | None:
    return connection.execute(query, values).fetchone()

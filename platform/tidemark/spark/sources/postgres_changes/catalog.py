"""What the server's catalog says of the captured tables, the publication and the slot; makes what the job may make."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from tidemark.errors import SourceError
from tidemark.graph.connectors.postgres.node import MAX_NAME_BYTES
from tidemark.graph.connectors.postgres_changes.column_types import reads, types_for
from tidemark.graph.model.postgres_changes_spec import CapturedTable
from tidemark.savepoints.postgres.database import LEAST_VERSION
from tidemark.spark.sources.postgres_changes.messages import Relation
from tidemark.spark.sources.postgres_changes.positions import lsn_text, parse_lsn
from tidemark.spark.sources.postgres_changes.server import ChangesServer
from tidemark.spark.sources.postgres_changes.server_errors import RESTART

if TYPE_CHECKING:
    from psycopg import sql

    from tidemark.savepoints.postgres.database import PostgresConnection

_TABLE: Final = b"""
SELECT c.oid::bigint, c.relkind::text, c.relreplident::text, c.relpersistence::text, ARRAY(
    SELECT a.attname::text FROM pg_index i, unnest(i.indkey::int2[]) WITH ORDINALITY AS k(number, nth), pg_attribute a
    WHERE i.indrelid = c.oid AND i.indisprimary AND a.attrelid = c.oid AND a.attnum = k.number AND k.nth <= i.indnkeyatts ORDER BY k.nth)
FROM pg_class c WHERE c.oid = to_regclass(%s)
"""
_COLUMNS: Final = b"""
SELECT a.attname::text, a.attgenerated <> '',
    CASE WHEN t.typtype = 'd' THEN format_type(t.typbasetype, t.typtypmod) ELSE format_type(a.atttypid, a.atttypmod) END
FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid WHERE a.attrelid = %s AND a.attnum > 0 AND NOT a.attisdropped
"""
_PUBLISHED: Final = b"""
SELECT schemaname::text || '.' || tablename::text, to_jsonb(p) -> 'attnames', to_jsonb(p) ->> 'rowfilter'
FROM pg_publication_tables p WHERE pubname = %s
"""
_PUBLISHED_OIDS: Final = b"""
SELECT c.oid::bigint FROM pg_publication_tables p JOIN pg_namespace n ON n.nspname = p.schemaname
JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = p.tablename WHERE p.pubname = %s
"""
_SLOT: Final = b"""
SELECT plugin::text, coalesce(database = current_database(), false), coalesce(wal_status, ''), confirmed_flush_lsn::text, temporary
FROM pg_replication_slots WHERE slot_name = %s
"""
_TYPES: Final = b"""
SELECT w.type, w.modifier, CASE WHEN t.typtype = 'd' THEN format_type(t.typbasetype, t.typtypmod) ELSE format_type(t.oid, w.modifier) END
FROM unnest(%s::bigint[], %s::int[]) AS w(type, modifier) JOIN pg_type t ON t.oid = w.type::oid
"""
_CREATE_SECONDS: Final = 300
_NOT_IN_NAMES: Final = re.compile(r"[^a-z0-9_]")


def own_name(job: str, source: str, lineage: str) -> str:
    """Return the name of the slot and the publication that a source makes.

    >>> own_name("shop", "orders", "l1")
    'tidemark_shop_orders_4fdb4d67'
    """
    digest = hashlib.sha256(f"{job}/{source}/{lineage}".encode()).hexdigest()[:8]
    readable = _NOT_IN_NAMES.sub("_", f"tidemark_{job}_{source}".lower())
    return f"{readable[: MAX_NAME_BYTES - len(digest) - 1]}_{digest}"


@dataclass(frozen=True)
class StoredTable:
    """A captured table as it is on the server: its OID, and the types of its columns."""

    oid: int
    types: Mapping[str, str]

    def key_types(self, table: CapturedTable) -> tuple[str, ...]:
        """Return the types of the columns of the key."""
        return tuple(self.types[key] for key in table.keys)


@dataclass(frozen=True)
class Slot:
    """A replication slot: what is before ``confirmed`` the server no longer gives."""

    confirmed: int


class Catalog:
    """Reads the catalog for one source.

    Args:
        server: of the source.
    """

    def __init__(self, server: ChangesServer) -> None:
        self._server = server

    def check_server(self) -> None:
        """Make sure that changes can be captured from the server.

        Raises:
            SourceError: it is a standby, too old, or its log has not what changes need.
        """
        query = b"SELECT current_setting('wal_level'), pg_is_in_recovery(), current_setting('server_version_num')::int / 10000"
        level, standby, version = self._server.attempt(lambda connection: _row(connection, query)) or ("", False, 0)
        if standby:
            raise self._server.error("the server is a standby, which has no slots of its own", "connect to the primary")
        if version < LEAST_VERSION:
            raise self._server.error(f"the server is Postgres {version}", f"read from Postgres {LEAST_VERSION} or later")
        if level != "logical":
            raise self._server.error(
                f"the server's log has no changes of rows: wal_level is {level}",
                "ALTER SYSTEM SET wal_level = 'logical', and restart the server",
            )

    def tables(self) -> dict[str, StoredTable]:
        """Return the captured tables by their labels.

        Raises:
            SourceError: one does not exist, has another key, or a column that cannot be read as its type.
        """
        return {table.label: self._table(table) for table in self._server.spec.tables}

    def _table(self, table: CapturedTable) -> StoredTable:
        found = self._server.attempt(lambda connection: _row(connection, _TABLE, [_quoted(table).as_string(connection)]))
        if found is None:
            raise self._server.error(f"there is no table {table.label}", "correct the name, or create it before the job starts")
        oid, kind, identity, persistence, key = found
        label = table.label
        if kind not in ("r", "p") or persistence != "p":
            raise self._server.error(f"{label} is no table whose changes are logged", "name a table that is neither temporary nor unlogged")
        if not key:
            raise self._server.error(
                f"table {label} has no primary key, so its rows cannot be told apart", f"ALTER TABLE {label} ADD PRIMARY KEY (...)"
            )
        if set(key) != set(table.keys):
            raise self._server.error(
                f"the primary key of {label} is {', '.join(key)}, and not {', '.join(table.keys)}", f"write key={list(key)!r}"
            )
        if identity not in ("d", "f"):
            raise self._server.error(
                f"the changes of {label} have no primary key: its replica identity is {'nothing' if identity == 'n' else 'another index'}",
                f"ALTER TABLE {label} REPLICA IDENTITY DEFAULT",
            )
        columns = self._server.attempt(lambda connection: connection.execute(_COLUMNS, [oid]).fetchall())
        types = {str(name): str(kind) for name, _, kind in columns}
        computed = {str(name) for name, generated, _ in columns if generated}
        self.check_columns(table, types, computed)
        return StoredTable(int(oid), types)

    def check_columns(self, table: CapturedTable, types: Mapping[str, str], computed: set[str] | frozenset[str] = frozenset()) -> None:
        """Make sure that the declared columns can be read.

        Args:
            table: the table.
            types: of its columns now, as the catalog names them.
            computed: the columns that are generated.

        Raises:
            SourceError: naming the first that cannot.
        """
        for column in table.columns.columns:
            name, kind = column.name, column.type or "STRING"
            if name not in types:
                raise self._server.error(
                    f"table {table.label} has no column {name!r}; it has {', '.join(types)}",
                    "leave it out of the schema, or spell it as the table does; after a rename the old name no longer exists",
                )
            if name in computed:
                raise self._server.error(
                    f"column {name!r} of {table.label} is computed, and changes do not have it", "leave it out, and compute it by SQL"
                )
            if not reads(kind, types[name]):
                raise self._server.error(
                    f"column {name!r} of {table.label} is {types[name]}, whose values {kind} does not hold",
                    f"read it as {types_for(types[name])}; a job that has rows of the old type needs a savepoint check (tidemark check)",
                )

    def check_relation(self, table: CapturedTable, relation: Relation) -> list[str]:
        """Make sure that a table, as it is described with its changes, can be read; returns its columns that are not.

        Raises:
            SourceError: a column was dropped, renamed, or changed its type.
        """
        wanted = [(column.type, column.modifier) for column in relation.columns]
        given = [[kind for kind, _ in wanted], [modifier for _, modifier in wanted]]
        found = self._server.attempt(lambda connection: connection.execute(_TYPES, given).fetchall())
        names = {(int(kind), int(modifier)): str(name) for kind, modifier, name in found}
        self.check_columns(table, {column.name: names.get((column.type, column.modifier), "text") for column in relation.columns})
        return [column.name for column in relation.columns if column.name not in table.columns.names]

    def publication(self, own: str) -> str:
        """Return the publication of the source; the one of its own is made, or given the tables that it lacks.

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
        self._check_publication(name, published)
        return name

    def _published(self, name: str) -> dict[str, tuple[Any, Any]] | None:
        exists = self._server.attempt(lambda connection: _row(connection, b"SELECT 1 FROM pg_publication WHERE pubname = %s", [name]))
        if exists is None:
            return None
        found = self._server.attempt(lambda connection: connection.execute(_PUBLISHED, [name]).fetchall())
        return {str(label): (columns, condition) for label, columns, condition in found}

    def _publish(self, name: str, tables: Sequence[CapturedTable], *, new: bool) -> None:
        from psycopg import errors, sql

        listed = sql.SQL(", ").join(map(_quoted, tables))
        create = "CREATE PUBLICATION {} FOR TABLE {} WITH (publish = 'insert, update, delete, truncate', publish_via_partition_root = true)"
        statement = sql.SQL(create if new else "ALTER PUBLICATION {} ADD TABLE {}").format(sql.Identifier(name), listed)

        def publish(connection: PostgresConnection) -> bool:
            try:
                connection.execute(statement)
            except errors.InsufficientPrivilege:
                return False
            return True

        if not self._server.attempt(publish):
            labels = ", ".join(table.label for table in tables)
            raise self._server.error(
                f"the user of {self._server.spec.dsn_env} may not publish {labels}",
                f"as the tables' owner: CREATE PUBLICATION {name} FOR TABLE {labels} WITH (publish_via_partition_root = true); "
                f"and give publication={name!r}",
            )

    def unpublished(self, name: str, oids: Mapping[str, int]) -> list[str]:
        """Return the tables, of some labels with their OIDs, that a publication does not have, whatever they are called now."""
        found = self._server.attempt(lambda connection: connection.execute(_PUBLISHED_OIDS, [name]).fetchall())
        there = {int(oid) for (oid,) in found}
        return [label for label, oid in oids.items() if oid not in there]

    def _check_publication(self, name: str, published: Mapping[str, tuple[Any, Any]] | None) -> None:
        server = self._server
        if published is None:
            raise server.error(
                f"there is no publication {name!r}", f"CREATE PUBLICATION {name} FOR TABLE ..., or leave publication= out; {RESTART}"
            )
        query = b"SELECT pubinsert AND pubupdate AND pubdelete FROM pg_publication WHERE pubname = %s"
        whole = server.attempt(lambda connection: _row(connection, query, [name]))
        if whole is not None and not whole[0]:
            raise server.error(
                f"publication {name!r} leaves out inserts, updates or deletes",
                f"ALTER PUBLICATION {name} SET (publish = 'insert, update, delete, truncate')",
            )
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

    def slot(self, name: str) -> Slot | None:
        """Return a slot, None where there is none.

        Raises:
            SourceError: it has lost changes, or is none of this database and of pgoutput.
        """
        found = self._server.attempt(lambda connection: _row(connection, _SLOT, [name]))
        if found is None:
            return None
        plugin, is_here, status, confirmed, temporary = found
        if plugin != "pgoutput" or not is_here or temporary:
            raise self._server.error(
                f"the replication slot {name!r} is none of pgoutput and of this database", "give another name, slot='...'"
            )
        if status == "lost" or confirmed is None:
            raise self._server.error(
                f"the replication slot {name!r} is lost: the server deleted changes that were not read (max_slot_wal_keep_size)",
                f"SELECT pg_drop_replication_slot('{name}'), and {RESTART}",
            )
        return Slot(parse_lsn(confirmed))

    def create_slot(self, name: str) -> Slot:
        """Make a slot; it waits for the transactions that are writing.

        Raises:
            SourceError: the server has no free one, the user may not, or transactions do not end.
        """

        def create(connection: PostgresConnection) -> str | None:
            with connection.transaction():
                connection.execute(f"SET LOCAL statement_timeout = '{_CREATE_SECONDS}s'".encode())
                made = _row(connection, b"SELECT lsn::text FROM pg_create_logical_replication_slot(%s, 'pgoutput')", [name])
            return None if made is None else str(made[0])

        try:
            made = self._server.attempt(create)
        except SourceError as error:
            if "statement timeout" not in error.what:
                raise
            raise self._server.error(
                f"the replication slot {name!r} waits for a transaction that has been open for {_CREATE_SECONDS} seconds",
                "end it: SELECT pid, xact_start, query FROM pg_stat_activity WHERE backend_xid IS NOT NULL",
            ) from None
        return Slot(parse_lsn(made or "0/0"))

    def require_whole(self, name: str, slot: Slot | None, lsn: int) -> None:
        """Make sure that a slot has all changes after an LSN.

        Raises:
            SourceError: it does not exist any more, or is further on.
        """
        if slot is None:
            raise self._server.error(
                f"the replication slot {name!r} no longer exists, and with it the changes that were not read", f"{RESTART}"
            )
        if slot.confirmed > lsn:
            raise self._server.error(
                f"the replication slot {name!r} is at {lsn_text(slot.confirmed)}, and the job has read to {lsn_text(lsn)}: what is between "
                "is no longer there. Another reader moved it on, or the job was set back (rewind, restore)",
                RESTART,
            )


def _quoted(table: CapturedTable) -> sql.Identifier:
    from psycopg import sql

    return sql.Identifier(table.schema, table.name)


def _row(connection: PostgresConnection, query: bytes, values: Sequence[object] = ()) -> tuple[Any, ...] | None:
    return connection.execute(query, values or None).fetchone()

"""What the server's catalog says of the captured tables and the slot; makes the slot."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from tidemark.clock import SYSTEM_CLOCK
from tidemark.errors import SourceError
from tidemark.graph.connectors.postgres.node import MAX_NAME_BYTES
from tidemark.graph.connectors.postgres_changes.column_types import reads, tells_apart, types_for
from tidemark.graph.model.postgres_changes_spec import CapturedTable
from tidemark.savepoints.postgres.database import LEAST_VERSION
from tidemark.spark.sources.postgres_changes.messages import Relation
from tidemark.spark.sources.postgres_changes.positions import lsn_text, parse_lsn
from tidemark.spark.sources.postgres_changes.server import WRITERS_SECONDS, ChangesServer
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
_SLOT: Final = b"""
SELECT plugin::text, coalesce(database = current_database(), false), coalesce(wal_status, ''), confirmed_flush_lsn::text, temporary
FROM pg_replication_slots WHERE slot_name = %s
"""
_TYPES: Final = b"""
SELECT w.type, w.modifier, CASE WHEN t.typtype = 'd' THEN format_type(t.typbasetype, t.typtypmod) ELSE format_type(t.oid, w.modifier) END
FROM unnest(%s::bigint[], %s::int[]) AS w(type, modifier) JOIN pg_type t ON t.oid = w.type::oid
"""
_PAUSE_SECONDS: Final = 0.2
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
    """A captured table as it is on the server: its OID, the types of its columns, whether it is partitioned."""

    oid: int
    types: Mapping[str, str]
    partitioned: bool = False

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
                f"table {label} has no primary key, so its rows cannot be distinguished", f"ALTER TABLE {label} ADD PRIMARY KEY (...)"
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
        return StoredTable(int(oid), types, partitioned=kind == "p")

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
            if name in table.keys and reads(kind, types[name]) and not tells_apart(kind, types[name]):
                raise self._server.error(
                    f"column {name!r} of the primary key of {table.label} is {types[name]}, of which {kind} does not hold every digit: "
                    "several rows would be one",
                    f"read it as STRING, and convert it by SQL after {table.label} was read",
                )
            if not reads(kind, types[name]):
                raise self._server.error(
                    f"column {name!r} of {table.label} is {types[name]}, whose values {kind} does not hold",
                    f"read it as {types_for(types[name])}; a job that has rows of the old type needs a savepoint check (tidemark check)",
                )

    def check_relation(self, table: CapturedTable, relation: Relation) -> list[str]:
        """Make sure that a table, as it is described with its changes, can be read; returns its columns that are not.

        Raises:
            SourceError: a column was dropped, renamed, or changed its type, or the changes no longer have the primary key.
        """
        identity = {column.name for column in relation.columns if column.is_key}
        if relation.identity not in ("d", "f") or (relation.identity == "d" and identity != set(table.keys)):
            raise self._server.error(
                f"the changes of {table.label} have {', '.join(sorted(identity)) or 'no columns'} as their key, and not the primary key "
                f"{', '.join(table.keys)}: it was changed, or the replica identity",
                RESTART,
            )
        wanted = [(column.type, column.modifier) for column in relation.columns]
        given = [[kind for kind, _ in wanted], [modifier for _, modifier in wanted]]
        found = self._server.attempt(lambda connection: connection.execute(_TYPES, given).fetchall())
        names = {(int(kind), int(modifier)): str(name) for kind, modifier, name in found}
        self.check_columns(table, {column.name: names.get((column.type, column.modifier), "text") for column in relation.columns})
        return [column.name for column in relation.columns if column.name not in table.columns.names]

    def slot(self, name: str) -> Slot | None:
        """Return a slot, None where there is none; one that another connection is creating is waited for.

        Raises:
            SourceError: it has lost changes, is none of this database and of pgoutput, or is not created.
        """
        until = SYSTEM_CLOCK.monotonic() + WRITERS_SECONDS
        while True:
            found = self._server.attempt(lambda connection: _row(connection, _SLOT, [name]))
            if found is None:
                return None
            plugin, is_here, status, confirmed, temporary = found
            if plugin != "pgoutput" or not is_here or temporary:
                raise self._server.error(
                    f"the replication slot {name!r} is none of pgoutput and of this database", "give another name, slot='...'"
                )
            if status == "lost":
                raise self._server.error(
                    f"the replication slot {name!r} is lost: the server deleted changes that were not read (max_slot_wal_keep_size)",
                    RESTART,
                )
            if confirmed is not None:
                return Slot(parse_lsn(confirmed))
            # A driver that was killed has left the connection that creates it.
            if SYSTEM_CLOCK.monotonic() > until:
                raise self._waits(name)
            SYSTEM_CLOCK.sleep(_PAUSE_SECONDS)

    def create_slot(self, name: str) -> Slot:
        """Make a slot; it waits for the transactions that are writing.

        Raises:
            SourceError: the server has no free one, the user may not, or transactions do not end.
        """
        from psycopg import errors

        def create(connection: PostgresConnection) -> bool:
            if _row(connection, _SLOT, [name]) is not None:  # the connection was lost when it had been created
                return True
            try:
                with connection.transaction():
                    connection.execute(f"SET LOCAL statement_timeout = '{WRITERS_SECONDS:.0f}s'".encode())
                    connection.execute(b"SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", [name])
            except errors.QueryCanceled:
                return False
            return True

        slot = self.slot(name) if self._server.attempt(create) else None
        if slot is None:
            raise self._waits(name)
        return slot

    def _waits(self, name: str) -> SourceError:
        return self._server.error(
            f"the replication slot {name!r} waits for a transaction that has been open for {WRITERS_SECONDS:.0f} seconds",
            "end it: SELECT pid, xact_start, query FROM pg_stat_activity WHERE backend_xid IS NOT NULL",
        )

    def require_whole(self, name: str, slot: Slot | None, lsn: int) -> None:
        """Make sure that a slot has all changes after an LSN.

        Raises:
            SourceError: it does not exist any more, or is further on.
        """
        if slot is None:
            raise self._server.error(f"the replication slot {name!r} no longer exists, and with it the changes that were not read", RESTART)
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

"""A connection to the server whose changes are captured: the slot, its changes, and parts of tables. Nothing stays open between calls."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar

from tidemark.clock import SYSTEM_CLOCK
from tidemark.errors import SourceError
from tidemark.graph.model.nodes import SourceNode
from tidemark.graph.model.postgres_changes_spec import CapturedTable, PostgresChangesSpec
from tidemark.savepoints.database.session import DatabaseError
from tidemark.savepoints.postgres.database import ConnectionString
from tidemark.spark.sources.postgres_changes.message_spool import MessageSpool
from tidemark.spark.sources.postgres_changes.positions import Snapshot, lsn_text, parse_lsn
from tidemark.spark.sources.postgres_changes.server_errors import RESTART, again, explained

if TYPE_CHECKING:
    from psycopg import sql

    from tidemark.savepoints.postgres.database import PostgresConnection

T = TypeVar("T")

RETRY_SECONDS: Final = 30.0
"""How long a lost connection is made again, and a slot that a killed driver's connection still reads is waited for."""

_PAUSE_SECONDS: Final = 0.2
_FLUSH_SECONDS: Final = 10.0
_FLUSH_PAUSE_SECONDS: Final = 0.005
_FLUSH_LOOKS: Final = 20
_FETCHED: Final = 200
FETCHED_BYTES: Final = 8 * 1024 * 1024
"""Messages are fetched about so many bytes at a time."""

WRITERS_SECONDS: Final = 300.0
"""How long transactions are waited for that were writing when a slot was created, or a table added."""

_FLUSHED: Final = b"""
SELECT pg_current_wal_flush_lsn()::text, (SELECT system_identifier FROM pg_control_system())::text || '/' ||
    ('x' || left(pg_walfile_name(pg_current_wal_flush_lsn()), 8))::bit(32)::int
"""

SETTINGS: Final = {
    "TimeZone": "UTC",
    "DateStyle": "ISO",
    "IntervalStyle": "postgres",
    "extra_float_digits": "1",
    "bytea_output": "hex",
    "default_transaction_read_only": "off",
    "row_security": "off",
}
"""By which the texts of values are the same in changes and in parts of tables, whatever the server's own settings are.

A part of a table of which the user sees only some rows is an error: changes have them all.
"""

PART_BYTES: Final = 64 * 1024 * 1024
"""After so many bytes a part of a table ends."""

_PART_ROWS: Final = 500


@dataclass(frozen=True)
class TablePart:
    """Rows of a table with their values as texts, as one snapshot sees them, which is older than ``lsn``, at a time in microseconds.

    ``is_last`` says whether no rows follow them.
    """

    columns: tuple[str, ...]
    rows: Sequence[tuple[str | None, ...]]
    snapshot: Snapshot
    lsn: int
    at: int
    is_last: bool = False


class ChangesServer:
    """The server of one source.

    Args:
        source: that captures changes.
        spec: of the source.

    Attributes:
        identity: of the server and the timeline of its log, which must not change; empty where it is not known yet.
    """

    def __init__(self, source: SourceNode, spec: PostgresChangesSpec) -> None:
        self._source = source
        self.spec = spec
        self._string = ConnectionString.of(
            spec.dsn_env, what=f"source {source.name!r}", place=f"postgres://{spec.dsn_env}", error=SourceError
        )
        self._connection: PostgresConnection | None = None
        self.identity = ""

    def error(self, what: str, fix: str) -> SourceError:
        """Return an error of the source."""
        return SourceError(f"source {self._source.name!r}: {what}", fix=fix, uid=self._source.name, place=self._source.place)

    def attempt(self, call: Callable[[PostgresConnection], T]) -> T:
        """Return what a call with the connection returns; a call that loses the connection is made again, for half a minute.

        Raises:
            SourceError: the server cannot be reached, or refuses a statement.
        """
        until = SYSTEM_CLOCK.monotonic() + RETRY_SECONDS
        while True:
            try:
                with self._string.translating():
                    return call(self._connected())
            except DatabaseError as error:
                self.close()
                if not again(error) or SYSTEM_CLOCK.monotonic() > until:
                    what, fix = explained(error, self.spec)
                    raise self.error(what, fix) from None
            SYSTEM_CLOCK.sleep(_PAUSE_SECONDS)

    def flushed(self) -> int:
        """Return up to where the write-ahead log is on disk.

        Raises:
            SourceError: it is the log of another server, or another timeline of it.
        """
        lsn, identity = self.attempt(lambda connection: _row(connection, _FLUSHED))
        self.identity = self.identity or identity
        if identity != self.identity:
            raise self.error(
                f"the server's log is another one (system and timeline {identity}, before {self.identity}): the server is another, was "
                "restored from a backup, or was a standby. It may lack changes that were read, and have others",
                RESTART,
            )
        return parse_lsn(lsn)

    def settled(self) -> int:
        """Wait for the transactions that are writing now, and return an LSN after them.

        They may have changed a table before it was published.

        Raises:
            SourceError: they do not end.
        """
        until = SYSTEM_CLOCK.monotonic() + WRITERS_SECONDS
        # The server gives this number to a transaction of its own, after those of all that have written.
        last = int(self.attempt(lambda connection: _one(connection, "SELECT pg_current_xact_id()::text")))
        while int(self.attempt(lambda connection: _one(connection, "SELECT pg_snapshot_xmin(pg_current_snapshot())::text"))) <= last:
            if SYSTEM_CLOCK.monotonic() > until:
                raise self.error(
                    f"a transaction that has been open for {WRITERS_SECONDS:.0f} seconds may have changed a table before it was published",
                    "end it: SELECT pid, xact_start, query FROM pg_stat_activity WHERE backend_xid IS NOT NULL",
                )
            SYSTEM_CLOCK.sleep(_PAUSE_SECONDS)
        found = self.attempt(lambda connection: parse_lsn(_one(connection, "SELECT pg_current_wal_insert_lsn()::text")))
        self._flush(found)
        return found

    def snapshot(self) -> Snapshot:
        """Return which transactions are seen now."""
        return self.attempt(lambda connection: Snapshot.parse(_one(connection, "SELECT pg_current_snapshot()::text")))

    def changes(self, slot: str, publication: str, *, until: int, most: int | None) -> MessageSpool:
        """Return the messages of the transactions that the slot has, without consuming them.

        Args:
            slot: the slot's name.
            publication: the publication's.
            until: the LSN up to which transactions are read.
            most: after so many messages no further transaction is read, None for any number.
        """
        options = "'proto_version', '1', 'publication_names', %s"
        peek = f"SELECT data FROM pg_logical_slot_peek_binary_changes(%s, %s::pg_lsn, %s, {options})"

        def read(connection: PostgresConnection) -> MessageSpool:
            spool = MessageSpool()
            with connection.transaction(), connection.cursor(name="tidemark_changes") as cursor:
                cursor.execute(peek.encode(), [slot, lsn_text(until), most, publication], binary=True)
                fetched = 1
                while found := cursor.fetchmany(fetched):
                    size = 0
                    for (data,) in found:
                        spool.append(data)
                        size += len(data)
                    # A row may be large, and so may those that follow it.
                    fetched = max(1, min(_FETCHED, 2 * fetched, FETCHED_BYTES * len(found) // max(size, 1)))
            return spool

        return self.attempt(read)

    def advance(self, slot: str, lsn: int) -> None:
        """Move a slot on to an LSN, so that the server may delete what is before it; one that is there already stays."""

        def move(connection: PostgresConnection) -> None:
            query = b"SELECT confirmed_flush_lsn::text FROM pg_replication_slots WHERE slot_name = %s"
            found = connection.execute(query, [slot]).fetchone()
            if found is not None and parse_lsn(found[0]) < lsn:
                connection.execute(b"SELECT pg_replication_slot_advance(%s, %s::pg_lsn)", [slot, lsn_text(lsn)])

        self.attempt(move)

    def part(
        self,
        table: CapturedTable,
        types: Sequence[str],
        after: Sequence[str] | None,
        most: int,
        *,
        whole: bool = False,
        rows: sql.Composable | None = None,
    ) -> TablePart:
        """Return the rows of a table that follow a key, in the order of the primary key, as they are now.

        Args:
            table: the table.
            types: of the columns of the key, as the catalog names them.
            after: the key as texts, None for the first rows.
            most: how many rows; fewer if they are large.
            whole: whether the table is partitioned, and its rows are in other tables.
            rows: of one partition, as a query names them, None for those of the table.
        """
        from psycopg import sql

        keys = sql.SQL(", ").join(map(sql.Identifier, table.keys))
        following: sql.Composable = sql.SQL("")
        if after is not None:
            values = sql.SQL(", ").join(sql.SQL("%s::") + sql.SQL(kind) for kind in types)
            following = sql.SQL("WHERE ({}) > ({})").format(keys, values)
        query = sql.SQL("DECLARE tidemark_part NO SCROLL CURSOR FOR SELECT {} FROM {} {} ORDER BY {} LIMIT {}").format(
            _columns(table), _rows_of(table, whole=whole) if rows is None else rows, following, keys, sql.Literal(most)
        )

        def read(connection: PostgresConnection) -> TablePart:
            with _one_snapshot(connection) as (snapshot, lsn, at):
                connection.execute(query, after)
                rows, is_last = _fetched(connection, most)
            return TablePart(table.columns.names, rows, snapshot, lsn, at, is_last)

        found = self.attempt(read)
        self._flush(found.lsn)
        return found

    def rows_of(
        self, table: CapturedTable, types: Sequence[str], keys: Sequence[Sequence[str]], *, whole: bool = False
    ) -> list[tuple[str | None, ...]]:
        """Return the rows with some keys as they are now, with their values as texts, in the order of the declared columns."""
        from psycopg import sql

        names = [sql.Identifier(f"k{number}") for number in range(len(types))]
        typed = sql.SQL(", ").join(sql.SQL("{}::").format(name) + sql.SQL(kind) for name, kind in zip(names, types, strict=True))
        arrays = sql.SQL(", ").join([sql.SQL("%s::text[]")] * len(types))
        wanted = sql.SQL("SELECT {} FROM {} WHERE ({}) IN (SELECT {} FROM unnest({}) AS k({}))").format(
            _columns(table),
            _rows_of(table, whole=whole),
            sql.SQL(", ").join(map(sql.Identifier, table.keys)),
            typed,
            arrays,
            sql.SQL(", ").join(names),
        )
        given = [list(column) for column in zip(*keys, strict=True)]
        return self.attempt(lambda connection: list(_texts(connection, wanted, given)))

    def close(self) -> None:
        """Close the connection; the next call makes another one."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _connected(self) -> PostgresConnection:
        if self._connection is None or self._connection.closed:
            self._connection = self._string.connect(**SETTINGS)
            self._connection.autocommit = True
        return self._connection

    def _flush(self, lsn: int) -> None:
        """Wait until the log is on disk up to an LSN: only then are its transactions among the changes."""
        until = SYSTEM_CLOCK.monotonic() + _FLUSH_SECONDS
        looks = 0
        while self.flushed() < lsn:
            looks += 1
            if looks == _FLUSH_LOOKS:
                # Transactions that do not wait for the disk leave the rest of the log to the next one that does.
                self.attempt(_write_message)
            if SYSTEM_CLOCK.monotonic() > until:
                raise self.error(
                    f"the server has not written its log to {lsn_text(lsn)} within {_FLUSH_SECONDS:.0f} seconds",
                    "check the server's disk; the job tries again when it is started again",
                )
            SYSTEM_CLOCK.sleep(_FLUSH_PAUSE_SECONDS)


@contextmanager
def _one_snapshot(connection: PostgresConnection) -> Iterator[tuple[Snapshot, int, int]]:
    """Run the block in a transaction with one snapshot; yields it, an LSN after all that it sees, and the time in microseconds."""
    with connection.transaction():
        connection.execute(b"SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
        # The snapshot is taken before the functions are called.
        query = b"SELECT pg_current_snapshot()::text, pg_current_wal_insert_lsn()::text, (extract(epoch FROM now()) * 1000000)::bigint"
        found = _row(connection, query)
        yield Snapshot.parse(found[0]), parse_lsn(found[1]), int(found[2])


def _write_message(connection: PostgresConnection) -> None:
    with connection.transaction():
        connection.execute(b"SET LOCAL synchronous_commit = on")
        connection.execute(b"SELECT pg_logical_emit_message(true, 'tidemark', '')")


def _fetched(connection: PostgresConnection, most: int) -> tuple[list[tuple[str | None, ...]], bool]:
    """Return rows of a part until there are enough, or many bytes, and whether they are all that follow."""
    from psycopg import sql

    rows: list[tuple[str | None, ...]] = []
    size, fetch = 0, sql.SQL("FETCH FORWARD {} FROM tidemark_part").format(sql.Literal(_PART_ROWS))
    while size < PART_BYTES:
        found = _texts(connection, fetch, None)
        rows += found
        if len(found) < _PART_ROWS:
            return rows, len(rows) < most
        size += sum(len(value) for row in found for value in row if value is not None)
    return rows, False


def _texts(connection: PostgresConnection, query: sql.Composed, values: Sequence[object] | None) -> Sequence[tuple[str | None, ...]]:
    """Return the rows of a query with the texts that the server sends, which are those of its changes, too."""
    cursor = connection.execute(query, values)
    result = cursor.pgresult
    if result is None:
        return ()
    columns = range(result.nfields)
    return [tuple(_text(result.get_value(row, column)) for column in columns) for row in range(result.ntuples)]


def _text(value: bytes | None) -> str | None:
    return None if value is None else bytes(value).decode()


def _columns(table: CapturedTable) -> sql.Composed:
    from psycopg import sql

    return sql.SQL(", ").join(map(sql.Identifier, table.columns.names))


def _rows_of(table: CapturedTable, *, whole: bool) -> sql.Composed:
    """Return a table without those that inherit from it, whose changes are of other tables."""
    from psycopg import sql

    return sql.SQL("{}" if whole else "ONLY {}").format(sql.Identifier(table.schema, table.name))


def _row(connection: PostgresConnection, query: bytes) -> tuple[Any, ...]:
    found = connection.execute(query).fetchone()
    if found is None:
        raise TypeError("a query without a row")
    return found


def _one(connection: PostgresConnection, query: str) -> Any:  # noqa: ANN401 - of any type
    found = connection.execute(query.encode()).fetchone()
    return None if found is None else found[0]

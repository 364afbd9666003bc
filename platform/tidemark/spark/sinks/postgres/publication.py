"""Publishes an epoch's staged rows to a table, in one transaction with the epoch's row in ``tidemark_epochs``.

Rows are copied into temporary tables first, which takes the longest; only then does the transaction wait for its turn. So a driver that
is suspended while it copies keeps no other waiting, and one that is suspended later loses its connection after a minute.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tidemark.crashpoints import crash_point
from tidemark.savepoints.postgres.ledger import Ledger
from tidemark.savepoints.postgres.tables import add_columns, column_types, create_table, identifier, names, read_table
from tidemark.spark.sinks.delta.delta_changes import is_deletion
from tidemark.spark.sinks.postgres.copying import copy_files
from tidemark.spark.sinks.staging.sink_owner import SinkOwner
from tidemark.state.log.records import OutputRecord
from tidemark.state.store.store import JobStore

if TYPE_CHECKING:
    from psycopg import sql

    from tidemark.savepoints.postgres.database import PostgresConnection

ROWS: Final = "tidemark_rows"
DELETED: Final = "tidemark_deleted"

_MODE: Final = "mode"
_KEYS: Final = "keys"


def options_of(mode: str, keys: Sequence[str]) -> dict[str, str]:
    """Return the options of an output's record: enough to publish it, however the job changes."""
    return {_MODE: mode, **({_KEYS: json.dumps(list(keys))} if keys else {})}


@dataclass(frozen=True)
class Publication:
    """One epoch's rows for one table.

    Args:
        ledger: of the table's epochs.
        record: of the output.
        store: that the files were staged in.
        lineage: of the epoch.
        epoch: its number.
        owner: whose output it is.
        require_whole: raises if the table no longer holds what was published before.
    """

    ledger: Ledger
    record: OutputRecord
    store: JobStore
    lineage: str
    epoch: int
    owner: SinkOwner
    require_whole: Callable[[PostgresConnection], None]

    def run(self, connection: PostgresConnection) -> None:
        """Publish the epoch unless it is published; the caller's transaction commits it.

        Raises:
            FencedError: a newer driver has published, or has begun.
            MissingEpochsError: the table has lost epochs.
            psycopg.Error: the server refuses a statement.
        """
        done = self._is_published(connection)
        if not done:
            self.require_whole(connection)
            self._copy(connection)
            crash_point("postgres-copied")
        self.ledger.make(connection)
        self.ledger.lock(connection)
        if self._is_published(connection):
            self.ledger.raise_term(connection, self.lineage, self.owner.term)
            return
        if self.ledger.lineage(connection, self.lineage) is None:
            self._begin_lineage(connection)
        self._fit_table(connection)
        self._apply(connection)
        self.ledger.add(connection, self.lineage, self.epoch, mode=self._mode, term=self.owner.term, rows=self.record.rows)
        crash_point("postgres-applied")

    @property
    def _mode(self) -> str:
        return self.record.options.get(_MODE, "append")

    @property
    def _keys(self) -> tuple[str, ...]:
        return tuple(json.loads(self.record.options.get(_KEYS, "[]")))

    @property
    def _columns(self) -> dict[str, str]:
        return column_types(json.loads(self.record.schema or "{}"), self.ledger.output)

    def _is_published(self, connection: PostgresConnection) -> bool:
        known = self.ledger.lineage(connection, self.lineage)
        self.ledger.require_newest_driver(known, self.owner.term)
        return known is not None and known.epoch >= self.epoch

    def _begin_lineage(self, connection: PostgresConnection) -> None:
        """Refuse a driver of a lineage that a restore has left, here and from now on: terms are compared within a lineage."""
        # The table's lock is taken, so a driver that begins after this publishes after this.
        self.owner.confirm()
        self.ledger.raise_other_terms(connection, self.lineage, self.owner.term)

    def _copy(self, connection: PostgresConnection) -> None:
        columns = self._columns
        deleted = [file for file in self.record.files if is_deletion(file)]
        copy_files(connection, ROWS, [file for file in self.record.files if not is_deletion(file)], self.store, columns)
        if deleted:
            copy_files(connection, DELETED, deleted, self.store, {key: columns[key] for key in self._keys})

    def _fit_table(self, connection: PostgresConnection) -> None:
        table, columns = self.ledger.table, self._columns
        stored = read_table(connection, table)
        if stored is None:
            create_table(connection, table, columns, self._keys)
            self.ledger.add_created(connection)
        else:
            add_columns(connection, table, stored, columns)

    def _apply(self, connection: PostgresConnection) -> None:
        from psycopg import sql

        table, columns, keys = identifier(self.ledger.table), self._columns, self._keys
        if any(map(is_deletion, self.record.files)):
            _delete(connection, table, keys)
        insert = sql.SQL("INSERT INTO {} ({}) SELECT {} FROM {}").format(
            table, names(list(columns)), names(list(columns)), sql.Identifier("pg_temp", ROWS)
        )
        connection.execute(insert + _on_conflict(columns, keys) if keys else insert)


def _on_conflict(columns: Mapping[str, str], keys: Sequence[str]) -> sql.Composable:
    from psycopg import sql

    new = [sql.SQL("{0} = EXCLUDED.{0}").format(sql.Identifier(name)) for name in columns if name not in keys]
    do = sql.SQL("UPDATE SET {}").format(sql.SQL(", ").join(new)) if new else sql.SQL("NOTHING")
    return sql.SQL(" ON CONFLICT ({}) DO {}").format(names(keys), do)


def _delete(connection: PostgresConnection, table: sql.Identifier, keys: Sequence[str]) -> None:
    """Delete rows by their keys; one statement for each combination of nulls, since only an equality can use an index."""
    from psycopg import sql

    deleted = sql.Identifier("pg_temp", DELETED)
    nulls = sql.SQL(", ").join(sql.SQL("{} IS NULL").format(sql.Identifier(key)) for key in keys)
    for pattern in connection.execute(sql.SQL("SELECT DISTINCT {} FROM {}").format(nulls, deleted)).fetchall():
        same = [
            sql.SQL("t.{0} IS NULL AND d.{0} IS NULL" if is_null else "t.{0} = d.{0}").format(sql.Identifier(key))
            for key, is_null in zip(keys, pattern, strict=True)
        ]
        connection.execute(sql.SQL("DELETE FROM {} t USING {} d WHERE {}").format(table, deleted, sql.SQL(" AND ").join(same)))

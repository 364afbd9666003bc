"""Publishes an epoch's staged rows to a table, in one transaction with the epoch's row in ``tidemark_epochs``.

Rows are loaded into temporary tables first, which takes the longest; only then does the transaction wait for its turn. So a driver that
is suspended while it loads keeps no other waiting, and one that is suspended later loses its connection after a minute, except of SQLite.

In MariaDB and MySQL what creates or changes a table ends the transaction before it. So it comes before the rows, in an order in which it
can be repeated.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from tidemark.crashpoints import crash_point
from tidemark.savepoints.database.dialect import DELETED, ROWS
from tidemark.savepoints.database.ledger import Ledger
from tidemark.savepoints.database.session import Session
from tidemark.savepoints.database.stored import Wanted
from tidemark.spark.sinks.delta.delta_changes import is_deletion
from tidemark.spark.sinks.staging.local_copy import parquet_copy
from tidemark.spark.sinks.staging.sink_owner import SinkOwner
from tidemark.state.log.records import OutputRecord, StagedFile, row_keys_option
from tidemark.state.store.store import JobStore

_BATCH_ROWS: Final = 16_384
_MODE: Final = "mode"


def options_of(mode: str, keys: Sequence[str]) -> dict[str, str]:
    """Return the options of an output's record: enough to publish it, however the job changes."""
    return {_MODE: mode, **row_keys_option(keys)}


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
    require_whole: Callable[[Session], None]

    def run(self, session: Session) -> None:
        """Publish the epoch unless it is published; the caller's transaction commits it.

        Raises:
            FencedError: a newer driver has published, or has begun.
            MissingEpochsError: the table has lost epochs.
            Exception: of the client library, which the caller's transaction translates: the server refuses a statement.
        """
        done = self._is_published(session)
        if not done:
            self.require_whole(session)
            self._load(session)
            crash_point("database-loaded")
        self.ledger.make(session)
        self.ledger.lock(session)
        if self._is_published(session):
            self.ledger.raise_term(session, self.lineage, self.owner.term)
            return
        if self.ledger.lineage(session, self.lineage) is None:
            self._begin_lineage(session)
        self._fit_table(session)
        self._apply(session)
        self.ledger.add(session, self.lineage, self.epoch, mode=self._mode, term=self.owner.term, rows=self.record.rows)
        crash_point("database-applied")

    @property
    def _mode(self) -> str:
        return self.record.options.get(_MODE, "append")

    @property
    def _keys(self) -> tuple[str, ...]:
        return self.record.row_keys

    @property
    def _columns(self) -> dict[str, str]:
        return self.ledger.dialect.column_types(json.loads(self.record.schema or "{}"), self.ledger.output, self._keys)

    def _is_published(self, session: Session) -> bool:
        known = self.ledger.lineage(session, self.lineage)
        self.ledger.require_newest_driver(known, self.owner.term)
        return known is not None and known.epoch >= self.epoch

    def _begin_lineage(self, session: Session) -> None:
        """Refuse a driver of a lineage that a restore has left, here and from now on: terms are compared within a lineage."""
        # The table's lock is taken, so a driver that begins after this publishes after this.
        self.owner.confirm()
        self.ledger.raise_other_terms(session, self.lineage, self.owner.term)

    def _load(self, session: Session) -> None:
        columns = self._columns
        for into, names in ((ROWS, tuple(columns)), (DELETED, self._keys)):
            files = [file for file in self.record.files if is_deletion(file) == (into == DELETED)]
            if files or into == ROWS:
                session.load(into, {name: columns[name] for name in names}, _batches(files, self.store, names))

    def _fit_table(self, session: Session) -> None:
        dialect, table, columns = self.ledger.dialect, self.ledger.table, self._columns
        stored = dialect.read_table(session, table)
        if stored is None:
            # In this order: where the two are not one transaction, a table that was created must not seem to be another's.
            self.ledger.add_created(session)
            dialect.create_table(session, table, Wanted(columns, self._keys))
        else:
            dialect.add_columns(session, table, stored, columns)

    def _apply(self, session: Session) -> None:
        dialect, table = self.ledger.dialect, self.ledger.table
        if any(map(is_deletion, self.record.files)):
            dialect.delete_rows(session, table, self._keys)
        dialect.write_rows(session, table, tuple(self._columns), self._keys)


def _batches(files: Sequence[StagedFile], store: JobStore, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    for file in files:
        with parquet_copy(store, file.path) as copied:
            for batch in copied.iter_batches(batch_size=_BATCH_ROWS, columns=list(columns)):
                # By name: the file's order may be another.
                yield batch.select(list(columns))

"""A table of a database. Exactly once: an epoch's rows and its row in ``tidemark_epochs`` are written in one transaction."""

from __future__ import annotations

import json
import logging
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from tidemark.crashpoints import crash_point
from tidemark.errors import SinkError, StoreError
from tidemark.graph.checks.output_columns import EPOCH
from tidemark.graph.connectors.database.node import DatabaseTable, TableMode
from tidemark.savepoints.database.dialect import Dialect
from tidemark.savepoints.database.ledger import HISTORY, Ledger, LineageEpochs
from tidemark.savepoints.database.session import DatabaseError, Session
from tidemark.savepoints.database.stored import Missing, StoredTable, Wanted, table_findings
from tidemark.savepoints.delta.missing_records import Retained
from tidemark.spark.columns.expressions import visible_part
from tidemark.spark.columns.schemas import nullable
from tidemark.spark.columns.state_files import write_folder
from tidemark.spark.sinks.database.limits import Limits
from tidemark.spark.sinks.database.publication import Publication, options_of
from tidemark.spark.sinks.database.replaced_sessions import with_replaced_sessions
from tidemark.spark.sinks.delta.delta_changes import (
    DELETED,
    Changes,
    changes_options,
    is_deletion,
    staged_history,
    staged_upsert,
)
from tidemark.spark.sinks.delta.delta_upsert import Upsert
from tidemark.spark.sinks.staging.missing import staged_files_lost
from tidemark.spark.sinks.staging.sink_owner import SinkOwner
from tidemark.spark.sinks.staging.staging import SINK_COMPRESSION, Occupancy, folder_of
from tidemark.spark.sinks.staging.table_sink import TableSink
from tidemark.state.log.records import EpochRecord, OutputRecord, SinkPosition

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

logger = logging.getLogger("tidemark")


class DatabaseSink(TableSink):
    """One table.

    An epoch's record takes precedence over the job's current options: an epoch is published as it was staged.

    Args:
        name: of the output.
        table: its table.
        dialect: of the table's database.
        owner: whose output it is.
        mode: whether rows are added, or replace older ones.
        keys: of an upsert.
        with_epoch: whether rows that are added have their epoch's number.
        former: the newest record of an output that the job no longer has, or has at another place, if it is one: then it connects only
            while files of that record are staged. They are deleted once they are published, and the place may be gone by now.
    """

    def __init__(
        self,
        name: str,
        table: DatabaseTable,
        dialect: Dialect,
        owner: SinkOwner,
        *,
        mode: TableMode = "append",
        keys: tuple[str, ...] = (),
        with_epoch: bool = False,
        former: OutputRecord | None = None,
    ) -> None:
        super().__init__(name, table.location, owner, table=table.label)
        self._table = table
        self._dialect = dialect
        self._upsert = Upsert(keys) if mode == "upsert" else None
        self._with_epoch = with_epoch
        self._former = former
        self._ledger = Ledger(dialect, table, owner.job, name)
        self._checked: str | None = None
        self._may_delete = False
        self._stored: StoredTable | None = None
        self._types: dict[str, str] = {}
        self.upserts = mode == "upsert"

    def stage(
        self,
        rows: DataFrame,
        changes: Changes | None,
        staging: str,
        *,
        epoch: int,
        processing_time: int,  # noqa: ARG002 - the protocol's
    ) -> OutputRecord:
        """Stage an epoch's rows; texts, times and nulls that the table could not take fail here."""
        counts: dict[str, str] = {}
        newest = self._upsert.newest(rows) if self._upsert is not None and changes is None else None
        changed = None
        if changes is not None:
            changed = staged_history(rows, changes, epoch) if self._upsert is None else staged_upsert(rows, changes)
        if changed is not None:
            given, apart = changed.rows, changed.apart
        elif newest is not None:
            given, apart = with_replaced_sessions(newest), (DELETED,)
        else:
            given, apart = self._added(rows, epoch), ()
        schema = nullable(given.drop(DELETED).schema)
        self.require_whole()
        self.check(schema)
        copied = self.prepared(given, self._limits())
        folder = self.staging_folder(staging)
        files = write_folder(copied, self.staging, folder, compression=SINK_COMPRESSION, apart=apart)
        staged = tuple(file.as_staged_file() for file in files)
        if any(map(is_deletion, staged)):
            self._require_deletes()
        count = sum(file.rows for file in files)
        if changed is not None:
            counts = changes_options(changed.emitted(files, self.name), changed.counts)
        elif newest is not None:
            count = newest.emitted([file for file, each in zip(files, staged, strict=True) if not is_deletion(each)], self.name)
        mode = "upsert" if self._upsert is not None else HISTORY if changes is not None or self._with_epoch else "append"
        return OutputRecord(
            sink=self.kind,
            location=self.location,
            schema=schema.json(),
            files=staged,
            rows=count,
            options={**options_of(mode, self.row_keys), **counts},
        )

    @abstractmethod
    def prepared(self, rows: DataFrame, limits: Limits) -> DataFrame:
        """Return rows as the database takes them, with values that it cannot hold refused.

        Args:
            rows: visible columns, and the engine's own, which stay.
            limits: of the table.
        """

    def _limits(self) -> Limits:
        stored = self._stored
        if stored is None:
            return Limits(self.name, self.row_keys, frozenset(), self._dialect.longest(self._types))
        longest = {name: column.longest for name, column in stored.columns.items() if column.longest is not None}
        return Limits(self.name, self.row_keys, stored.required, longest)

    def _added(self, rows: DataFrame, epoch: int) -> DataFrame:
        visible = visible_part(rows)
        return visible.withColumn(EPOCH, F.lit(epoch).cast("bigint")) if self._with_epoch else visible

    def publish(self, record: OutputRecord, lineage: str, epoch: int) -> None:
        """Write the epoch's rows and its row in ``tidemark_epochs``, unless the table has it; then delete the staged files."""
        if record.schema is None or self._is_done:
            return
        publication = Publication(self._ledger, record, self.staging, lineage, epoch, self.owner, self._require_whole)
        try:
            if not self.staging.exists(record.files[0].path):
                self._require_published(lineage, epoch)
            with self._dialect.transaction(self._table) as session:
                publication.run(session)
            self.held = self.position_at(lineage, epoch)
            crash_point("database-committed")
            self.staging.remove_folder(folder_of(record))
        except (DatabaseError, StoreError, OSError) as error:
            raise self.unpublished(_what(error), epoch, causes="connection, space, permission, or a constraint of the table") from None

    def _require_published(self, lineage: str, epoch: int) -> None:
        newest = self.newest(lineage)
        if newest is None or newest < epoch:
            raise staged_files_lost(self.name, self.owner.job, self.location, epoch)

    def check(self, schema: StructType) -> None:
        """Raise SinkError when the table cannot take rows of this type, or identify them by their keys, or the user may not write them."""
        text = schema.json()
        if text == self._checked:
            return
        rows = Wanted(self._dialect.column_types(json.loads(text), self.name, self.row_keys), self.row_keys)
        if self._upsert is not None:
            self._upsert.require_keys(schema, self.name)
        with self._reading("checked") as session:
            self._dialect.require_server(session, self._table, self.name)
            stored = self._dialect.read_table(session, self._table)
            own = self._ledger.is_own(session)
            blank = stored is not None and self._ledger.is_blank(session)
            if stored is not None and not blank:
                self.require_fit(table_findings(self._dialect, self._table, stored, rows, own=own))
            epochs = self._ledger.exists(session)
            lacks = self._dialect.missing_privileges(session, self._table, stored, rows, epochs=epochs) if not blank else []
        if blank:
            self.create(schema)
        self._refuse(lacks)
        self._stored = None if blank else stored
        self._types = dict(rows.types)
        self._checked = text

    def _require_deletes(self) -> None:
        if not self._may_delete:
            with self._reading("checked") as session:
                exists = self._dialect.read_table(session, self._table) is not None
                lacks = self._dialect.may_delete(session, self._table) if exists else []
            self._refuse(lacks)
            self._may_delete = True

    def _refuse(self, lacks: Sequence[Missing]) -> None:
        if lacks:
            raise SinkError(
                f"the user of {self._table.dsn_env} lacks what output {self.name!r} needs: {', '.join(each.what for each in lacks)}",
                fix="; ".join(dict.fromkeys(each.grant for each in lacks)),
                uid=self.name,
                place=self.location,
            )

    @property
    def occupancy(self) -> Occupancy:
        """Whether there is no table yet, or one without rows."""
        with self._reading("read") as session:
            if self._dialect.read_table(session, self._table) is None:
                return "missing"
            return "taken" if self._dialect.may_have_rows(session, self._table) else "empty"

    def create(self, schema: StructType) -> None:
        """Create the table, without rows; one that this output created, and that never had rows, gets these columns.

        Raises:
            SinkError: it cannot be created, or rows cannot be identified by their keys.
            StoreError: the server cannot be reached.
        """
        rows = Wanted(self._dialect.column_types(json.loads(schema.json()), self.name, self.row_keys), self.row_keys)
        if self._upsert is not None:
            self._upsert.require_keys(schema, self.name)
        with self._reading("created") as session:
            self._dialect.require_server(session, self._table, self.name)
            self._ledger.make(session)
            self._ledger.lock(session)
            stored = self._dialect.read_table(session, self._table)
            if stored is not None:
                fits = not table_findings(self._dialect, self._table, stored, rows, own=True)
                if fits or not self._ledger.is_blank(session):
                    return
                self._dialect.drop_table(session, self._table)
            # In this order, as when an epoch is published.
            self._ledger.add_created(session)
            self._dialect.create_table(session, self._table, rows)
        crash_point("table-created")

    @property
    def row_keys(self) -> tuple[str, ...]:
        """The key of an upsert."""
        return self._upsert.keys if self._upsert is not None else ()

    def require_whole(self) -> None:
        """Raise MissingEpochsError when the table was deleted, or a backup was restored that lacks published epochs."""
        if not self._is_done:
            with self._reading("checked") as session:
                self._require_whole(session)

    @property
    def _is_done(self) -> bool:
        """Whether this is a former output, and nothing is left to publish."""
        return self._former is not None and not any(self.staging.exists(file.path) for file in self._former.files)

    def _require_whole(self, session: Session) -> None:
        known = self.known
        self.require_held(self._lost(session, known) if known.epoch >= 0 else None)

    def _lost(self, session: Session, known: SinkPosition) -> str | None:
        """Return why the table does not hold a known epoch, None where it does."""
        if self._dialect.read_table(session, self._table) is None:
            return "there is no table any more"
        found = self._ledger.lineage(session, known.lineage)
        if found is None or found.epoch < known.epoch:
            return f"by the table tidemark_epochs its newest epoch is {'none' if found is None else found.epoch}"
        return None

    def adopt(self) -> None:
        """Accept the table as it is, with the epochs that it has."""
        known = self.known
        newest = self.newest(known.lineage)
        epoch = -1 if newest is None else min(newest, known.epoch)
        with self._reading("read") as session:
            there = self._dialect.read_table(session, self._table) is not None
        self.held = self.position_at(known.lineage, epoch if there else -1)

    def missing(self, retained: Retained) -> tuple[EpochRecord, ...]:
        """Return the retained epochs that the table does not hold."""
        found: dict[str, LineageEpochs | None] = {}
        with self._reading("read") as session:
            if self._dialect.read_table(session, self._table) is None:
                return retained.records
            for lineage in {record.lineage for record in retained.records}:
                found[lineage] = self._ledger.lineage(session, lineage)
        newest = {lineage: each.epoch if each is not None else -1 for lineage, each in found.items()}
        return tuple(record for record in retained.records if record.epoch > newest[record.lineage])

    def newest(self, lineage: str) -> int | None:
        """Return the newest epoch of a lineage that was published, None where there is none."""
        with self._reading("read") as session:
            found = self._ledger.lineage(session, lineage)
        return None if found is None else found.epoch

    @contextmanager
    def _reading(self, how: str) -> Iterator[Session]:
        """Run the block in a transaction, before anything is committed to the job's log.

        Raises:
            StoreError: the server cannot be reached.
            SinkError: it refuses a statement.
        """
        try:
            with self._dialect.transaction(self._table) as session:
                yield session
        except DatabaseError as error:
            what = f"the table of output {self.name!r} cannot be {how}: {error.what}"
            if error.lost:
                fix = "check that the server runs and can be reached from this machine, and the connection string, and start the job again"
                raise StoreError(what, fix=fix, uid=self.name, place=self.location) from None
            fix = "give the user of the connection string the permissions that are missing, create the schema, or write to another table"
            raise SinkError(what, fix=fix, uid=self.name, place=self.location) from None


def _what(error: Exception) -> str:
    return error.what if isinstance(error, DatabaseError | StoreError) else str(error)

"""A table of Iceberg. Exactly once: one commit adds an epoch's data files and sets the property that names the epoch."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from tidemark.clock import Clock, SystemClock
from tidemark.crashpoints import crash_point
from tidemark.errors import MissingEpochsError, SinkError, StoreError
from tidemark.graph.connectors.iceberg.node import IcebergTable, PartitionBy
from tidemark.savepoints.delta.missing_records import Retained
from tidemark.savepoints.iceberg.catalogs import IcebergError, catalog_of, load
from tidemark.savepoints.iceberg.columns import (
    NO_TEXTS,
    TableTexts,
    iceberg_schema,
    partition_spec,
    partitions_of,
    require_types,
    table_findings,
)
from tidemark.savepoints.iceberg.commits import append, data_files, staged_transaction
from tidemark.savepoints.iceberg.history import Ledger
from tidemark.savepoints.model.stored_types import stored_columns
from tidemark.savepoints.model.verdict import Finding
from tidemark.spark.columns.expressions import visible_of
from tidemark.spark.columns.schemas import nullable
from tidemark.spark.columns.state_files import write_folder
from tidemark.spark.sinks.delta.delta_changes import Changes, changes_options, staged_history
from tidemark.spark.sinks.iceberg.partitions import split
from tidemark.spark.sinks.staging.missing import staged_files_lost
from tidemark.spark.sinks.staging.sink_owner import SinkOwner
from tidemark.spark.sinks.staging.staging import Occupancy, record_of
from tidemark.spark.sinks.staging.table_sink import TableSink
from tidemark.state.log.records import EpochRecord, OutputRecord, SinkPosition
from tidemark.state.store.store import JobStore

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

    from tidemark.savepoints.model.table_columns import Columns

logger = logging.getLogger("tidemark")

NEW_TABLE: Final = {
    # Catalogs have defaults of their own, and PyIceberg writes no tables of the third format.
    "format-version": "2",
    "commit.manifest-merge.enabled": "true",
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "100",
}
"""Properties of tables that are created: with a snapshot for each epoch, manifests and old metadata files would become ever more."""

DATA: Final = "data"
"""Option of a record: the address that the paths of its files begin with."""

_COMPRESSION: Final = "zstd"
_ATTEMPTS: Final = 20
_WAIT_SECONDS: Final = 0.05


class IcebergSink(TableSink):
    """One table. Data files are written below its data folder, under a name with lineage and epoch, and stay there once published.

    Args:
        name: of the output.
        table: its table.
        owner: whose output it is.
        partition_by: of a table that is created.
        texts: what the output says of its table and of columns.
        clock: for waits between attempts to commit.
    """

    kind = "iceberg"

    def __init__(
        self,
        name: str,
        table: IcebergTable,
        owner: SinkOwner,
        *,
        partition_by: tuple[PartitionBy, ...] = (),
        texts: TableTexts = NO_TEXTS,
        clock: Clock | None = None,
    ) -> None:
        super().__init__(name, table.location, owner)
        self._table = table
        self._partition_by = partition_by
        self._texts = texts
        self._ledger = Ledger(owner.job, name)
        self._clock = clock or SystemClock()
        self._checked: str | None = None
        self._data = ""
        self._store: tuple[str, JobStore] | None = None

    @property
    def staging(self) -> JobStore:
        """The store at the table's data folder; where there is no table yet, at the job's folder, which then has no such files.

        Raises:
            SinkError: the catalog refuses access, or the table lies where Spark cannot write.
            StoreError: the catalog cannot be reached.
        """
        if not self._data:
            with self._reading("read") as catalog:
                table = load(catalog, self._table)
                self._data = table.location_provider().data_path if table is not None else ""
        if self._data and (self._store is None or self._store[0] != self._data):
            self._store = self._data, JobStore.open(self._data)
        return self._store[1] if self._store is not None else self.owner.store

    def staging_folder(self, name: str) -> str:
        """Return a folder below the table's data folder."""
        return f"tidemark/{self.owner.job}/{self.name}/{name}"

    def visible_files(self) -> frozenset[str]:
        """Return the staged files that any snapshot has, also one that was rolled back and is not expired yet."""
        with self._reading("read") as catalog:
            table = load(catalog, self._table)
            if table is None:
                return frozenset()
            # Where files were staged before the table's folder was changed, if it was since this sink was opened.
            begin = f"{self._data or table.location_provider().data_path}/"
            manifests = {each.manifest_path: each for snapshot in table.snapshots() for each in snapshot.manifests(table.io)}
            entries = (entry for each in manifests.values() for entry in each.fetch_manifest_entry(table.io, discard_deleted=False))
            return frozenset(entry.data_file.file_path.removeprefix(begin) for entry in entries)

    def stage(
        self,
        rows: DataFrame,
        changes: Changes | None,
        staging: str,
        *,
        epoch: int,
        processing_time: int,  # noqa: ARG002 - the protocol's
    ) -> OutputRecord:
        """Write an epoch's data files to the table's folder; files that the table could not take fail here."""
        changed = staged_history(rows, changes, epoch) if changes is not None else None
        given = changed.rows if changed is not None else rows.drop(*(name for name in rows.columns if name not in visible_of(rows.columns)))
        schema = nullable(given.schema)
        self.require_whole()
        self.check(schema)
        wanted = stored_columns(schema.jsonValue())
        with self._reading("prepared") as catalog:
            table = load(catalog, self._table) or self._created(catalog, wanted)
            self._data = table.location_provider().data_path
            fields = partitions_of(table)
        parted, apart = split(given, fields)
        files = write_folder(parted, self.staging, self.staging_folder(staging), compression=_COMPRESSION, apart=apart)
        with self._reading("prepared"):
            data_files(table, staged_transaction(table, wanted), [f"{self._data}/{file.path}" for file in files])
        counts = changes_options(changed.emitted(files, self.name), changed.counts) if changed is not None else {}
        return record_of(self, schema, files, {DATA: self._data, **counts})

    def publish(self, record: OutputRecord, lineage: str, epoch: int) -> None:
        """Commit the staged files with the epoch's property, unless the table has it."""
        if record.schema is None:
            return
        error, number = self._tried(record, lineage, epoch), 1
        while isinstance(error, IcebergError) and (error.conflict or error.unknown) and number < _ATTEMPTS:
            self._clock.sleep(_WAIT_SECONDS * min(number, 10))
            error, number = self._tried(record, lineage, epoch), number + 1
        if error is None:
            self.held = self.position_at(lineage, epoch)
            crash_point("iceberg-committed")
            return
        raise self.unpublished(_what(error), epoch, causes="connection, space, permission, or a change of the table's columns") from None

    def _tried(self, record: OutputRecord, lineage: str, epoch: int) -> IcebergError | StoreError | OSError | None:
        """Publish the epoch unless the table has it, in one attempt; return why it failed."""
        try:
            self._publish(record, lineage, epoch)
        except (IcebergError, StoreError, OSError) as error:
            return error
        return None

    def _publish(self, record: OutputRecord, lineage: str, epoch: int) -> None:
        with catalog_of(self._table) as catalog:
            table = load(catalog, self._table)
            known = self._ledger.lineage(table, lineage) if table is not None else None
            if known is not None and known.epoch >= epoch:
                return
            self._require_whole(table)
            base = record.options[DATA]
            if not JobStore.open(base).exists(record.files[0].path):
                raise staged_files_lost(self.name, self.owner.job, self.location, epoch)
            wanted = stored_columns(json.loads(record.schema or "{}"))
            found = table or self._created(catalog, wanted)
            files = [f"{base}/{file.path}" for file in record.files]
            append(found, self._ledger, lineage, epoch, wanted=wanted, files=files, texts=self._texts)

    def check(self, schema: StructType) -> None:
        """Raise SinkError when the table cannot take rows of this type."""
        text = schema.json()
        if text == self._checked:
            return
        wanted = stored_columns(json.loads(text))
        require_types(wanted, self.name)
        with self._reading("checked") as catalog:
            table = load(catalog, self._table)
            blank = table is not None and self._ledger.is_blank(table)
            findings = () if table is None or blank else self._findings(table, wanted)
        if blank:
            self.create(schema)
        self.require_fit(findings)
        self._checked = text

    def _findings(self, table: Table, wanted: Columns) -> Sequence[Finding]:
        return table_findings(table, wanted, self._partition_by, own=self._ledger.owns(table))

    @property
    def occupancy(self) -> Occupancy:
        """Whether there is no table yet, or one without rows that this output has created."""
        with self._reading("read") as catalog:
            table = load(catalog, self._table)
            if table is None:
                return "missing"
            return "empty" if self._ledger.is_blank(table) else "taken"

    def create(self, schema: StructType) -> None:
        """Create the table, without rows; one that this output created, and that never had rows, gets these columns.

        Raises:
            SinkError: it cannot be created.
            StoreError: the catalog cannot be reached.
        """
        wanted = stored_columns(json.loads(schema.json()))
        require_types(wanted, self.name)
        with self._reading("created") as catalog:
            table = load(catalog, self._table)
            if table is not None:
                if not self._ledger.is_blank(table) or not self._findings(table, wanted):
                    return
                # A driver that was taken over must not drop what the newer one has begun to fill.
                self.owner.confirm()
                catalog.drop_table(self._table.name)
            self._created(catalog, wanted)
        crash_point("table-created")

    def _created(self, catalog: Catalog, wanted: Columns) -> Table:
        from pyiceberg.exceptions import NoSuchNamespaceError, TableAlreadyExistsError

        schema = iceberg_schema(wanted, self.name, self._texts)
        properties = {**NEW_TABLE, **self._texts.properties, **self._ledger.created()}
        try:
            return catalog.create_table(self._table.name, schema, None, partition_spec(self._partition_by, schema), properties=properties)
        except TableAlreadyExistsError:
            return catalog.load_table(self._table.name)
        except NoSuchNamespaceError:
            raise SinkError(
                f"the catalog {self._table.catalog!r} has no namespace {self._table.namespace!r}",
                fix=f"create it: pyiceberg --catalog {self._table.catalog} create namespace {self._table.namespace}",
                uid=self.name,
                place=self.location,
            ) from None

    def require_whole(self) -> None:
        """Raise MissingEpochsError when the table was deleted, rolled back, or is an older copy that lacks published epochs."""
        with self._reading("checked") as catalog:
            self._require_whole(load(catalog, self._table))

    def _require_whole(self, table: Table | None) -> None:
        known = self.known
        self.require_held(self._lost(table, known) if known.epoch >= 0 else None)

    def _lost(self, table: Table | None, known: SinkPosition) -> str | None:
        """Return why the table does not hold a known epoch, None where it does."""
        return "there is no table any more" if table is None else self._ledger.lost(table, known.lineage, known.epoch)

    def adopt(self) -> None:
        """Accept the table as it is, with the epochs that it has."""
        known = self.known
        with self._reading("read") as catalog:
            table = load(catalog, self._table)
            epoch = -1 if table is None else self._shown(table, known.lineage)
        self.held = self.position_at(known.lineage, min(epoch, known.epoch))

    def _shown(self, table: Table, lineage: str) -> int:
        """Return the newest epoch of a lineage that the table shows: by its properties, if all snapshots that could show it are expired."""
        shown = self._ledger.shown(table, lineage)
        if shown.epoch >= 0 or shown.complete:
            return shown.epoch
        known = self._ledger.lineage(table, lineage)
        return known.held if known is not None else -1

    def missing(self, retained: Retained) -> tuple[EpochRecord, ...]:
        """Return the retained epochs that the table does not show."""
        with self._reading("read") as catalog:
            table = load(catalog, self._table)
            if table is None:
                return retained.records
            newest = {lineage: self._shown(table, lineage) for lineage in {record.lineage for record in retained.records}}
        return tuple(record for record in retained.records if record.epoch > newest[record.lineage])

    def newest(self, lineage: str) -> int | None:
        """Return the newest epoch of a lineage that was published, None where there is none."""
        with self._reading("read") as catalog:
            table = load(catalog, self._table)
            found = self._ledger.lineage(table, lineage) if table is not None else None
        return None if found is None else found.epoch

    def _cannot_republish(self) -> MissingEpochsError:
        return MissingEpochsError(
            f"the missing epochs of output {self.name!r} are not published again to a table of Iceberg",
            fix="roll the table forward to the snapshot that had them (set_current_snapshot), or restore a backup of the catalog; rewind "
            f"the job to where the table is (`tidemark rewind {self.owner.job} --to SAVEPOINT`); or continue without those epochs "
            "(`--missing-epochs accept`), which the job's log keeps; nothing was changed",
            job=self.owner.job,
            uid=self.name,
            place=self.location,
        )

    @contextmanager
    def _reading(self, how: str) -> Iterator[Catalog]:
        """Run the block with the catalog, before anything is committed to the job's log.

        Raises:
            StoreError: the catalog, or a file, cannot be reached.
            SinkError: it refuses an operation.
        """
        try:
            with catalog_of(self._table) as catalog:
                yield catalog
        except IcebergError as error:
            what = f"the table of output {self.name!r} cannot be {how}: {error.what}"
            if error.lost:
                fix = "check that the catalog runs and can be reached from this machine, and start the job again"
                raise StoreError(what, fix=fix, uid=self.name, place=self.location) from None
            fix = "correct the catalog's configuration, give its user the permissions that are missing, or write to another table"
            raise SinkError(what, fix=fix, uid=self.name, place=self.location) from None


def _what(error: IcebergError | StoreError | OSError) -> str:
    return str(error) if isinstance(error, OSError) else error.what

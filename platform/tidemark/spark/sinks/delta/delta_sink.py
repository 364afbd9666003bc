"""Delta tables: Spark writes the Parquet files, ``deltalake`` commits them. Exactly once.

Each commit carries the application transaction (lineage/output, epoch); an epoch whose transaction the table has is skipped. Columns
that the table lacks are added in the version just before: ``deltalake`` does not commit rows and columns together.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Literal

from deltalake import CommitProperties, DeltaTable, Schema, Transaction
from deltalake.exceptions import DeltaError, TableNotFoundError
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from tidemark.crashpoints import crash_point
from tidemark.errors import PublishError, SinkError, StoreError, TidemarkError
from tidemark.locations import Location
from tidemark.savepoints.delta.delta_log_damage import damaged_entry, require_no_empty_entry, unreadable
from tidemark.savepoints.delta.missing_records import Retained
from tidemark.savepoints.delta.result_tables import check_table, is_blank
from tidemark.savepoints.model.stored_types import stored_columns
from tidemark.savepoints.model.table_columns import lists_starts
from tidemark.savepoints.model.verdict import incompatible_outputs_error
from tidemark.spark.columns.error_text import first_line
from tidemark.spark.sinks.delta.delta_commits import add_actions, add_columns, append
from tidemark.spark.sinks.delta.delta_descriptions import TableTexts
from tidemark.spark.sinks.delta.delta_few_rows import FewRowsRewriter
from tidemark.spark.sinks.delta.delta_lost_files import leave_out_lost
from tidemark.spark.sinks.delta.delta_maintenance import NEW_TABLE, Maintenance
from tidemark.spark.sinks.delta.delta_merge import ATTEMPTS, Merge, commit_conflict
from tidemark.spark.sinks.delta.delta_position import DeltaPosition
from tidemark.spark.sinks.delta.delta_republish import Republishing
from tidemark.spark.sinks.delta.delta_rewrite import APPENDED_BYTES, UPSERTED_BYTES, Change, Rewriter
from tidemark.spark.sinks.delta.delta_types import require_delta_types
from tidemark.spark.sinks.delta.delta_upsert import Upsert, replaced_starts
from tidemark.spark.sinks.staging.missing import Expected, staged_files_lost
from tidemark.spark.sinks.staging.staging import Occupancy, folder_of
from tidemark.state.delta.delta_tags import COLUMNS_FOR, CREATED, EPOCH, JOB, LINEAGE, LOST_FILES, MAINTENANCE
from tidemark.state.encoding.redaction import without_secrets
from tidemark.state.log.records import EpochRecord, OutputRecord, SinkPosition
from tidemark.state.store.store import JobStore

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

logger = logging.getLogger("tidemark")


class DeltaSink:
    """One table.

    An epoch's record takes precedence over the job's current options: an epoch is published as it was staged.

    Args:
        name: of the output.
        path: of the table, local or of an object store.
        upsert: how rows replace older ones, None where all are added.
        rewriter: of the table's files, Spark's if there is none.
        own: whether the output went to this table in an earlier epoch; then the table follows the columns of its rows.
        job: whose output it is; commits say so, since several jobs may write to one table.
        maintained: whether the table is maintained after a publication, for which Spark is needed.
        texts: descriptions of the table and its columns, which it gets when it is created, else after this process's first publication.
    """

    kind = "delta"

    def __init__(
        self,
        name: str,
        path: str,
        upsert: Upsert | None = None,
        rewriter: Rewriter | None = None,
        *,
        own: Callable[[], bool] = lambda: False,
        job: str = "",
        maintained: bool = True,
        texts: TableTexts | None = None,
    ) -> None:
        self._name = name
        self._texts = texts or TableTexts()
        self._described = False
        self._maintained = maintained
        self._location = Location.parse(path)
        self._table: DeltaTable | None = None
        self._checked: str | None = None
        self.starts_only = False
        self._own = own
        self._job = {JOB: job} if job else {}
        self.upsert = upsert
        self.staging = JobStore.open(self._location)
        self._rewriter = rewriter or FewRowsRewriter(self.staging, APPENDED_BYTES if upsert is None else UPSERTED_BYTES)
        self._maintenance = Maintenance(name, self.staging, self._rewriter)
        self._at = DeltaPosition(name, job, self.staging, self._opened)
        self._republishing = Republishing(name, job, self.staging, self._rewriter)

    def protect_versions(self, versions: frozenset[int] | None) -> None:
        """Set which versions of the table savepoints need; None where that is not known: then nothing old is deleted."""
        self._maintenance.protected_versions = versions

    @property
    def location(self) -> str:
        """The table's path."""
        return str(self._location)

    @property
    def position(self) -> SinkPosition | None:
        """The table's position when it was last checked, None before that."""
        return self._at.known

    def expect(self, expected: Expected) -> None:
        """Set what the job's log knows of the table."""
        self._at.expect(expected)

    def require_whole(self) -> None:
        """Raise MissingEpochsError when the table no longer holds what was published to it."""
        try:
            self._at.require_whole()
        except (DeltaError, OSError) as error:
            self._table = None
            raise StoreError(
                f"the Delta table of output {self._name!r} cannot be checked: {first_line(error)}",
                fix="check access to the table's place (network, permission), and start the job again",
                uid=self._name,
                place=self.location,
            ) from without_secrets(error)

    def adopt(self) -> None:
        """Accept the table as it is; entries of deleted files are removed from it, since no reader could read it with them."""
        with self._repairing("taken as it is"):
            table = self._opened(fresh=True)
            if table is not None and not leave_out_lost(table, self.staging, {**self._job, MAINTENANCE: LOST_FILES}):
                raise commit_conflict(self._name, None, self.location)
            self._at.adopt()

    def missing(self, retained: Retained) -> tuple[EpochRecord, ...]:
        """Return the retained epochs that the table does not show, according to its log."""
        try:
            return self._republishing.missing(self._opened(fresh=True), retained, self._at.known)
        except (DeltaError, OSError, TidemarkError) as error:
            text = "output %r: cannot tell which epochs are missing in its table at %s: %s"
            logger.warning(text, self._name, self.location, first_line(error))
            return ()

    def require_republishable(self, retained: Retained) -> None:
        """Raise MissingEpochsError when retained epochs that the table no longer holds cannot be published again."""
        with self._repairing():
            self._republishing.due(self._opened(fresh=True), retained, self._at.known)

    def republish(self, retained: Retained) -> tuple[int, ...]:
        """Publish again the retained epochs that the table no longer holds; returns the numbers of all that were since it was whole."""
        with self._repairing():
            epochs = self._republishing.run(self._opened(fresh=True), retained, self._at.known)
        newest = retained.records[-1]
        self._at.adopt((newest.lineage, newest.epoch))
        return epochs

    @contextmanager
    def _repairing(self, how: str = "published again") -> Iterator[None]:
        try:
            yield
        except (DeltaError, OSError, PySparkException, Py4JError) as error:
            self._table = None
            raise PublishError(
                f"output {self._name!r} could not be {how}: {first_line(error)}",
                fix="repair the table's place (space, permission, network) and run the same command again: it resumes where it stopped",
                uid=self._name,
                place=self.location,
            ) from without_secrets(error)

    def staging_folder(self, name: str) -> str:
        """Return a folder inside the table; Delta's readers see only files that the log names."""
        return f"tidemark-{name}"

    def check(self, schema: StructType) -> None:
        """Raise SinkError when rows cannot be identified by their keys, or do not fit the table, which changes only at publication."""
        text = schema.json()
        if text == self._checked:
            return
        require_delta_types(schema, self._name)
        if self.upsert is not None:
            self.upsert.require_keys(schema, self._name)
        table = self._open()
        if table is not None and self._is_blank(table):
            self.create(schema)
        elif table is not None:
            self._require_fit(table, text)
        self._checked = text

    @property
    def occupancy(self) -> Occupancy:
        """Whether there is no table yet, or one without rows that this job has made."""
        table = self._open()
        return "missing" if table is None else "empty" if self._is_blank(table) else "taken"

    def create(self, schema: StructType) -> None:
        """Create the table, without rows; one that this job created, and that never had rows, gets these columns.

        Raises:
            SinkError: it cannot be created, or rows cannot be identified by their keys.
        """
        require_delta_types(schema, self._name)
        if self.upsert is not None:
            self.upsert.require_keys(schema, self._name)
        table, wanted = self._open(), self._texts.commented(schema.json())
        if table is not None and (not self._is_blank(table) or table.schema() == wanted):
            return
        try:
            self._create(wanted, again=table is not None)
        except (DeltaError, OSError) as error:
            self._table = None
            raise SinkError(
                f"the Delta table of output {self._name!r} cannot be created: {first_line(error)}",
                fix="repair its place (space, permission, network), or write to another path",
                uid=self._name,
                place=self.location,
            ) from without_secrets(error)

    def _is_blank(self, table: DeltaTable) -> bool:
        return is_blank(table, self.location, self._job.get(JOB, ""))

    def _require_fit(self, table: DeltaTable, text: str) -> None:
        wanted = stored_columns(json.loads(text))
        keys = self.upsert.keys if self.upsert is not None else None
        self.starts_only = lists_starts(wanted, stored_columns(json.loads(table.schema().to_json())))
        found = check_table(self._name, table, self.location, wanted, keys=keys, own=self._own)
        if not found.fits:
            raise incompatible_outputs_error([found])
        for finding in found.findings:
            logger.info("output %r: %s", self._name, finding.text())

    def publish(self, record: OutputRecord, lineage: str, epoch: int) -> None:
        """Commit the staged files with the epoch's transaction, unless the table has it; then maintain the table.

        Raises:
            MissingEpochsError: the table no longer holds what was published before; nothing was committed to it.
            PublishError: it cannot be published now.
        """
        if record.schema is None:
            return
        upsert = Upsert.of_options(record.options)
        metadata = {**self._job, LINEAGE: lineage, EPOCH: str(epoch)}
        columns_for = {MAINTENANCE: "columns", COLUMNS_FOR: f"{lineage}/{epoch}"}
        try:
            self._at.require_whole()
            self._at.require_newest_files()
            self._require_staged(record, lineage, epoch)
            table = self._open() or self._create(self._texts.commented(record.schema))
            if upsert is None:
                self._append(table, record, Transaction(self._application(lineage), epoch), metadata, columns_for)
            else:
                change = Change(upsert, record.schema, record.files, replaced_starts(record.options))
                merge = Merge(self._name, change, folder_of(record), self._application(lineage), epoch, metadata, columns_for)
                merge.publish(table, self.staging, self._rewriter)
        except (DeltaError, OSError, StoreError, PySparkException, Py4JError) as error:
            self._table = None
            entry = damaged_entry(self.location)
            what = first_line(error) if entry is None else f"entry {entry} of its log is damaged"
            raise PublishError(
                f"output {self._name!r} of a committed epoch could not be published: {what}",
                fix="repair the table's place (space, permission, network) and start the job again: it finishes this epoch first",
                uid=self._name,
                epoch=epoch,
                place=self.location,
            ) from without_secrets(error)
        if self._maintained:
            self._maintain(table, record)
        self._describe(table)
        self._note(table, lineage, epoch)

    def _require_staged(self, record: OutputRecord, lineage: str, epoch: int) -> None:
        """Make sure that an epoch which the table does not show has its staged files; they lie in the table's folder."""
        done = self.newest(lineage)
        if (done is None or done < epoch) and not self.staging.exists(record.files[0].path):
            raise staged_files_lost(self._name, self._job.get(JOB, ""), self.location, epoch)

    def _note(self, table: DeltaTable, lineage: str, epoch: int) -> None:
        """Update the table's position after publication; where that fails, the next check does it."""
        try:
            self._at.published(table, lineage, epoch)
        except (DeltaError, OSError, TidemarkError) as error:
            self._table = None
            logger.warning("output %r: its table's position is determined later: %s", self._name, first_line(error))

    def _append(
        self,
        table: DeltaTable,
        record: OutputRecord,
        transaction: Transaction,
        metadata: Mapping[str, str],
        columns_for: Mapping[str, str],
    ) -> None:
        for _ in range(ATTEMPTS):
            table.update_incremental()
            done = table.transaction_version(transaction.app_id)
            if done is not None and done >= transaction.version:
                return
            if add_columns(table, record.schema or "", columns_for):
                append(table, add_actions(record.files), table.schema(), transaction=transaction, metadata=metadata)
                return
        raise commit_conflict(self._name, transaction.version, self.location)

    def _maintain(self, table: DeltaTable, record: OutputRecord) -> None:
        """Maintain the table; a failure is logged, since the epoch is published already."""
        try:
            self._maintenance.after_publication(table, folder_of(record))
        except (DeltaError, OSError, TidemarkError, PySparkException, Py4JError) as error:
            self._table = None
            logger.warning("output %r: maintenance of its table is postponed: %s", self._name, first_line(error))

    def _describe(self, table: DeltaTable) -> None:
        """Give the table its texts, until it has all; a failure is logged, since the epoch is published already."""
        if self._described:
            return
        self._described = True
        try:
            self._texts.describe(table, self._job)
            # The first epoch may be one that older code staged: what it lacks is described when it is there.
            self._described = self._texts.columns.keys() <= {column.name for column in table.schema().fields}
        except (DeltaError, OSError) as error:
            self._table = None
            logger.warning("output %r: descriptions of its table are not up to date: %s", self._name, first_line(error))

    def newest(self, lineage: str) -> int | None:
        """Return the newest epoch of a lineage in the table's transactions, None where there is none.

        Raises:
            SinkError: the table cannot be read.
        """
        table = self._open()
        return None if table is None else table.transaction_version(self._application(lineage))

    def visible_files(self) -> frozenset[str]:
        """Return the files of the table's newest version.

        Raises:
            SinkError: the table cannot be read.
        """
        table = self._open()
        if table is None:
            return frozenset()
        table.update_incremental()
        return frozenset(map(str, table.get_add_actions()["path"].to_pylist()))

    def _application(self, lineage: str) -> str:
        return f"{lineage}/{self._name}"

    def _opened(self, *, fresh: bool) -> DeltaTable | None:
        if fresh:
            self._table = None
        return self._open()

    def _open(self) -> DeltaTable | None:
        if self._table is None:
            try:
                table = DeltaTable(self._location.uri)
            except TableNotFoundError:
                return None
            except (DeltaError, OSError) as error:
                fix = "repair or move the table, or write to another path"
                raise unreadable(self._name, self.location, error, fix=fix) from without_secrets(error)
            require_no_empty_entry(self._name, self.location)
            self._table = table
        return self._table

    def _create(self, schema: Schema, *, again: bool = False) -> DeltaTable:
        properties = CommitProperties(custom_metadata={**self._job, MAINTENANCE: CREATED})
        mode: Literal["overwrite", "ignore"] = "overwrite" if again else "ignore"
        self._table = DeltaTable.create(
            self._location.uri,
            schema,
            mode=mode,
            description=self._texts.description or None,
            configuration=NEW_TABLE,
            commit_properties=properties,
        )
        crash_point("table-created")
        return self._table

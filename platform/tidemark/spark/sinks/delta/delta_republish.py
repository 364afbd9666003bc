"""Republishing epochs that a Delta table no longer holds: from their records, while their staged files exist."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache

from deltalake import DeltaTable, Transaction

from tidemark.crashpoints import crash_point
from tidemark.errors import MissingEpochsError
from tidemark.savepoints.delta.missing_records import Retained, epochs_to_republish, missing_of
from tidemark.savepoints.delta.table_changes import ShownEpochs, shown_epochs
from tidemark.savepoints.delta.table_entries import read_entry
from tidemark.savepoints.delta.table_position import is_continued
from tidemark.spark.sinks.delta.delta_commits import add_actions, add_columns, rewrite
from tidemark.spark.sinks.delta.delta_lost_files import lost_files
from tidemark.spark.sinks.delta.delta_merge import ATTEMPTS, Merge, commit_conflict
from tidemark.spark.sinks.delta.delta_rewrite import Change, Rewriter
from tidemark.spark.sinks.delta.delta_upsert import Upsert, replaced_starts
from tidemark.spark.sinks.staging.staging import folder_of
from tidemark.state.delta.delta_tags import COLUMNS_FOR, EPOCH, JOB, LINEAGE, MAINTENANCE, REPUBLISHED
from tidemark.state.log.records import EpochRecord, OutputRecord, SinkPosition
from tidemark.state.store.store import JobStore


class Republishing:
    """Publishes epochs again to one table.

    Args:
        output: its name.
        job: the job's.
        store: at the table.
        rewriter: of the table's files.
    """

    def __init__(self, output: str, job: str, store: JobStore, rewriter: Rewriter) -> None:
        self._output = output
        self._job = job
        self._store = store
        self._rewriter = rewriter

    def run(self, table: DeltaTable | None, retained: Retained, position: SinkPosition | None) -> tuple[int, ...]:
        """Publish missing epochs, oldest first, each as one version; returns all that were published again since the table was whole.

        After an interruption the same command continues: the table's log tells what is still missing.

        Args:
            table: None where there is none.
            retained: the epochs that it should show.
            position: of the table, as the job's log knows it.

        Raises:
            MissingEpochsError: it is unknown what is missing, or staged files are not there; nothing was changed.
            PublishError: other writers' commits came first each time; what was published stays.
        """
        seen = self._seen(position)
        records = self.due(table, retained, position)
        if table is None:
            return ()
        for record in records:
            self._publish(table, record)
            crash_point("output-republished")
        table.update_incremental()
        again = self._shown(table, seen).again
        return tuple(record.epoch for record in retained.records if again.get((record.lineage, record.epoch), -1) > seen)

    def due(self, table: DeltaTable | None, retained: Retained, position: SinkPosition | None) -> tuple[EpochRecord, ...]:
        """Return the epochs to publish again, oldest first; none where the table shows all. Takes and raises what ``run`` does."""
        if table is None:
            raise self._refused("there is no table any more, and the staged files were in its folder")
        deleted = lost_files(table, self._store)
        if deleted:
            why = (
                f"{len(deleted)} of the files that its table shows are deleted, such as {deleted[0].path}, and nothing else has their rows"
            )
            raise self._refused(why)
        shown = self._shown(table, self._seen(position))
        replaces = any(self._replaces(record) for record in retained.records)
        records, refusal = epochs_to_republish(retained, shown, in_order=replaces)
        if refusal:
            raise self._refused(refusal)
        for record in records:
            if not self._replaces(record) and (record.lineage, record.epoch) in shown.epochs:
                why = "is shown, its rows have no key, and rows of missing epochs before it would replace some of them"
                raise self._refused(f"epoch {record.epoch} {why}")
        for record in records:
            lost = [file.path for file in record.outputs[self._output].files if not self._store.exists(file.path)]
            if lost:
                raise self._refused(f"{len(lost)} of the files that were staged for epoch {record.epoch} are deleted, such as {lost[0]}")
        return records

    def missing(self, table: DeltaTable | None, retained: Retained, position: SinkPosition | None) -> tuple[EpochRecord, ...]:
        """Return the epochs that the table does not show, according to its log; the arguments are those of ``run``."""
        return retained.records if table is None else missing_of(retained, self._shown(table, self._seen(position)))

    def _replaces(self, record: EpochRecord) -> bool:
        return Upsert.of_options(record.outputs[self._output].options) is not None

    def _seen(self, position: SinkPosition | None) -> int:
        """Return the version that the job's log knows as whole, -1 where the table's log does not continue it."""
        return position.version if position is not None and is_continued(position, self._store) else -1

    def _publish(self, table: DeltaTable, record: EpochRecord) -> None:
        output, application = record.outputs[self._output], f"{record.lineage}/{self._output}"
        tags = {LINEAGE: record.lineage, EPOCH: str(record.epoch), REPUBLISHED: "true", **({JOB: self._job} if self._job else {})}
        columns_for = {MAINTENANCE: "columns", COLUMNS_FOR: f"{record.lineage}/{record.epoch}"}
        upsert = Upsert.of_options(output.options)
        if upsert is None:
            self._append(table, record, Transaction(application, record.epoch), tags, columns_for)
        else:
            change = Change(upsert, output.schema or "", output.files, replaced_starts(output.options))
            merge = Merge(self._output, change, folder_of(output), application, record.epoch, tags, columns_for, again=True)
            merge.publish(table, self._store, self._rewriter)

    def _append(
        self, table: DeltaTable, record: EpochRecord, wanted: Transaction, tags: Mapping[str, str], columns_for: Mapping[str, str]
    ) -> None:
        output: OutputRecord = record.outputs[self._output]
        for _ in range(ATTEMPTS):
            table.update_incremental()
            # An earlier attempt may have been committed although it seemed to fail.
            if (record.lineage, record.epoch) in self._shown(table).epochs:
                return
            done = table.transaction_version(wanted.app_id)
            transaction = Transaction(wanted.app_id, max(wanted.version, -1 if done is None else done))
            if add_columns(table, output.schema or "", columns_for) and rewrite(
                table, add_actions(output.files), table.schema(), transaction=transaction, metadata=tags
            ):
                return
        raise commit_conflict(self._output, record.epoch, str(self._store.location))

    def _shown(self, table: DeltaTable, seen: int = -1) -> ShownEpochs:
        entry_at: Callable[[int], object] = cache(lambda version: read_entry(self._store, version))
        return shown_epochs(entry_at, table.version(), job=self._job, seen=seen)  # type: ignore[arg-type]  # what a cache returns has no type

    def _refused(self, why: str) -> MissingEpochsError:
        return cannot_republish(self._output, self._job, str(self._store.location), why)


def cannot_republish(output: str, job: str, place: str, why: str) -> MissingEpochsError:
    """Return the error for epochs that cannot be published again."""
    return MissingEpochsError(
        f"the missing epochs of output {output!r} cannot be published again: {why}",
        fix=f"rewind the job to where the place is (`tidemark rewind {job or 'JOB'} --to SAVEPOINT`), restore the place from a "
        "backup, or continue without those epochs (`--missing-epochs accept`), which the job's log keeps; nothing was changed",
        job=job or None,
        uid=output,
        place=place,
    )

"""The epoch that a job resumes from: the newest of its log, or a savepoint's on request."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace

from tidemark.errors import CorruptStoreError, FormatError, MissingEpochsError, TidemarkError
from tidemark.graph.operators.changes import Names
from tidemark.savepoints.delta.folder_note import position_after
from tidemark.savepoints.delta.table_position import NO_TABLE, lost_of_record
from tidemark.savepoints.model.restore import Restore, RestoreTargets
from tidemark.savepoints.model.restore_history import is_restore_due, record_restore, renew_restore_entry
from tidemark.savepoints.model.rewind_journal import require_no_rewind
from tidemark.savepoints.restore.pending_restores import release_for
from tidemark.savepoints.restore.restoring import begin_lineage, prepare_restore
from tidemark.spark.loop.missing_epochs import expect_published, is_accepted, repair_outputs, sinks_of
from tidemark.spark.sinks.parquet_sink import ParquetSink
from tidemark.spark.sinks.publication import publish
from tidemark.spark.sinks.sinks import BoundSink, Sink
from tidemark.spark.sinks.staging.missing import missing_error
from tidemark.spark.sinks.staging.sink_owner import SinkOwner
from tidemark.state.gc.state_file_check import require_state_files
from tidemark.state.log.accepted_gaps import write_accepted
from tidemark.state.log.joblog import Driver
from tidemark.state.log.progress import MissingEpochs, OutputRepair, finished_text
from tidemark.state.log.records import EpochRecord, OutputRecord
from tidemark.state.status.status import read_status
from tidemark.state.store.store import JobStore

logger = logging.getLogger("tidemark")


@dataclass(frozen=True)
class Recovery:
    """Finds, or creates, the epoch that a job resumes from.

    Args:
        root: the root store.
        term: right to append to the job's log.
        sinks: of the job's outputs, by name.
        sources: names of the job's sources.
        uids: of the job's operators.
        migrate: returns an epoch with state that the job can resume from, or raises; its second argument are the new names of columns,
            as in ``Restore``.
        missing_epochs: how to treat epochs that an output's place no longer holds; None raises.
        repairs: of such places, by output; filled in by ``resume_point``.
        finished: lineage and number of an epoch that a driver committed without noting its publication; filled in by ``resume_point``.
    """

    root: JobStore
    term: Driver
    sinks: Mapping[str, BoundSink]
    sources: frozenset[str]
    uids: Collection[str]
    migrate: Callable[[EpochRecord, Mapping[str, Names]], EpochRecord]
    missing_epochs: MissingEpochs | None = None
    repairs: dict[str, OutputRepair] = field(default_factory=dict)
    finished: set[tuple[str, int]] = field(default_factory=set)

    def resume_point(self, restore: Restore | None = None) -> EpochRecord | None:
        """Return the epoch to resume from, published and compatible with the job; None before the first.

        Args:
            restore: the savepoint to resume from; a restore that was done already is not done again.

        Raises:
            StateMismatchError: stored state is not that of the job's operators.
            PublishError: the newest committed epoch cannot be published.
            RewindError: a rewind of the job is not finished.
            UnknownSavepointError: there is no such savepoint.
            CorruptStoreError: a state file is missing.
            MissingEpochsError: an output's place no longer holds what was published to it.
        """
        log, head = self.term.log, self.term.last
        require_no_rewind(log.store, log.job)
        if restore is not None and is_restore_due(log.store, head, restore):
            return self._restored(restore)
        record_restore(log.store, head)
        if restore is not None:
            renew_restore_entry(log.store, restore.identity)
            # A crash may have come between the restore and this.
            release_for(self.root, log.job, restore)
        if head is not None:
            require_state_files(log.store, head)
            self._publish(head)
            return self.migrate(head, {})
        return head

    def _restored(self, restore: Restore) -> EpochRecord:
        savepoint, record = prepare_restore(self.root, self.term, restore, targets=RestoreTargets(self.uids, self.sources))
        record = self.migrate(record, restore.columns)
        last = self.term.last
        if last is not None:
            # A committed epoch is published even if the job no longer resumes from it.
            try:
                self._publish(last)
            except TidemarkError as error:
                if (last.lineage, last.epoch) == (savepoint.record.lineage, savepoint.record.epoch):
                    raise
                logger.warning("epoch %d, which the job no longer resumes from, is not published: %s", last.epoch, error)
        if savepoint.job == record.job:
            record = replace(record, outputs=self._current_positions(savepoint.record, record))
        if self.repairs:
            write_accepted(self.term.log.store, record, self.repairs)
        begun = begin_lineage(self.term, restore, savepoint, record)
        logger.info("%s resumes from %s, as lineage %s", begun.job, savepoint, begun.lineage)
        return begun

    def _publish(self, head: EpochRecord) -> None:
        """Publish the newest epoch, after checking that the places hold all epochs before it."""
        log = self.term.log
        unnoted = self._is_unnoted(head)
        former = {
            name: sink for name, sink in sinks_of(head, self.sinks, SinkOwner.of(self.term)).items() if sink is not self.sinks.get(name)
        }
        for sinks in (self.sinks, former):
            expect_published(head, sinks, log)
        # An output's former place is another entry under its name.
        self.repairs.update(repair_outputs(head, [*former.items(), *self.sinks.items()], log, self.missing_epochs))

        def accepted(name: str, error: MissingEpochsError) -> None:
            known = self.repairs.get(name)
            if self.missing_epochs != "accept" and not is_accepted(error, known):
                raise error
            before = known.accepted if known is not None else ()
            self.repairs[name] = OutputRepair.of_gap(head.epoch + 1, error.what, [*sorted(before), (head.lineage, head.epoch)])
            write_accepted(log.store, head, self.repairs)
            logger.warning("%s", self.repairs[name])

        publish(head, {**self.sinks, **former}, lost=accepted)
        if unnoted:
            self.finished.add((head.lineage, head.epoch))
            logger.info("%s: %s", head.job, finished_text(head.progress))

    def _is_unnoted(self, head: EpochRecord) -> bool:
        """Return whether the last driver committed an epoch and ended before its status had it, which is written after the publication."""
        try:
            known = read_status(self.root, self.term.log.job)
        except (CorruptStoreError, FormatError):
            return False
        return known is not None and (known.last is None or (known.last.lineage, known.last.epoch) != (head.lineage, head.epoch))

    def _current_positions(self, stored: EpochRecord, begun: EpochRecord) -> dict[str, OutputRecord]:
        """Return the outputs that a lineage begins with, at the current positions of their places, which a restore leaves as they are.

        Raises:
            MissingEpochsError: a place does not hold what the savepoint's epoch and those before it published.
        """
        found = {}
        for name, output in begun.outputs.items():
            bound = self.sinks.get(name)
            if bound is None or not bound.accepts(output):
                found[name] = output
                continue
            self._require_folder(name, bound.sink, stored, begun)
            lost = lost_of_record(stored, name) if output.sink == "delta" else None
            if lost is not None:
                error = missing_error(name, begun.job, str(output.location), stored.outputs[name].before or NO_TABLE, lost)
                if self.missing_epochs is None:
                    raise error
                self.repairs.setdefault(name, OutputRepair("accepted", begun.epoch + 1, error.what))
            bound.sink.adopt()
            found[name] = replace(output, before=bound.sink.position)
        return found

    def _require_folder(self, name: str, sink: Sink, stored: EpochRecord, begun: EpochRecord) -> None:
        """Make sure that a folder of files holds all up to a savepoint's epoch; an accepted gap is recorded."""
        position = position_after(stored, name)
        if not isinstance(sink, ParquetSink) or position is None or position.epoch < 0:
            return
        try:
            sink.require_whole_since(position)
        except MissingEpochsError as error:
            if self.missing_epochs != "accept":
                raise error.with_job(begun.job) from None
            self.repairs.setdefault(name, OutputRepair("accepted", begun.epoch + 1, error.what))

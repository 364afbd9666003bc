"""Where a job goes on: after the newest epoch of its log, or from a savepoint, when that is asked for."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from tidemark.errors import TidemarkError
from tidemark.graph.definition_changes import Names
from tidemark.savepoints.restore import Claimed, Restore
from tidemark.savepoints.restore_marks import is_due, note_restored, renew_mark
from tidemark.savepoints.restoring import begin_lineage, prepared
from tidemark.savepoints.rewind_note import require_no_rewind
from tidemark.savepoints.wished_restores import let_go_for
from tidemark.spark.publication import publish
from tidemark.spark.sinks import BoundSink
from tidemark.state.inventory import require_state_files
from tidemark.state.joblog import Driver
from tidemark.state.records import EpochRecord
from tidemark.state.store import JobStore

logger = logging.getLogger("tidemark")


@dataclass(frozen=True)
class Beginning:
    """Finds, or makes, the epoch that a job goes on from.

    Args:
        root: the root store.
        term: right to append to the job's log.
        sinks: of the job's outputs, by name.
        sources: names of the job's sources.
        uids: of the job's operators.
        fitted: returns an epoch with its state as the job can go on from it, raises where it cannot; its second argument are the new
            names of columns, as ``Restore`` has them.
    """

    root: JobStore
    term: Driver
    sinks: Mapping[str, BoundSink]
    sources: frozenset[str]
    uids: Collection[str]
    fitted: Callable[[EpochRecord, Mapping[str, Names]], EpochRecord]

    def head(self, restore: Restore | None = None) -> EpochRecord | None:
        """Return the epoch to go on from, published and fit for the job; None at the very beginning.

        Args:
            restore: from which savepoint to go on; one that was made already is not made again.

        Raises:
            StateMismatchError: stored state is not that of the job's operators.
            PublishError: the newest committed epoch cannot be published.
            RewindError: a rewind of the job is half done.
            UnknownSavepointError: there is no such savepoint.
            CorruptStoreError: a state file is missing.
        """
        log, head = self.term.log, self.term.last
        require_no_rewind(log.store, log.job)
        if restore is not None and is_due(log.store, head, restore):
            return self._restored(restore)
        note_restored(log.store, head)
        if restore is not None:
            renew_mark(log.store, restore.identity)
            # A crash may have come between the restore and this.
            let_go_for(self.root, log.job, restore)
        if head is not None:
            require_state_files(log.store, head)
            publish(head, self.sinks)
            return self.fitted(head, {})
        return head

    def _restored(self, restore: Restore) -> EpochRecord:
        savepoint, record = prepared(self.root, self.term, restore, claimed=Claimed(self.uids, self.sources))
        record = self.fitted(record, restore.columns)
        last = self.term.last
        if last is not None:
            # What is committed is shown, also where the job no longer goes on from it.
            try:
                publish(last, self.sinks)
            except TidemarkError as error:
                if (last.lineage, last.epoch) == (savepoint.record.lineage, savepoint.record.epoch):
                    raise
                logger.warning("epoch %d, which the job does not go on from any more, is not published: %s", last.epoch, error)
        begun = begin_lineage(self.term, restore, savepoint, record)
        logger.info("%s goes on from %s, as lineage %s", begun.job, savepoint, begun.lineage)
        return begun

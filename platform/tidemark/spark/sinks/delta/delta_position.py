"""Checks that a Delta table holds what a job published to it: before rows are staged, before they are published, and after.

The log entry of the version that was seen last must be unchanged; only the log's newer entries are read.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Protocol

from deltalake import DeltaTable

from tidemark.errors import SinkError
from tidemark.savepoints.delta.table_entries import read_entry
from tidemark.savepoints.delta.table_position import LostEpochs, follow_log, is_continued, lost_at_once, position_of
from tidemark.spark.sinks.delta.delta_lost_files import lost_files, lost_of
from tidemark.spark.sinks.staging.missing import Expected, OutputPosition, data_files_lost
from tidemark.state.log.records import SinkPosition
from tidemark.state.store.store import JobStore

logger = logging.getLogger("tidemark")


class Opened(Protocol):
    """Opens a table."""

    def __call__(self, *, fresh: bool) -> DeltaTable | None:
        """Return it, None where there is none."""
        ...


class DeltaPosition(OutputPosition):
    """One output's table position, as far as the job knows.

    Args:
        output: its name.
        job: the job's name.
        store: at the table.
        opened: returns the table, None where there is none; ``fresh`` ignores a cached one.
    """

    def __init__(self, output: str, job: str, store: JobStore, opened: Opened) -> None:
        super().__init__(output, job, store)
        self._opened = opened
        self._all_seen = False

    def require_whole(self) -> None:
        """Make sure that the table holds what was published to it, and check other writers' changes since.

        Raises:
            MissingEpochsError: it does not.
            SinkError: the table cannot be read.
            StoreError: its log cannot be read.
        """
        try:
            self._checked_table()
            if not self._all_seen and self.known is not None and self.known.since >= 0:
                # Once per process: files deleted while no driver ran may belong to any epoch.
                self._require_files(lambda table: [file.path for file in lost_files(table, self.store)])
            self._all_seen = True
        except SinkError as error:
            # The reader of an entry does not know whose table it is.
            error.uid = error.uid or self.output
            raise error.with_job(self.job) if self.job else error from error.__cause__

    def require_newest_files(self) -> None:
        """Make sure that the files of the newest epoch that the table shows exist; called before another epoch is published.

        Raises:
            MissingEpochsError: some do not.
            SinkError: the table cannot be read.
            StoreError: its place cannot be listed.
        """
        entry = read_entry(self.store, self.known.since) if self.known is not None and self.known.since >= 0 else None
        if entry is not None:
            self._require_files(lambda table: lost_of(entry.added, table, self.store))

    def _require_files(self, find_lost: Callable[[DeltaTable], list[str]]) -> None:
        table = self._opened(fresh=False)
        lost = find_lost(table) if table is not None else []
        if table is not None and lost:
            raise data_files_lost(self.output, self.job, str(self.store.location), table.version(), lost)

    def _checked_table(self) -> None:
        if self.known is None:
            self._begin()
            return
        known = self.known
        continued = is_continued(known, self.store)
        table = self._opened(fresh=continued is not True)
        if known.epoch < 0 and (table is None or continued is not True):
            # Nothing of the job's was there.
            self.known = position_of(table, self.store)
            return
        if continued is not True:
            lost = lost_at_once(known, table, f"{known.lineage}/{self.output}", continued=continued)
            if lost is not None:
                raise self.missing(known, lost)
        if table is not None:
            self._follow(known, table)

    def published(self, table: DeltaTable, lineage: str, epoch: int) -> None:
        """Update the position after an epoch was published; the table is at the newest version that this process knows of."""
        known = self.known
        if known is None or known.epoch < 0:
            # Until that version is known, the transaction is used.
            self.known, self.expected = None, Expected(newest=(lineage, epoch))
            self.known = position_of(table, self.store, lineage=lineage, epoch=epoch)
            return
        found = follow_log(known, table, self.store, job=self.job, on_change=self._log)
        # Where another writer came before the commit, the next check raises.
        if isinstance(found, SinkPosition):
            self.known = replace(found, lineage=lineage, epoch=epoch)

    def adopt(self, newest: tuple[str, int] | None = None) -> None:
        """Accept the table as it is: up to an epoch that was published again, or up to its transaction."""
        table, known = self._opened(fresh=True), self.known
        if newest is None:
            lineage, epoch = (known.lineage, known.epoch) if known is not None else self.expected.newest or ("", -1)
            done = table.transaction_version(f"{lineage}/{self.output}") if table is not None else None
            newest = lineage, min(epoch, -1 if done is None else done)
        self.known = position_of(table, self.store, lineage=newest[0], epoch=newest[1])

    def _begin(self) -> None:
        """Begin with a table of which the job's log, written by an earlier release, knows only the published epochs."""
        table, newest = self._opened(fresh=False), self.expected.newest
        if newest is None:
            self.known = position_of(table, self.store)
            return
        lineage, epoch = newest
        done = table.transaction_version(f"{lineage}/{self.output}") if table is not None else None
        if done is None or done < epoch:
            why = (
                "there is no table any more" if table is None else f"its newest transaction is of epoch {'none' if done is None else done}"
            )
            raise self.missing(SinkPosition(lineage=lineage, epoch=epoch), LostEpochs(-1 if table is None else table.version(), why))
        self.known = position_of(table, self.store, lineage=lineage, epoch=epoch)

    def _follow(self, known: SinkPosition, table: DeltaTable) -> None:
        table.update_incremental()
        found = follow_log(known, table, self.store, job=self.job, on_change=self._log)
        if isinstance(found, LostEpochs):
            raise self.missing(known, found)
        self.known = found

    def _log(self, change: str) -> None:
        text = "output %r: another writer changed rows that were published to %s: %s; the job continues"
        logger.warning(text, self.output, self.store.location, change)

"""Plans a source that captures changes of Postgres: reads what an epoch takes, and copies it to the job's folder."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final

from tidemark.clock import SYSTEM_CLOCK
from tidemark.crashpoints import crash_point
from tidemark.errors import SourceError
from tidemark.graph.model.nodes import SourceNode
from tidemark.graph.model.postgres_changes_spec import CapturedTable, PostgresChangesSpec
from tidemark.spark.sources.intake_limits import DEFAULT_CHANGES_PER_EPOCH
from tidemark.spark.sources.planning.source_planner import PlannedJob, Taken
from tidemark.spark.sources.postgres_changes.captured_files import read_rows, write_rows
from tidemark.spark.sources.postgres_changes.catalog import Catalog, Slot, StoredTable, own_name
from tidemark.spark.sources.postgres_changes.epoch_changes import LargeValues, ReadChanges, rows_in_order, seen_first, unread_values
from tidemark.spark.sources.postgres_changes.message_spool import MessageSpool
from tidemark.spark.sources.postgres_changes.messages import DecodeError, Relation
from tidemark.spark.sources.postgres_changes.partitions import Partitions
from tidemark.spark.sources.postgres_changes.positions import ChangesPosition, TableProgress, lsn_text
from tidemark.spark.sources.postgres_changes.publications import Publications
from tidemark.spark.sources.postgres_changes.server import ChangesServer, TablePart
from tidemark.spark.sources.postgres_changes.server_errors import RESTART
from tidemark.spark.sources.postgres_changes.transactions import Assembler, Change, Transaction

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

logger = logging.getLogger("tidemark")

EMPTY_BYTES: Final = 16 * 1024 * 1024
"""After so many bytes of the log without changes of the tables an epoch without rows moves the position, and with it the slot."""


_VISIBLE_LOOKS: Final = 40
_VISIBLE_SECONDS: Final = 0.05


class PostgresPlanner:
    """Plans one source.

    Args:
        spark: the session.
        source: that captures changes.
        job: the job.
        position: after the newest epoch, None before the first.

    Raises:
        SourceError: the server cannot be reached, or changes of the tables cannot be captured from there.

    Attributes:
        server: from which the changes come.
    """

    def __init__(self, spark: SparkSession, source: SourceNode, job: PlannedJob, position: object) -> None:
        self._spark = spark
        self._name = source.name
        self._job = job
        self._spec = _spec_of(source)
        self._most = self._spec.max_rows_per_epoch or DEFAULT_CHANGES_PER_EPOCH
        self.server = ChangesServer(source, self._spec)
        self._catalog = Catalog(self.server)
        self._publications = Publications(self.server)
        self._partitions = Partitions(self.server, snapshot=self._spec.snapshot)
        self._replayed = ChangesPosition.parse(job.planned.get(source.name))
        self._next: ReadChanges | None = None
        self._checked: set[Relation] = set()
        self._end: int | None = None
        self._rows = 0
        self._fence = 0
        self._has_more = False
        try:
            self._tables: Mapping[str, StoredTable] = {}
            self._position = self._open(ChangesPosition.parse(position))
        except BaseException:
            self.close()
            raise
        self._is_new = position is None
        self._caught_up = self._is_new
        self._covered = self._flushed = self._position.lsn

    def _open(self, stored: ChangesPosition | None) -> ChangesPosition:
        """Return the position to resume from; makes publication and slot where they are to be made."""
        catalog, spec, job = self._catalog, self._spec, self._job
        catalog.check_server()
        if stored is not None:
            self._require_same(stored)
        self._tables = catalog.tables()
        own = own_name(job.name, self._name, job.lineage)
        if stored is None:
            publication = self._publications.ready(own)
            name = spec.slot or own
            slot = catalog.slot(name)
            begin = catalog.create_slot(name).confirmed if slot is None else self._begin(name, slot)
            crash_point("slot-created")
            return self._fitted(ChangesPosition(job.name, name, publication, begin))
        if spec.publication is None:
            self._publications.require(
                stored.publication, {label: stored.tables[label] for label in self._tables if label in stored.tables}
            )
        position = replace(stored, slot=spec.slot or stored.slot, publication=self._publications.ready(stored.publication))
        if any(label not in stored.tables for label in self._tables):
            # What was written before a table was published is not among its changes: no part is read before those that wrote have ended,
            # and the slot is after them.
            self._fence = self.server.settled()
        catalog.require_whole(position.slot, catalog.slot(position.slot), position.lsn)
        self.server.advance(position.slot, position.lsn)
        return self._fitted(position)

    def _require_same(self, stored: ChangesPosition) -> None:
        """Make sure that a position is one of this job, this server and this publication."""
        if stored.job != self._job.name:
            raise self.server.error(f"its changes are read by job {stored.job!r}, from which this one was started: {RESTART}", RESTART)
        if self._spec.publication not in (None, stored.publication):
            raise self.server.error(
                f"its changes were read by publication {stored.publication!r}, and what {self._spec.publication!r} had since is not known",
                f"write publication={stored.publication!r}, or: {RESTART}",
            )
        self.server.identity = stored.server
        self._require_log(self.server.flushed(), stored.lsn)

    def _require_log(self, flushed: int, lsn: int) -> None:
        if flushed < lsn:
            raise self.server.error(
                f"the server's log ends at {lsn_text(flushed)}, and the job has read to {lsn_text(lsn)}: the server was set back", RESTART
            )

    def _begin(self, name: str, slot: Slot) -> int:
        """Return where to begin with a slot that exists; the rows of the snapshot have what was written before they are read.

        A plan that is to be replayed began with the slot as it is.
        """
        if not self._spec.snapshot or self._replayed is not None:
            return slot.confirmed
        begin = max(slot.confirmed, self.server.settled())
        self.server.advance(name, begin)
        return begin

    def _fitted(self, position: ChangesPosition) -> ChangesPosition:
        """Return a position with the progress of the tables that are captured now; a new one is read from its beginning."""
        found = {}
        for label, table in self._tables.items():
            known = position.tables.get(label, TableProgress(table.oid, done=not self._spec.snapshot))
            if known.oid != table.oid:
                raise self.server.error(f"table {label} was dropped and created again, and its changes are not known", RESTART)
            found[label] = known
        entries = self._publications.require(position.publication, found)
        self.server.flushed()
        tables = {label: replace(known, published=entries[label]) for label, known in found.items()}
        return self._partitions.noticed(replace(position, tables=tables, server=self.server.identity), self._tables)

    @property
    def has_unread(self) -> bool:
        """Whether an epoch is due: rows of tables or changes are left, a plan is to be replayed, or the beginning is to be recorded."""
        return self._replayed is not None or self._is_new or self._position.unfinished is not None or self._is_due(self._next)

    def look(self) -> None:
        """Read newer changes, where none are known to be unread.

        Raises:
            SourceError: they cannot be read, or change a table so that the source cannot read it.
        """
        if not self.has_unread:
            found = self._newer()
            self._next = found if self._is_due(found) else None

    def fix_end(self) -> None:
        """Let the source end with the transactions that are committed now."""
        self._end = self.server.flushed()

    def take(self, source: SourceNode, before: object) -> Taken | None:
        """Copy what the next epoch reads, and return it.

        Raises:
            SourceError: as ``look`` does.
            StoreError: it cannot be copied.
        """
        del before  # the position that it follows is known
        self._most = _spec_of(source).max_rows_per_epoch or self._most
        if self._replayed is not None:
            taken, self._replayed = self._replayed, None
            self._position = self._fitted(taken)
            self._is_new = False
            self._has_more = True
            return self._taken(taken, caught_up=False)
        changes, part = self._next_input()
        self._has_more = changes is not None and not changes.reached and self._is_due(changes)
        if part is None and not self._is_new and not self._is_due(changes):
            return None
        found = changes or ReadChanges((), self._position.lsn, reached=True)
        rows = rows_in_order(self._spec, found.transactions, self._large_values, part)
        files = write_rows(self._job.store, self._name, rows)
        position = replace(self._position, lsn=max(found.lsn, self._position.lsn), files=files)
        if part is not None:
            position = position.with_progress(part[0].label, self._progress_after(*part))
        self._position, self._is_new = position, False
        return self._taken(position, caught_up=found.reached and position.unfinished is None)

    def committed(self, position: object) -> None:
        """Move the slot on to the position of a committed epoch, and look for what that epoch left.

        Raises:
            SourceError: the server cannot be reached, or as ``look`` does.
        """
        read = ChangesPosition.parse(position)
        if read is not None and read.slot == self._position.slot:
            self.server.advance(read.slot, read.lsn)
            crash_point("slot-advanced")
        if self._has_more:
            self._has_more = False
            self.look()

    def metrics(self) -> Mapping[str, object]:
        """Return the rows of the last epoch, and how many bytes of the server's log are behind it that may have changes of the tables."""
        read = self._position.lsn if self._is_due(self._next) else max(self._position.lsn, self._covered)
        return {"numInputRows": self._rows, "metrics": {"numBytesOutstanding": str(max(self._flushed - read, 0))}}

    def close(self) -> None:
        """Close the connection."""
        self.server.close()

    def _taken(self, position: ChangesPosition, *, caught_up: bool) -> Taken:
        self._rows = sum(file.rows for file in position.files)
        read = partial(read_rows, self._spark, self._job.store, self._spec, position.files)
        return Taken(position.as_stored(), read=read, rows=self._rows, caught_up=caught_up)

    def _is_due(self, changes: ReadChanges | None) -> bool:
        if changes is None:
            return False
        moved = changes.lsn - self._position.lsn
        is_fenced = self._position.lsn < self._fence and moved > 0
        return changes.has_rows or is_fenced or moved >= EMPTY_BYTES or (moved > 0 and not changes.reached)

    def _next_input(self) -> tuple[ReadChanges | None, tuple[CapturedTable, TablePart] | None]:
        """Return the changes of the next epoch, and the part of a table that it reads.

        A part is read only where changes were read to their end, so that those since then are few.
        """
        label = self._position.unfinished
        if label is None or not self._caught_up:
            changes, self._next = self._next or self._newer(), None
            self._caught_up = changes is None or changes.reached
            label = self._position.unfinished
            if label is None or self._is_due(changes) or not self._caught_up:
                return changes, None
        elif self._position.tables[label].partition:
            # One that was detached since is read no further.
            self._position = self._partitions.noticed(self._position, self._tables)
            label = self._position.unfinished
            if label is None:
                return None, None
        table, progress = self._captured(label), self._position.tables[label]
        stored = self._tables[label]
        rows = self._partitions.rows_of(table, progress) if progress.partition else None
        part = self.server.part(table, stored.key_types(table), progress.after, self._most, whole=stored.partitioned, rows=rows)
        # Those that a look has found, when it noticed the partition, are among them.
        changes, self._next = self._read(part.lsn), None
        self._caught_up = changes.reached
        return changes, (table, part) if changes.reached else None

    def _captured(self, label: str) -> CapturedTable:
        found = self._spec.table(label)
        if found is None:
            raise KeyError(label)
        return found

    def _progress_after(self, table: CapturedTable, part: TablePart) -> TableProgress:
        last = None if part.is_last else dict(zip(part.columns, part.rows[-1], strict=True))
        return self._position.tables[table.label].after_part(None if last is None else tuple(str(last[key]) for key in table.keys))

    def _newer(self) -> ReadChanges | None:
        """Return the changes that came since those that were read, None where the log is as it was."""
        self._flushed = self.server.flushed()
        self._require_log(self._flushed, self._position.lsn)
        self._position = self._partitions.noticed(self._position, self._tables)
        until = self._flushed if self._end is None else min(self._flushed, self._end)
        if until <= self._covered:
            return None
        found = self._read(until)
        if found.reached:
            self._covered = until
        return found

    def _read(self, until: int) -> ReadChanges:
        """Return changes up to an LSN: as many as an epoch may have, and those of the last transaction."""
        position, most = self._position, self._most
        self._publications.require(position.publication, position.tables)
        messages = self.server.changes(position.slot, position.publication, until=until, most=most)
        # A slot that another reader moved on before the messages were read is further on now, and a server that was replaced is another.
        self.server.flushed()
        self._catalog.require_whole(position.slot, self._catalog.slot(position.slot), position.lsn)
        found = [each for each in self._assembled(messages) if each.end_lsn > position.lsn]
        seen = self._seen(found)
        reached = len(messages) < most and len(seen) == len(found)
        last = seen[-1].end_lsn if seen else position.lsn
        return self._readable(ReadChanges(seen, max(until, last) if reached else last, reached))

    def _assembled(self, messages: MessageSpool) -> list[Transaction]:
        keys = {table.label: table.keys for table in self._spec.tables}
        assembler = Assembler(keys, keys, {table.oid for table in self._tables.values()})
        try:
            return list(assembler.transactions(messages))
        except DecodeError as error:
            raise self.server.error(f"its changes cannot be read: {error}", f"correct that, and {RESTART}") from None

    def _seen(self, found: Sequence[Transaction]) -> tuple[Transaction, ...]:
        """Return the transactions before the first that is not visible; if that is the first of all, it will be in a moment."""
        for _ in range(_VISIBLE_LOOKS if found else 0):
            if seen := seen_first(found, self.server.snapshot()):
                return seen
            SYSTEM_CLOCK.sleep(_VISIBLE_SECONDS)
        return ()

    def _readable(self, changes: ReadChanges) -> ReadChanges:
        """Return the changes before the first that cannot be read.

        Raises:
            SourceError: it is the first of all.
        """
        for number, transaction in enumerate(changes.transactions):
            try:
                self._check(transaction)
            except SourceError:
                if number == 0:
                    raise
                before = changes.transactions[:number]
                return ReadChanges(before, before[-1].end_lsn, reached=False)
        return changes

    def _check(self, transaction: Transaction) -> None:
        for relation in transaction.relations:
            if relation in self._checked:
                continue
            table = self._spec.table(relation.label)
            if table is None:
                raise self.server.error(f"a captured table was renamed to {relation.label}", f"rename it back, or: {RESTART}")
            unread = self._catalog.check_relation(table, relation)
            known = self._tables[table.label].types
            if added := [name for name in unread if name not in known]:
                logger.info("source %r: table %s has new columns, which are not read: %s", self._name, table.label, ", ".join(added))
            self._checked.add(relation)
        for relation in transaction.truncated:
            if self._spec.on_truncate == "fail":
                raise self.server.error(
                    f"table {relation.label} was emptied by TRUNCATE, which does not say which rows it had",
                    f"on_truncate='skip' keeps the rows that were deleted; to drop them {RESTART}. Later use DELETE",
                )
            logger.warning("source %r: a TRUNCATE of table %s is skipped: its rows are kept", self._name, relation.label)

    def _large_values(self, changes: Sequence[Change]) -> LargeValues:
        """Return, as they are now, the rows of which a large value is not among the changes."""
        rows: dict[tuple[str, tuple[object, ...]], tuple[str | None, ...]] = {}
        for label, wanted in unread_values(self._spec, changes).items():
            table = self._captured(label)
            keys = sorted({tuple(str(row.get(name)) for name in table.keys) for row in wanted})
            places = [table.columns.names.index(name) for name in table.keys]
            stored = self._tables[label]
            for values in self.server.rows_of(table, stored.key_types(table), keys, whole=stored.partitioned):
                rows[label, tuple(values[place] for place in places)] = values
        return LargeValues(rows)


def _spec_of(source: SourceNode) -> PostgresChangesSpec:
    if not isinstance(source.spec, PostgresChangesSpec):
        raise TypeError(type(source.spec).__name__)
    return source.spec

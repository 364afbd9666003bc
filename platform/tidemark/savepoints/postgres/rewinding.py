"""What a rewind does to a table of Postgres: rows of later epochs are deleted, where rows have their epoch's number.

In the same transaction each lineage with later epochs, and the one that ends, gets a row of its newest epoch in the table of epochs:
a driver that was suspended before it published takes that epoch for published. Another row there notes that this rewind has rewound the
table.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from tidemark.errors import PublishError, RewindError, SinkError
from tidemark.graph.checks.output_columns import EPOCH
from tidemark.graph.connectors.postgres.node import PostgresTable
from tidemark.savepoints.model.place_plan import PlacePlan, applied_already, newest_published
from tidemark.savepoints.model.rewind_journal import RewindJournal
from tidemark.savepoints.postgres.database import PostgresError, transaction
from tidemark.savepoints.postgres.ledger import ABORTED, HISTORY, REWOUND, Ledger
from tidemark.savepoints.postgres.tables import identifier, read_table
from tidemark.state.gc.pins import LaterLineages
from tidemark.state.log.records import EpochRecord, SinkPosition

if TYPE_CHECKING:
    from tidemark.savepoints.postgres.database import PostgresConnection

_BACKUP: Final = "restore a backup of the table, or restore the state alone"
_INSTEAD: Final = f"write its history, which can be rewound (mode='append' of a changelog, or with_epoch=True), {_BACKUP}"


class PostgresRewind:
    """Rewinds tables of Postgres."""

    def plan(self, output: str, location: str, stored: EpochRecord, head: EpochRecord, later: LaterLineages) -> PlacePlan:
        """Return what a rewind would do to a table, and what blocks it."""
        table = PostgresTable.of_location(location)
        ledger = Ledger(table, stored.job, output)
        with _reading(table, output) as connection:
            there = read_table(connection, table) is not None
            now = head.outputs.get(output)
            newest = ledger.lineage(connection, head.lineage)
            staged = now is not None and now.location == location and bool(now.files)
            unpublished = staged and (newest is None or newest.epoch < head.epoch)
            own = {stored.lineage, *later.names}
            published = (stored.lineage, stored.epoch) != (head.lineage, head.epoch)
            refusals = [
                *_lost(connection, ledger, stored, there=there, published=published),
                *_repeated(connection, ledger, stored, later),
                *_kept_back(connection, ledger, stored.epoch, own),
            ]
            changed = bool(ledger.later_epochs(connection, stored.epoch))
        return PlacePlan(changed, unpublished, tuple(f"output {output!r}: the table {table.label} {reason}" for reason in refusals))

    def revert(self, job: str, output: str, location: str, journal: RewindJournal) -> bool:
        """Delete the rows of later epochs, and fence the ended lineage, unless that was done."""
        table = PostgresTable.of_location(location)
        ledger = Ledger(table, job, output)
        with _writing(table, output) as connection:
            ledger.make(connection)
            ledger.lock(connection)
            if ledger.aborts(connection, journal.identity) > journal.tries:
                raise RewindError("the rewind was aborted by another process", fix="begin it again if wanted", uid=output, place=location)
            if ledger.is_rewound(connection, journal.identity):
                return False
            later = ledger.later_epochs(connection, journal.epoch)
            newest = {lineage: known.epoch for lineage in later if (known := ledger.lineage(connection, lineage)) is not None}
            if journal.ended is not None:
                newest[journal.ended.lineage] = journal.ended.epoch
            if later:
                _require_deletable(connection, ledger, journal.epoch, frozenset(later), location)
                _delete(connection, table, journal.epoch)
                ledger.delete_later(connection, journal.epoch)
            for lineage, epoch in newest.items():
                ledger.add(connection, lineage, epoch, mode=REWOUND, kept=journal.epoch)
            ledger.mark_rewound(connection, journal.identity, journal.epoch)
        return bool(later)

    def position(self, output: str, location: str, stored: EpochRecord) -> SinkPosition | None:
        """Return the newest epoch of the table after the rewind."""
        record = stored.outputs.get(output)
        newest = newest_published(stored, output) if record is not None and record.location == location else None
        table = PostgresTable.of_location(location)
        return SinkPosition(table.label, lineage=newest[0], epoch=newest[1]) if newest is not None else None

    def applied_change(self, job: str, output: str, location: str, journal: RewindJournal) -> str | None:
        """Return that the table was rewound already, None if it was not."""
        table = PostgresTable.of_location(location)
        with _reading(table, output) as connection:
            done = Ledger(table, job, output).is_rewound(connection, journal.identity)
        return applied_already(output, journal) if done else None

    def fence_aborted(self, job: str, output: str, location: str, journal: RewindJournal) -> str | None:
        """Mark the rewind as aborted in the table of epochs, unless it has rewound the table."""
        table = PostgresTable.of_location(location)
        ledger = Ledger(table, job, output)
        with _writing(table, output) as connection:
            ledger.make(connection)
            ledger.lock(connection)
            if ledger.is_rewound(connection, journal.identity):
                return applied_already(output, journal)
            ledger.add(connection, journal.identity, journal.tries, mode=ABORTED)
        return None


def _lost(connection: PostgresConnection, ledger: Ledger, stored: EpochRecord, *, there: bool, published: bool) -> Iterator[str]:
    """Yield why the table does not hold what it held at the savepoint's epoch."""
    output = stored.outputs.get(ledger.output)
    here = output is not None and output.location == ledger.table.location
    known = ledger.lineage(connection, stored.lineage)
    wanted = newest_published(stored, ledger.output, published=published) if here else None
    if wanted is not None:
        lineage, epoch = wanted
        found = ledger.lineage(connection, lineage)
        if not there:
            yield "no longer exists: restore it from a backup"
        elif found is None or found.epoch < epoch:
            newest = "none" if found is None else found.epoch
            yield f"has lost epochs: by tidemark_epochs the newest is {newest}, and {epoch} was published: restore it from a backup"
    if known is not None and known.kept is not None and known.kept < stored.epoch:
        yield f"no longer has the rows of epochs after {known.kept}, which an earlier rewind deleted: {_INSTEAD}"


def _repeated(connection: PostgresConnection, ledger: Ledger, stored: EpochRecord, later: LaterLineages) -> Iterator[str]:
    """Yield that a lineage began after the savepoint at an earlier epoch: rows of its epochs have the numbers of the savepoint's own."""
    began = ledger.began(connection, stored.epoch)
    own = began.get(stored.lineage)
    for lineage, at in began.items():
        # Of lineages that the log no longer has only the time is known.
        if lineage in later.names or (not later.all and own is not None and at > own):
            what = f"has rows of epochs up to {stored.epoch} that the lineage {lineage} added after the savepoint"
            yield f"{what}, which cannot be distinguished from those of the savepoint: {_BACKUP}"


def _kept_back(connection: PostgresConnection, ledger: Ledger, epoch: int, own: frozenset[str] | set[str]) -> Iterator[str]:
    """Yield why the rows of later epochs cannot be deleted."""
    later = ledger.later_epochs(connection, epoch)
    if not later:
        return
    modes = frozenset[str]().union(*later.values())
    if not modes <= {HISTORY}:
        yield f"has rows of epochs after {epoch} that it does not keep apart ({', '.join(sorted(modes - {HISTORY}))}): {_INSTEAD}"
        return
    if not ledger.has_created(connection):
        yield f"was not created by this output, so that other programs may have written rows with epochs of the same numbers: {_BACKUP}"
    stored = read_table(connection, ledger.table)
    if stored is None or EPOCH not in stored.columns:
        yield f"has no column {EPOCH!r} any more, by which rows of later epochs are found: restore it from a backup"
    foreign = sorted(later.keys() - own)
    if foreign:
        yield f"has rows of epochs after {epoch} of the lineage {foreign[0]}, which the savepoint does not come before: {_INSTEAD}"
    if ledger.has_others(connection):
        yield f"has rows of other outputs, which may have epochs of the same numbers: {_INSTEAD}"


def _require_deletable(connection: PostgresConnection, ledger: Ledger, epoch: int, own: frozenset[str], location: str) -> None:
    for reason in _kept_back(connection, ledger, epoch, own):
        raise RewindError(
            f"the table of output {ledger.output!r} {reason.partition(': ')[0]}, since the rewind was planned",
            fix="undo that, and give the same command again",
            uid=ledger.output,
            place=location,
        )


def _delete(connection: PostgresConnection, table: PostgresTable, epoch: int) -> None:
    from psycopg import sql

    connection.execute(sql.SQL("DELETE FROM {} WHERE {} > %s").format(identifier(table), sql.Identifier(EPOCH)), [epoch])


@contextmanager
def _reading(table: PostgresTable, output: str) -> Iterator[PostgresConnection]:
    try:
        with transaction(table) as connection:
            yield connection
    except PostgresError as error:
        raise SinkError(
            f"the table of output {output!r} cannot be read: {error.what}",
            fix="check that the server runs and can be reached from this machine, and the connection string",
            uid=output,
            place=table.location,
        ) from None


@contextmanager
def _writing(table: PostgresTable, output: str) -> Iterator[PostgresConnection]:
    try:
        with transaction(table) as connection:
            yield connection
    except PostgresError as error:
        raise PublishError(
            f"the table of output {output!r} could not be rewound: {error.what}",
            fix="repair that (connection, permission) and give the same command again: it resumes where it stopped",
            uid=output,
            place=table.location,
        ) from None

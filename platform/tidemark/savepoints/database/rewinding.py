"""What a rewind does to a table of a database: rows of later epochs are deleted, where rows have their epoch's number.

In the same transaction each lineage with later epochs, and the one that ends, gets a row of its newest epoch in the table of epochs:
a driver that was suspended before it published takes that epoch for published. Another row there notes that this rewind has rewound the
table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from tidemark.errors import PublishError, RewindError, SinkError
from tidemark.graph.checks.output_columns import EPOCH
from tidemark.graph.connectors.database.node import DatabaseTable
from tidemark.savepoints.database.dialect import Dialect
from tidemark.savepoints.database.ledger import ABORTED, HISTORY, REWOUND, Ledger
from tidemark.savepoints.database.session import DatabaseError, Session
from tidemark.savepoints.model.place_plan import PlacePlan, applied_already, newest_published
from tidemark.savepoints.model.rewind_journal import RewindJournal
from tidemark.state.gc.pins import LaterLineages
from tidemark.state.log.records import EpochRecord, SinkPosition

_BACKUP: Final = "restore a backup of the table, or restore the state alone"
_INSTEAD: Final = f"write its history, which can be rewound (mode='append' of a changelog, or with_epoch=True), {_BACKUP}"


@dataclass(frozen=True)
class DatabaseRewind:
    """Rewinds tables of databases.

    Args:
        table_of: returns the table of a recorded location, and the dialect of its database.
    """

    table_of: Callable[[str], tuple[DatabaseTable, Dialect]]

    def plan(self, output: str, location: str, stored: EpochRecord, head: EpochRecord, later: LaterLineages) -> PlacePlan:
        """Return what a rewind would do to a table, and what blocks it."""
        table, dialect = self.table_of(location)
        ledger = Ledger(dialect, table, stored.job, output)
        with _reading(ledger) as session:
            there = dialect.read_table(session, table) is not None
            now = head.outputs.get(output)
            newest = ledger.lineage(session, head.lineage)
            staged = now is not None and now.location == location and bool(now.files)
            unpublished = staged and (newest is None or newest.epoch < head.epoch)
            own = {stored.lineage, *later.names}
            published = (stored.lineage, stored.epoch) != (head.lineage, head.epoch)
            refusals = [
                *_lost(session, ledger, stored, there=there, published=published),
                *_repeated(session, ledger, stored, later),
                *_kept_back(session, ledger, stored.epoch, own),
            ]
            changed = bool(ledger.later_epochs(session, stored.epoch))
        return PlacePlan(changed, unpublished, tuple(f"output {output!r}: the table {table.label} {reason}" for reason in refusals))

    def revert(self, job: str, output: str, location: str, journal: RewindJournal) -> bool:
        """Delete the rows of later epochs, and fence the ended lineage, unless that was done."""
        table, dialect = self.table_of(location)
        ledger = Ledger(dialect, table, job, output)
        with _writing(ledger) as session:
            ledger.make(session)
            ledger.lock(session)
            if ledger.aborts(session, journal.identity) > journal.tries:
                raise RewindError("the rewind was aborted by another process", fix="begin it again if wanted", uid=output, place=location)
            if ledger.is_rewound(session, journal.identity):
                return False
            later = ledger.later_epochs(session, journal.epoch)
            newest = {lineage: known.epoch for lineage in later if (known := ledger.lineage(session, lineage)) is not None}
            if journal.ended is not None:
                newest[journal.ended.lineage] = journal.ended.epoch
            if later:
                _require_deletable(session, ledger, journal.epoch, frozenset(later), location)
                session.query(f"DELETE FROM {dialect.full_name(table)} WHERE {dialect.quoted(EPOCH)} > %s", [journal.epoch])
                ledger.delete_later(session, journal.epoch)
            for lineage, epoch in newest.items():
                ledger.add(session, lineage, epoch, mode=REWOUND, kept=journal.epoch)
            ledger.mark_rewound(session, journal.identity, journal.epoch)
        return bool(later)

    def position(self, output: str, location: str, stored: EpochRecord) -> SinkPosition | None:
        """Return the newest epoch of the table after the rewind."""
        record = stored.outputs.get(output)
        newest = newest_published(stored, output) if record is not None and record.location == location else None
        table, _ = self.table_of(location)
        return SinkPosition(table.label, lineage=newest[0], epoch=newest[1]) if newest is not None else None

    def applied_change(self, job: str, output: str, location: str, journal: RewindJournal) -> str | None:
        """Return that the table was rewound already, None if it was not."""
        table, dialect = self.table_of(location)
        ledger = Ledger(dialect, table, job, output)
        with _reading(ledger) as session:
            done = ledger.is_rewound(session, journal.identity)
        return applied_already(output, journal) if done else None

    def fence_aborted(self, job: str, output: str, location: str, journal: RewindJournal) -> str | None:
        """Mark the rewind as aborted in the table of epochs, unless it has rewound the table."""
        table, dialect = self.table_of(location)
        ledger = Ledger(dialect, table, job, output)
        with _writing(ledger) as session:
            ledger.make(session)
            ledger.lock(session)
            if ledger.is_rewound(session, journal.identity):
                return applied_already(output, journal)
            ledger.add(session, journal.identity, journal.tries, mode=ABORTED)
        return None


def _lost(session: Session, ledger: Ledger, stored: EpochRecord, *, there: bool, published: bool) -> Iterator[str]:
    """Yield why the table does not hold what it held at the savepoint's epoch."""
    output = stored.outputs.get(ledger.output)
    here = output is not None and output.location == ledger.table.location
    known = ledger.lineage(session, stored.lineage)
    wanted = newest_published(stored, ledger.output, published=published) if here else None
    if wanted is not None:
        lineage, epoch = wanted
        found = ledger.lineage(session, lineage)
        if not there:
            yield "no longer exists: restore it from a backup"
        elif found is None or found.epoch < epoch:
            newest = "none" if found is None else found.epoch
            yield f"has lost epochs: by tidemark_epochs the newest is {newest}, and {epoch} was published: restore it from a backup"
    if known is not None and known.kept is not None and known.kept < stored.epoch:
        yield f"no longer has the rows of epochs after {known.kept}, which an earlier rewind deleted: {_INSTEAD}"


def _repeated(session: Session, ledger: Ledger, stored: EpochRecord, later: LaterLineages) -> Iterator[str]:
    """Yield that a lineage began after the savepoint at an earlier epoch: rows of its epochs have the numbers of the savepoint's own."""
    began = ledger.began(session, stored.epoch)
    own = began.get(stored.lineage)
    for lineage, at in began.items():
        # Of lineages that the log no longer has only the time is known.
        if lineage in later.names or (not later.all and own is not None and at > own):
            what = f"has rows of epochs up to {stored.epoch} that the lineage {lineage} added after the savepoint"
            yield f"{what}, which cannot be distinguished from those of the savepoint: {_BACKUP}"


def _kept_back(session: Session, ledger: Ledger, epoch: int, own: frozenset[str] | set[str]) -> Iterator[str]:
    """Yield why the rows of later epochs cannot be deleted."""
    later = ledger.later_epochs(session, epoch)
    if not later:
        return
    modes = frozenset[str]().union(*later.values())
    if not modes <= {HISTORY}:
        yield f"has rows of epochs after {epoch} that it does not keep apart ({', '.join(sorted(modes - {HISTORY}))}): {_INSTEAD}"
        return
    if not ledger.has_created(session):
        yield f"was not created by this output, so that other programs may have written rows with epochs of the same numbers: {_BACKUP}"
    stored = ledger.dialect.read_table(session, ledger.table)
    if stored is None or EPOCH not in stored.columns:
        yield f"has no column {EPOCH!r} any more, by which rows of later epochs are found: restore it from a backup"
    foreign = sorted(later.keys() - own)
    if foreign:
        yield f"has rows of epochs after {epoch} of the lineage {foreign[0]}, which the savepoint does not come before: {_INSTEAD}"
    if ledger.has_others(session):
        yield f"has rows of other outputs, which may have epochs of the same numbers: {_INSTEAD}"


def _require_deletable(session: Session, ledger: Ledger, epoch: int, own: frozenset[str], location: str) -> None:
    for reason in _kept_back(session, ledger, epoch, own):
        raise RewindError(
            f"the table of output {ledger.output!r} {reason.partition(': ')[0]}, since the rewind was planned",
            fix="undo that, and give the same command again",
            uid=ledger.output,
            place=location,
        )


@contextmanager
def _reading(ledger: Ledger) -> Iterator[Session]:
    try:
        with ledger.dialect.transaction(ledger.table) as session:
            yield session
    except DatabaseError as error:
        raise SinkError(
            f"the table of output {ledger.output!r} cannot be read: {error.what}",
            fix="check that the server runs and can be reached from this machine, and the connection string",
            uid=ledger.output,
            place=ledger.table.location,
        ) from None


@contextmanager
def _writing(ledger: Ledger) -> Iterator[Session]:
    try:
        with ledger.dialect.transaction(ledger.table) as session:
            yield session
    except DatabaseError as error:
        raise PublishError(
            f"the table of output {ledger.output!r} could not be rewound: {error.what}",
            fix="repair that (session, permission) and give the same command again: it resumes where it stopped",
            uid=ledger.output,
            place=ledger.table.location,
        ) from None

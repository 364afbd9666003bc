"""What a rewind does to a table of Iceberg: it rolls the table back to the snapshot of the savepoint's epoch.

In the same commit each lineage with later epochs, and the one that ends, gets a property that says that its newest epoch is published:
a driver that was suspended before it published takes that epoch for published. An empty snapshot on top makes a commit fail that was
begun before, also one that began with the snapshot which is the newest again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tidemark.errors import PublishError, RewindError, SinkError
from tidemark.graph.connectors.iceberg.node import IcebergTable
from tidemark.savepoints.iceberg.catalogs import IcebergError, catalog_of, load
from tidemark.savepoints.iceberg.commits import EMPTY, fence
from tidemark.savepoints.iceberg.history import EPOCH, LINEAGE, REWIND, Ledger, LineageEpochs, ancestors, is_first, operation_of, summary_of
from tidemark.savepoints.model.place_plan import PlacePlan, applied_already, newest_published
from tidemark.savepoints.model.rewind_journal import RewindJournal, output_of
from tidemark.state.gc.pins import LaterLineages
from tidemark.state.log.records import EpochRecord, SinkPosition

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyiceberg.table import Table
    from pyiceberg.table.snapshots import Snapshot

_INSTEAD: Final = "restore the state alone, or write to another table from the savepoint on"
_TRIES: Final = 5
_REPLACE: Final = "replace"
"""Operation of a snapshot that has the same rows in other files."""


@dataclass(frozen=True)
class _Later:
    """The snapshots that a rewind takes back, newest first, and the one before them: None if there is none, or it is expired."""

    snapshots: tuple[Snapshot, ...]
    target: Snapshot | None
    expired: bool = False

    @property
    def to(self) -> str:
        """The target of the rollback, also where there is nothing to take back: a suspended driver may publish until then."""
        return EMPTY if self.target is None else str(self.target.snapshot_id)

    @property
    def changed(self) -> bool:
        """Whether there is anything to take back."""
        return _has_epochs(self.snapshots)


class IcebergRewind:
    """Rewinds tables of Iceberg."""

    def plan(self, output: str, location: str, stored: EpochRecord, head: EpochRecord, later: LaterLineages) -> PlacePlan:
        """Return what a rewind would do to a table, and what blocks it."""
        name = IcebergTable.of_location(location)
        ledger = Ledger(stored.job, output)
        published = (stored.lineage, stored.epoch) != (head.lineage, head.epoch)
        then = stored.outputs.get(output)
        wanted = newest_published(stored, output, published=published) if then is not None and then.location == location else None
        with _reading(name, output):
            table = _load(name)
            if table is None:
                reasons = ["no longer exists: restore it from a backup"] if wanted is not None else []
                return PlacePlan(refusals=_about(output, name, reasons), unpublished=_has_rows(head, output, location))
            known = ledger.lineage(table, head.lineage)
            unpublished = _has_rows(head, output, location) and (known is None or known.epoch < head.epoch)
            found = _later(table, ledger, wanted, stored, later)
            reasons = [*_lost(table, ledger, wanted, found), *_foreign(ledger, found, frozenset({stored.lineage, *later.names}))]
        return PlacePlan(found.changed, unpublished, _about(output, name, reasons), found.to)

    def revert(self, job: str, output: str, location: str, journal: RewindJournal) -> bool:
        """Roll the table back, and fence the ended lineage, unless that was done."""
        name, ledger = IcebergTable.of_location(location), Ledger(job, output)
        to = (
            next((place.to for name, place in journal.places.items() if (output_of(name), place.location) == (output, location)), "")
            or EMPTY
        )

        def attempt(table: Table) -> bool:
            if ledger.aborts(table, journal.identity) > journal.tries:
                raise RewindError("the rewind was aborted by another process", fix="begin it again if wanted", uid=output, place=location)
            if _is_fenced(table, ledger, journal):
                return False
            taken = _until(table, to)
            changed = _has_epochs(taken)
            if changed:
                _require_own(ledger, taken, to, table, location)
            newest = _newest(table, ledger, taken, journal)
            fence(table, ledger, journal.identity, target=to if changed else "", properties={}, newest=newest)
            return changed

        return _attempts(name, output, attempt)

    def position(self, output: str, location: str, stored: EpochRecord) -> SinkPosition | None:
        """Return the newest epoch of the table after the rewind."""
        record = stored.outputs.get(output)
        newest = newest_published(stored, output) if record is not None and record.location == location else None
        return SinkPosition(lineage=newest[0], epoch=newest[1]) if newest is not None else None

    def applied_change(self, job: str, output: str, location: str, journal: RewindJournal) -> str | None:
        """Return that the table was rewound already, None if it was not."""
        name = IcebergTable.of_location(location)
        with _reading(name, output):
            table = _load(name)
            fenced = table is not None and _is_fenced(table, Ledger(job, output), journal)
        return applied_already(output, journal) if fenced else None

    def fence_aborted(self, job: str, output: str, location: str, journal: RewindJournal) -> str | None:
        """Mark the rewind as aborted in the table's properties, unless it has rewound the table."""
        name, ledger = IcebergTable.of_location(location), Ledger(job, output)

        def attempt(table: Table) -> bool:
            if _is_fenced(table, ledger, journal):
                return True
            aborted = {ledger.abort_key(journal.identity): str(journal.tries)}
            fence(table, ledger, journal.identity, properties=aborted, newest={})
            return False

        return applied_already(output, journal) if _attempts(name, output, attempt) else None


def _later(table: Table, ledger: Ledger, wanted: tuple[str, int] | None, stored: EpochRecord, later: LaterLineages) -> _Later:
    """Return the snapshots after that of the wanted epoch; where none is wanted, those from the first later one of the job's on."""
    line = list(ancestors(table))
    expired = bool(line) and not is_first(line[-1])
    if wanted is not None:
        for number, snapshot in enumerate(line):
            epoch = ledger.epoch_of(snapshot, wanted[0])
            if epoch is not None and epoch <= wanted[1]:
                # An earlier epoch is found only if the wanted one is lost, which is refused.
                return _Later(tuple(line[:number]), snapshot, expired)
        return _Later((), None, expired)
    mine = [number for number, snapshot in enumerate(line) if _is_later(ledger, snapshot, stored, later)]
    if not mine:
        return _Later((), line[0] if line else None, expired)
    first = mine[-1] + 1
    return _Later(tuple(line[:first]), line[first] if first < len(line) else None, expired)


def _is_later(ledger: Ledger, snapshot: Snapshot, stored: EpochRecord, later: LaterLineages) -> bool:
    """Return whether a snapshot has rows of an epoch after the savepoint's: the output may have been here before, and moved since."""
    epoch, lineage = ledger.epoch_of(snapshot), summary_of(snapshot).get(LINEAGE)
    return epoch is not None and (lineage in later.names or (lineage == stored.lineage and epoch > stored.epoch))


def _lost(table: Table, ledger: Ledger, wanted: tuple[str, int] | None, found: _Later) -> Iterator[str]:
    """Yield why the table does not have the snapshot of the savepoint's epoch."""
    if wanted is None:
        if found.expired and found.snapshots and found.target is None:
            yield f"had rows before the oldest snapshot that is not expired, which is the job's: {_INSTEAD}"
        return
    lineage, epoch = wanted
    if found.target is not None and ledger.epoch_of(found.target, lineage) == epoch:
        return
    known = ledger.lineage(table, lineage)
    if known is not None and known.kept is not None and known.kept < epoch:
        yield f"no longer has the rows of epochs after {known.kept}, which an earlier rewind took back: {_INSTEAD}"
    elif found.target is None and found.expired and known is not None and known.epoch >= epoch:
        yield f"no longer has the snapshot of epoch {epoch}, which is expired: {_INSTEAD}; keep snapshots as long as savepoints"
    else:
        yield f"has lost epochs: its current snapshot does not come from that of epoch {epoch}: roll it forward, or restore a backup"


def _foreign(ledger: Ledger, found: _Later, own: frozenset[str]) -> Iterator[str]:
    """Yield the newest snapshot of another writer that a rollback would take back, too."""
    for snapshot in found.snapshots if found.changed else ():
        if not _is_own(ledger, snapshot) or summary_of(snapshot).get(LINEAGE, next(iter(own))) not in own:
            yield f"has a snapshot of another writer, {snapshot.snapshot_id}, after those that would be taken back: {_INSTEAD}"
            return


def _is_own(ledger: Ledger, snapshot: Snapshot) -> bool:
    """Return whether a snapshot can be taken back: it is one of the output's, or has the same rows in other files."""
    return operation_of(snapshot) == _REPLACE or (
        ledger.is_own(snapshot) and (EPOCH in summary_of(snapshot) or REWIND in summary_of(snapshot))
    )


def _has_epochs(snapshots: Sequence[Snapshot]) -> bool:
    return any(EPOCH in summary_of(snapshot) for snapshot in snapshots)


def _until(table: Table, to: str) -> tuple[Snapshot, ...]:
    taken: list[Snapshot] = []
    for snapshot in ancestors(table):
        if str(snapshot.snapshot_id) == to:
            return tuple(taken)
        taken.append(snapshot)
    return tuple(taken)


def _require_own(ledger: Ledger, taken: Sequence[Snapshot], to: str, table: Table, location: str) -> None:
    """Make sure that nothing came to the table since the plan but epochs of the output.

    Raises:
        RewindError: another writer has committed, or the target is gone.
    """
    there = to == EMPTY or any(str(snapshot.snapshot_id) == to for snapshot in ancestors(table))
    foreign = next((snapshot for snapshot in taken if not _is_own(ledger, snapshot)), None)
    if there and foreign is None:
        return
    what = f"another writer has added snapshot {foreign.snapshot_id}" if foreign is not None else f"snapshot {to} is expired or left"
    raise RewindError(
        f"the table of output {ledger.output!r} has changed since the rewind was planned: {what}",
        fix="undo that (rollback_to_snapshot), and give the same command again",
        uid=ledger.output,
        place=location,
    )


def _newest(table: Table, ledger: Ledger, taken: Sequence[Snapshot], journal: RewindJournal) -> dict[str, LineageEpochs]:
    """Return what the properties are to say of the lineages whose epochs are taken back, and of the one that ends."""
    newest: dict[str, int] = {}
    kept: dict[str, int] = {}
    for snapshot in taken:
        epoch = ledger.epoch_of(snapshot)
        if epoch is not None:
            lineage = summary_of(snapshot)[LINEAGE]
            known = ledger.lineage(table, lineage)
            newest[lineage] = max(epoch, known.epoch if known is not None else -1)
            # A lineage that came after the savepoint may have begun at an earlier epoch.
            kept[lineage] = min(epoch - 1, kept.get(lineage, journal.epoch))
    if journal.ended is not None:
        newest[journal.ended.lineage] = journal.ended.epoch
    return {lineage: LineageEpochs(epoch, kept.get(lineage, journal.epoch)) for lineage, epoch in newest.items()}


def _is_fenced(table: Table, ledger: Ledger, journal: RewindJournal) -> bool:
    """Return whether this rewind has rewound the table: a lineage ends once."""
    known = ledger.lineage(table, journal.ended.lineage) if journal.ended is not None else None
    return known is not None and known.kept is not None


def _has_rows(head: EpochRecord, output: str, location: str) -> bool:
    now = head.outputs.get(output)
    return now is not None and now.location == location and bool(now.files)


def _about(output: str, name: IcebergTable, reasons: Sequence[str]) -> tuple[str, ...]:
    return tuple(f"output {output!r}: the table {name.name} {reason}" for reason in reasons)


def _load(name: IcebergTable) -> Table | None:
    with catalog_of(name) as catalog:
        return load(catalog, name)


def _attempts(name: IcebergTable, output: str, attempt: Callable[[Table], bool]) -> bool:
    """Commit to a table, again where another writer was faster; a table that does not exist needs nothing.

    Raises:
        PublishError: it cannot be written to now.
    """
    for number in range(_TRIES):
        try:
            with catalog_of(name) as catalog:
                table = load(catalog, name)
                return attempt(table) if table is not None else False
        except IcebergError as error:
            if (error.conflict or error.unknown) and number + 1 < _TRIES:
                continue
            raise PublishError(
                f"the table of output {output!r} could not be rewound: {error.what}",
                fix="repair that (connection, permission) and give the same command again: it resumes where it stopped",
                uid=output,
                place=name.location,
            ) from None
    raise AssertionError(name)


@contextmanager
def _reading(name: IcebergTable, output: str) -> Iterator[None]:
    try:
        yield
    except IcebergError as error:
        raise SinkError(
            f"the table of output {output!r} cannot be read: {error.what}",
            fix="check that the catalog can be reached from this machine, and its configuration",
            uid=output,
            place=name.location,
        ) from None

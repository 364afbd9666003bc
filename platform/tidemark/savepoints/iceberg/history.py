"""What a table holds of an output: by its properties, which are set with each commit, and by its snapshots, which may be expired.

The properties say which epochs were committed; a table that another writer rolled back has them still, and no longer the rows. So the
ancestors of the newest snapshot are compared with them as far back as they exist.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyiceberg.table import Table
    from pyiceberg.table.snapshots import Snapshot

PREFIX: Final = "tidemark"
CREATED: Final = f"{PREFIX}.created-by"
"""Property of a table: the job and the output that have created it."""

JOB: Final = f"{PREFIX}.job"
OUTPUT: Final = f"{PREFIX}.output"
LINEAGE: Final = f"{PREFIX}.lineage"
EPOCH: Final = f"{PREFIX}.epoch"
REWIND: Final = f"{PREFIX}.rewind"
"""Names in a snapshot's summary. ``REWIND`` marks an empty snapshot by which a rewind, or its abort, fences commits that are under way."""

DELETE: Final = "delete"
"""Operation of a snapshot that only removes files."""

_EPOCH: Final = "epoch"
_KEPT: Final = "kept"


@dataclass(frozen=True)
class LineageEpochs:
    """What a table's properties say of a lineage: the newest epoch, and the newest that a rewind has left, if it was rewound."""

    epoch: int
    kept: int | None = None

    def encoded(self) -> str:
        """Return the property's value."""
        return json.dumps({_EPOCH: self.epoch, **({_KEPT: self.kept} if self.kept is not None else {})})

    @property
    def held(self) -> int:
        """The newest epoch whose rows the table can still have."""
        return self.epoch if self.kept is None else min(self.epoch, self.kept)


@dataclass(frozen=True)
class Shown:
    """The newest epoch of a lineage among the ancestors of a table's newest snapshot, -1 if there is none.

    ``complete`` says whether an older one cannot have been expired.
    """

    epoch: int
    complete: bool


@dataclass(frozen=True)
class Ledger:
    """The published epochs of one output of a job in a table."""

    job: str
    output: str

    def key(self, lineage: str) -> str:
        """Return the property that has the newest epoch of a lineage."""
        return f"{self._prefix}{lineage}"

    @property
    def _prefix(self) -> str:
        return f"{PREFIX}.epoch.{self.job}/{self.output}/"

    def abort_key(self, rewind: str) -> str:
        """Return the property that has the number of the newest abort of a rewind."""
        return f"{PREFIX}.aborted.{self.job}/{self.output}/{rewind}"

    def lineage(self, table: Table, lineage: str) -> LineageEpochs | None:
        """Return what the properties say of a lineage, None where they do not name it."""
        text = table.properties.get(self.key(lineage))
        if text is None:
            return None
        found = json.loads(text)
        return LineageEpochs(int(found[_EPOCH]), found.get(_KEPT))

    def aborts(self, table: Table, rewind: str) -> int:
        """Return the number of the newest abort of a rewind, 0 if there was none."""
        return int(table.properties.get(self.abort_key(rewind), "0"))

    def shown(self, table: Table, lineage: str) -> Shown:
        """Return the newest epoch of a lineage whose rows came to the newest snapshot."""
        oldest: Snapshot | None = None
        for oldest in ancestors(table):
            epoch = self.epoch_of(oldest, lineage)
            if epoch is not None:
                return Shown(epoch, complete=True)
        return Shown(-1, complete=oldest is None or is_first(oldest))

    def epoch_of(self, snapshot: Snapshot, lineage: str | None = None) -> int | None:
        """Return the epoch of this output, and of a lineage, that a snapshot has added; None if it has not."""
        summary = summary_of(snapshot)
        mine = self.is_own(snapshot) and EPOCH in summary and lineage in (None, summary.get(LINEAGE))
        return int(summary[EPOCH]) if mine else None

    def is_own(self, snapshot: Snapshot) -> bool:
        """Return whether this output, or a rewind of it, has made a snapshot."""
        summary = summary_of(snapshot)
        return (summary.get(JOB), summary.get(OUTPUT)) == (self.job, self.output)

    def lost(self, table: Table, lineage: str, epoch: int) -> str | None:
        """Return why a table no longer holds what was published up to an epoch, None if it does."""
        known = self.lineage(table, lineage)
        if known is None or known.epoch < epoch:
            return f"by its properties its newest epoch is {'none' if known is None else known.epoch}, as in an older copy of it"
        if known.held < epoch:
            return f"a rewind has taken back the epochs after {known.held}"
        shown = self.shown(table, lineage)
        if shown.epoch >= epoch or (shown.epoch < 0 and not shown.complete):
            return None
        newest = "none of the job's epochs" if shown.epoch < 0 else f"epoch {shown.epoch} as the newest"
        return f"it was rolled back: its current snapshot has {newest}"

    def has_created(self, table: Table) -> bool:
        """Return whether this output has created the table."""
        return table.properties.get(CREATED) == f"{self.job}/{self.output}"

    def owns(self, table: Table) -> bool:
        """Return whether this output has created the table, or published to it."""
        return self.has_created(table) or any(key.startswith(self._prefix) for key in table.properties)

    def is_blank(self, table: Table) -> bool:
        """Return whether a table is as this output created it: nothing was ever written to it."""
        return self.has_created(table) and table.current_snapshot() is None and not table.snapshots()

    def created(self) -> Mapping[str, str]:
        """Return the property by which a table names who created it."""
        return {CREATED: f"{self.job}/{self.output}"}

    def summary(self, lineage: str, epoch: int) -> dict[str, str]:
        """Return what the snapshot of an epoch says of it."""
        return {JOB: self.job, OUTPUT: self.output, LINEAGE: lineage, EPOCH: str(epoch)}

    def marker(self, rewind: str) -> dict[str, str]:
        """Return what the empty snapshot of a rewind says of it."""
        return {JOB: self.job, OUTPUT: self.output, REWIND: rewind}


def ancestors(table: Table) -> Iterator[Snapshot]:
    """Yield the newest snapshot of a table and those that it came from, as far as they are not expired.

    They end with one by which a rewind emptied the table: no row of an older one is in it.
    """
    # The library's own search passes through all snapshots for each.
    there = {snapshot.snapshot_id: snapshot for snapshot in table.snapshots()}
    snapshot = table.current_snapshot()
    while snapshot is not None:
        yield snapshot
        parent = None if is_emptied(snapshot) else snapshot.parent_snapshot_id
        snapshot = there.get(parent) if parent is not None else None


def is_emptied(snapshot: Snapshot) -> bool:
    """Return whether a rewind to before a table's first rows has made a snapshot."""
    return operation_of(snapshot) == DELETE and REWIND in summary_of(snapshot)


def is_first(snapshot: Snapshot) -> bool:
    """Return whether a snapshot is the first of its table; the library removes the number of a parent that it expires."""
    if is_emptied(snapshot):
        return True
    if snapshot.parent_snapshot_id is not None:
        return False
    summary = summary_of(snapshot)
    # Tables of Iceberg's first format do not number their snapshots.
    return snapshot.sequence_number == 1 or (
        not snapshot.sequence_number and summary.get("total-data-files") == summary.get("added-data-files", "0")
    )


def summary_of(snapshot: Snapshot) -> Mapping[str, str]:
    """Return the summary of a snapshot, without its operation."""
    return snapshot.summary.additional_properties if snapshot.summary is not None else {}


def operation_of(snapshot: Snapshot) -> str:
    """Return the operation of a snapshot: ``append``, ``overwrite``, ``delete`` or ``replace``; empty where it names none."""
    return snapshot.summary.operation.value if snapshot.summary is not None else ""

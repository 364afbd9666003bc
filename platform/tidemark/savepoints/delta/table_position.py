"""The position of a job's Delta table, for the job's log; and whether a table is still the same one and holds the same rows."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace

from deltalake import DeltaTable

from tidemark.savepoints.delta.table_changes import check_content
from tidemark.savepoints.delta.table_entries import STAGED, Entry, read_entries, read_entry
from tidemark.savepoints.delta.table_versions import open_table
from tidemark.state.log.records import EpochRecord, SinkPosition
from tidemark.state.store.store import JobStore

logger = logging.getLogger("tidemark")

NO_TABLE = SinkPosition()
"""The position of an empty place to which nothing was published."""

_DIGITS = 32


@dataclass(frozen=True)
class LostEpochs:
    """Epochs that a table no longer holds: its version, -1 if there is none, and why, in words; ``other`` for another table.

    The files of an epoch lie with the table from when they are staged, so they are deleted with it.
    """

    version: int
    why: str
    other: bool = False

    @property
    def republishable(self) -> bool:
        """Whether missing epochs can be published again, as far as is known without reading the staged files."""
        return self.version >= 0 and not self.other


def position_of(table: DeltaTable | None, store: JobStore, *, lineage: str = "", epoch: int = -1) -> SinkPosition:
    """Return the position of a table at the version that it was loaded at, without checking its contents.

    Args:
        table: None if there is none.
        store: at the table.
        lineage: of the newest rows of the job that it holds.
        epoch: of the same, -1 if there are none.
    """
    if table is None:
        return NO_TABLE
    version = table.version()
    entry = read_entry(store, version)
    since = version if epoch >= 0 else -1
    return SinkPosition(str(table.metadata().id), version, _checksum(entry), lineage, epoch, since)


def is_continued(position: SinkPosition, store: JobStore) -> bool | None:
    """Return whether a table's log has the entry that a job saw last; None if unknown, since there is none of that number."""
    if position.version < 0:
        return True
    entry = read_entry(store, position.version) if position.entry else None
    return None if entry is None else _checksum(entry) == position.entry


def lost_at_once(position: SinkPosition, table: DeltaTable | None, application: str, *, continued: bool | None) -> LostEpochs | None:
    """Return what a table has lost whose log does not continue the one that the job saw; called if ``is_continued`` is not true.

    Args:
        position: as the job's log knows it, with rows.
        table: as it is loaded now, None if there is none.
        application: of the table's transactions that the job's newest rows came with.
        continued: the result of ``is_continued``.
    """
    if table is None:
        return LostEpochs(-1, "the table does not exist any more")
    version = table.version()
    other = str(table.metadata().id) != position.table
    if version < position.version:
        return LostEpochs(
            version, "it is another table" if other else "its log ends there: an older copy was restored, or entries were deleted", other
        )
    done = table.transaction_version(application)
    if continued is False or (continued is None and (done is None or done < position.epoch)):
        return LostEpochs(
            version, "it is another table" if other else f"its version {position.version} is not the one that the job saw", other
        )
    return None


def follow_log(
    position: SinkPosition,
    table: DeltaTable,
    store: JobStore,
    *,
    job: str,
    on_change: Callable[[str], None] = lambda _: None,
    needed: Callable[[str, int], bool] = lambda _lineage, _epoch: True,
) -> SinkPosition | LostEpochs:
    """Return the position of a table at its newest version, by its log since an earlier position; or what it has lost.

    Args:
        position: of the same table, before.
        table: at its newest version.
        store: at the table.
        job: its name.
        on_change: called with each partial change that another writer made.
        needed: which epochs have to be there, as in ``check_content``.

    Raises:
        SinkError: an entry is damaged.
        StoreError: an entry cannot be read.
    """
    newest = table.version()
    if newest <= position.version:
        return position
    entries = read_entries(store, position.version + 1, newest)
    check = check_content(position, entries, job=job, has_staged=lambda: _has_staged(table), needed=needed)
    for other in check.others:
        on_change(other)
    if check.loss is not None:
        return LostEpochs(newest, check.loss)
    last = entries[-1] if entries and entries[-1].version == newest else None
    return replace(position, table=str(table.metadata().id), version=newest, entry=_checksum(last), since=check.since)


def lost_of_record(record: EpochRecord, output: str, *, only: bool = True) -> LostEpochs | None:
    """Return what the table of an output has lost since an epoch was committed; None if nothing, or if unknown.

    Args:
        record: of the epoch, with the positions of before.
        output: its name; it goes to a Delta table.
        only: whether only the epochs up to this one have to be there, and later ones may be lost.

    Raises:
        SinkError: the table cannot be read.
    """
    stored = record.outputs.get(output)
    position = stored.before if stored is not None else None
    if stored is None or stored.location is None or position is None:
        return None
    table = open_table(output, stored.location)
    if table is None:
        return LostEpochs(-1, "the table does not exist any more") if position.epoch >= 0 or stored.files else None
    store = JobStore.open(stored.location)
    continued = is_continued(position, store)
    if continued is not True:
        lost = lost_at_once(position, table, f"{position.lineage}/{output}", continued=continued)
        if lost is not None:
            return lost

    def needed(lineage: str, epoch: int) -> bool:
        return not only or (lineage == record.lineage and epoch <= record.epoch)

    found = follow_log(position, table, store, job=record.job, needed=needed)
    return found if isinstance(found, LostEpochs) else None


def _has_staged(table: DeltaTable) -> bool:
    return any(str(path).startswith(STAGED) for path in table.get_add_actions()["path"].to_pylist())


def _checksum(entry: Entry | None) -> str:
    return entry.digest[:_DIGITS] if entry is not None else ""

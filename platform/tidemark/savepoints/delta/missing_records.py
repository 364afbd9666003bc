"""Which epochs of a job's log to publish again to a table that no longer holds all of them. Pure but for reading the log."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from tidemark.savepoints.delta.table_changes import ShownEpochs
from tidemark.savepoints.model.rewind_journal import IDENTITY
from tidemark.state.log.records import EpochRecord, ParentRef


@dataclass(frozen=True)
class Retained:
    """The retained epochs with rows for an output's place.

    Args:
        records: oldest first.
        complete: whether none came before them.
        accepted: lineages and numbers of those that were accepted as missing; they are never published again.
    """

    records: tuple[EpochRecord, ...]
    complete: bool
    accepted: frozenset[tuple[str, int]] = frozenset()


def retained_of(records: Iterable[EpochRecord], output: str, *, sink: str, location: str | None) -> Retained:
    """Return the retained epochs that an output's place should show: without those that a rewind reverted.

    Args:
        records: of the job's log, newest first.
        output: its name.
        sink: its kind.
        location: its place.
    """
    found: list[EpochRecord] = []
    until: ParentRef | None = None
    oldest: EpochRecord | None = None
    accepted: set[tuple[str, int]] = set()
    for record in records:
        oldest = record
        if until is not None and (record.lineage, record.epoch) != (until.lineage, until.epoch):
            continue
        until = None
        stored = record.outputs.get(output)
        accepted.update(*(repair.accepted for repair in stored.repairs) if stored is not None else ())
        if stored is not None and stored.files and (stored.sink, stored.location) == (sink, location):
            found.append(record)
        restored = record.restored
        begins = record.parent is not None and restored is not None and record.epoch == record.parent.epoch
        if begins and restored is not None and restored.identity.startswith(IDENTITY):
            until = record.parent
    there = frozenset(accepted & {(record.lineage, record.epoch) for record in found})
    return Retained(tuple(reversed(found)), oldest is not None and _is_first(oldest), there)


def missing_of(retained: Retained, shown: ShownEpochs) -> tuple[EpochRecord, ...]:
    """Return the retained epochs that a table does not show, oldest first; none if its log does not tell."""
    if shown.unclear or (not shown.complete and not any((record.lineage, record.epoch) in shown.epochs for record in retained.records)):
        return ()
    places = _places(retained.records, shown)
    return tuple(record for record, place in zip(retained.records, places, strict=True) if place is None)


def epochs_to_republish(retained: Retained, shown: ShownEpochs, *, in_order: bool) -> tuple[tuple[EpochRecord, ...], str]:
    """Return the epochs to publish again, oldest first, and why that is impossible, in words; empty if it is possible.

    Returns none if the table shows all of them, such as after a start that published them and ended before the job's log recorded it.

    Args:
        retained: epochs that the table should show, except those accepted as missing: the user may have written their rows.
        shown: those that it shows.
        in_order: whether later rows replace earlier ones. Then all are published from the first on that is missing, or that came after a
            later one: the table shows each epoch as it was published last, and older values must not replace newer ones.
    """
    records = tuple(record for record in retained.records if (record.lineage, record.epoch) not in retained.accepted)
    if shown.unclear:
        return (), f"its log does not tell which epochs it shows: {shown.unclear}"
    if not shown.complete and not any((record.lineage, record.epoch) in shown.epochs for record in records):
        return (), "its log no longer tells which epochs it shows"
    if not records:
        return (), "by its log no epoch that the job's log retains is missing"
    places = _places(records, shown)
    numbers = [number for number, place in enumerate(places) if place is None]
    # Epochs older than one that was accepted as missing were accepted with it.
    if shown.complete and places[0] is None and not retained.complete and records[0] is retained.records[0]:
        start = records[0].epoch
        if not any(epoch < start for _, epoch in shown.epochs):
            return (), f"the job's log does not retain the epochs before {start}, which are missing, too"
    if in_order:
        numbers = list(range(_in_place(places), len(records)))
    return tuple(records[number] for number in numbers), ""


_BEFORE_ALL: Final = -1


def _places(records: Sequence[EpochRecord], shown: ShownEpochs) -> list[int | None]:
    """Return the position of each epoch in the table's order, None for a missing one."""
    order = {epoch: number for number, epoch in enumerate(shown.order)}
    keys = [(record.lineage, record.epoch) for record in records]
    places = [order.get(key) for key in keys]
    if shown.complete or not any(place is not None for place in places):
        return places
    # Every epoch before the first in its log is there.
    lineage, epoch = shown.order[0]
    first = places.index(min(place for place in places if place is not None))
    return [
        _BEFORE_ALL if place is None and number < first and (key[0] != lineage or key[1] < epoch) else place
        for number, (key, place) in enumerate(zip(keys, places, strict=True))
    ]


def _in_place(places: Iterable[int | None]) -> int:
    """Return how many of the oldest epochs the table shows, one after the other."""
    last, count = _BEFORE_ALL, 0
    for place in places:
        if place is None or place < last:
            break
        last, count = place, count + 1
    return count


def _is_first(record: EpochRecord) -> bool:
    if record.parent is None:
        return record.epoch == 0
    # A fork begins with an epoch of another job's.
    return record.restored is not None and record.restored.job != record.job and record.epoch == record.parent.epoch

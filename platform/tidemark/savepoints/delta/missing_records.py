"""Which epochs of a job's log are to be published again to a table that no longer holds all of them. Pure but for reading the log."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tidemark.savepoints.delta.table_changes import Shown
from tidemark.savepoints.model.rewind_note import IDENTITY
from tidemark.state.log.records import EpochRecord, ParentRef


@dataclass(frozen=True)
class Retained:
    """The retained epochs with rows for an output's place, oldest first; ``whole`` says that none came before them."""

    records: tuple[EpochRecord, ...]
    whole: bool


def retained_of(records: Iterable[EpochRecord], output: str, *, sink: str, location: str | None) -> Retained:
    """Return the retained epochs that an output's place should show: without those that a rewind took back.

    Args:
        records: of the job's log, newest first.
        output: its name.
        sink: its kind.
        location: its place.
    """
    found: list[EpochRecord] = []
    until: ParentRef | None = None
    oldest: EpochRecord | None = None
    for record in records:
        oldest = record
        if until is not None and (record.lineage, record.epoch) != (until.lineage, until.epoch):
            continue
        until = None
        stored = record.outputs.get(output)
        if stored is not None and stored.files and (stored.sink, stored.location) == (sink, location):
            found.append(record)
        restored = record.restored
        begins = record.parent is not None and restored is not None and record.epoch == record.parent.epoch
        if begins and restored is not None and restored.identity.startswith(IDENTITY):
            until = record.parent
    return Retained(tuple(reversed(found)), oldest is not None and _is_first(oldest))


def to_publish_again(retained: Retained, shown: Shown, *, in_order: bool) -> tuple[tuple[EpochRecord, ...], str]:
    """Return the epochs to publish again, oldest first, and why that cannot be done, in words; empty where it can.

    Args:
        retained: epochs that the table should show.
        shown: those that it does.
        in_order: whether all from the first missing one on are wanted, since later rows replace earlier ones.
    """
    records = retained.records
    if shown.unclear:
        return (), f"its log does not tell which epochs it shows: {shown.unclear}"
    there = [(record.lineage, record.epoch) in shown.epochs for record in records]
    first = 0
    if not shown.complete:
        if not any(there):
            return (), "its log no longer tells which epochs it shows"
        first = there.index(True)
    numbers = [number for number in range(first, len(records)) if not there[number]]
    if not numbers:
        return (), "by its log no epoch that the job's log retains is missing"
    start = records[numbers[0]].epoch
    if shown.complete and numbers[0] == 0 and not retained.whole and not any(epoch < start for _, epoch in shown.epochs):
        return (), f"the job's log does not retain the epochs before {start}, which are missing, too"
    chosen: Sequence[EpochRecord] = records[numbers[0] :] if in_order else [records[number] for number in numbers]
    return tuple(chosen), ""


def _is_first(record: EpochRecord) -> bool:
    if record.parent is None:
        return record.epoch == 0
    # A fork begins with an epoch of another job's.
    return record.restored is not None and record.restored.job != record.job and record.epoch == record.parent.epoch

"""The slots of a job's log: numbered objects, each created once, in one contiguous run.

The run begins at the *floor*. Retention raises the floor by a mark, ``log/<slot>.floor``, before it deletes the records below:
so a missing record is always noticed, and a driver that was suspended while its slot was taken, and retired again, cannot mistake the
empty slot for a free one.
"""

from __future__ import annotations

from dataclasses import dataclass

from tidemark.state.encoding.envelope import damaged
from tidemark.state.store.layout import LOG, floor_path, floor_slot, record_path, record_slot
from tidemark.state.store.store import JobStore

_LISTINGS = 5
_MARKS_KEPT = 2


@dataclass(frozen=True)
class Extent:
    """The run of records: slots ``floor`` to ``next_slot - 1``. ``retired`` are slots below it that are not deleted yet."""

    floor: int
    next_slot: int
    retired: tuple[int, ...] = ()
    marks: tuple[int, ...] = ()


@dataclass(frozen=True)
class Slots:
    """The slots in ``store``, which is the store at the job's folder."""

    store: JobStore

    def extent(self) -> Extent:
        """Return the run of records.

        Raises:
            CorruptStoreError: a record inside the run, or its beginning, is missing.
        """
        seen: Extent | str | None = None
        for _ in range(_LISTINGS):
            found = self._list()
            if isinstance(found, Extent):
                return found
            if found == seen:
                break
            # A folder that changes while it is listed may look as if it had a gap; a real gap is still there the next time.
            seen = found
        raise damaged(f"of the job's log {seen}", self.store.spark_uri(LOG))

    def read(self, slot: int) -> bytes | None:
        """Return a slot's record, None if it has been retired since.

        Raises:
            CorruptStoreError: the record is missing though it should be there.
        """
        try:
            return self.store.get(record_path(slot))
        except FileNotFoundError as error:
            if self.floor() > slot:
                return None
            raise damaged("is missing", record_path(slot)) from error

    def append(self, slot: int, data: bytes) -> bool:
        """Put a record at the next slot; False if another record took it.

        True also when exactly this record exists already: a put whose response was lost, and which was retried.
        """
        try:
            self.store.create(record_path(slot), data)
        except FileExistsError:
            return self.read(slot) == data
        if self.floor() <= slot:
            return True
        # Taken and retired while this driver was suspended: the record just written lies outside the run and is ignored.
        self.store.delete([record_path(slot)])
        return False

    def floor(self) -> int:
        """Return the slot at which the run begins."""
        marks = (floor_slot(file.path) for file in self.store.list(LOG))
        return max((mark for mark in marks if mark is not None), default=0)

    def raise_floor(self, slot: int) -> None:
        """Let the run begin at a slot; the records below it are no longer part of the log, and may be deleted."""
        self.store.put(floor_path(slot), b"")

    def delete_retired(self) -> int:
        """Delete records below the floor, and old marks; return how many records."""
        extent = self.extent()
        self.store.delete(record_path(slot) for slot in extent.retired)
        # The mark before the newest stays: a listing that runs while marks change then sees one of them.
        self.store.delete(floor_path(slot) for slot in extent.marks[:-_MARKS_KEPT])
        return len(extent.retired)

    def _list(self) -> Extent | str:
        files = self.store.list(LOG)
        marks = tuple(sorted(mark for file in files if (mark := floor_slot(file.path)) is not None))
        slots = sorted(slot for file in files if (slot := record_slot(file.path)) is not None)
        floor = marks[-1] if marks else 0
        live = [slot for slot in slots if slot >= floor]
        if not live and floor:
            return f"all records from slot {floor} on are missing"
        for expected, slot in enumerate(live, start=floor):
            if slot != expected:
                return f"the record of slot {expected} is missing"
        return Extent(floor, floor + len(live), tuple(slot for slot in slots if slot < floor), marks)

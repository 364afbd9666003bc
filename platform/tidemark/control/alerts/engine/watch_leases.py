"""The leases of watches on their jobs: of several processes that watch a job one evaluates its alerts and sends them.

A watch has one record for all its jobs, which it renews: a lease for each job would be thousands of writes a minute. Records are numbered
in the order in which watches came, and a job's lease is held by the first of those that are alive and watch it. So one that comes later
never takes a job away, watches of separate jobs do not wait for each other, and one that watches some of another's jobs takes these alone.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from tidemark.clock import Clock
from tidemark.control.model.paths import ALERT_LEASES, number_in, numbered
from tidemark.control.model.records import Lease
from tidemark.control.observed.leases import KIND, LEASE_MS, is_alive, is_held
from tidemark.state.encoding.codec import added_field
from tidemark.state.log.process_identity import current_owner
from tidemark.state.store.documents import create_document, read_intact_document, write_document
from tidemark.state.store.store import JobStore

_TRIES: Final = 10


@dataclass(frozen=True)
class WatchRecord(Lease):
    """The record of a watch: the names of its jobs, None for all of the store, also those that come later."""

    jobs: tuple[str, ...] | None = added_field(None)

    def covers(self, job: str) -> bool:
        """Return whether the watch evaluates a job."""
        return self.jobs is None or job in self.jobs


class WatchLeases:
    """The leases of one watch on its jobs.

    Args:
        root: the root store.
        holder: a unique name of this watch.
        jobs: names of its jobs; None for all of the store.
        clock: processing time.
    """

    def __init__(self, root: JobStore, holder: str, jobs: tuple[str, ...] | None, clock: Clock) -> None:
        self._root = root
        self._holder = holder
        self._jobs = jobs
        self._clock = clock
        self._own: WatchRecord | None = None
        self._before: tuple[WatchRecord, ...] = ()

    @property
    def is_valid(self) -> bool:
        """Whether the leases that were held are held now, without reading the store; checked before each message."""
        return self._own is not None and is_held(self._own, self._clock.now_ms())

    @property
    def is_first(self) -> bool:
        """Whether this watch holds the leases of all its jobs."""
        return self.is_valid and not self._before

    def take(self) -> bool:
        """Take the leases that are free, and renew those that are held; False if another watch may have held them since the last call.

        Raises:
            StoreError: the store cannot be reached.
        """
        own, now = self._own, self._clock.now_ms()
        if own is None or not is_held(own, now):
            expired, self._own = own, self._register(now)
            self._before = self._read_before(self._own, now) if self._own is not None else ()
            # One that passes less often than a lease lasts takes it again each time, mostly with no other in between.
            return expired is not None and self._own is not None and self._own.number == expired.number + 1
        if own.until - now <= LEASE_MS // 2:
            renewed = replace(own, until=now + LEASE_MS)
            write_document(self._root, numbered(ALERT_LEASES, own.number), kind=KIND, value=renewed)
            self._own = renewed
        if self._before:
            # Who comes later has a greater number.
            self._before = self._read_before(own, now)
        return True

    def holds(self, job: str) -> bool:
        """Return whether this watch held a job's lease when the leases were last taken."""
        return self._own is not None and self._own.covers(job) and not any(record.covers(job) for record in self._before)

    def release(self) -> None:
        """Release all leases, so that others can continue at once; does nothing if none are held."""
        own, self._own, self._before = self._own, None, ()
        if own is not None:
            # It stays as the newest number, so that none is given twice; who comes next deletes it.
            write_document(self._root, numbered(ALERT_LEASES, own.number), kind=KIND, value=replace(own, until=0))

    def _register(self, now: int) -> WatchRecord | None:
        for _ in range(_TRIES):
            numbers = self._numbers()
            own = WatchRecord((numbers[-1] if numbers else 0) + 1, self._holder, now + LEASE_MS, current_owner(), self._jobs)
            if create_document(self._root, numbered(ALERT_LEASES, own.number), kind=KIND, value=own):
                ended = [number for number in numbers if not self._is_anothers(self._read(number), now)]
                self._root.delete(numbered(ALERT_LEASES, number) for number in ended)
                return own
        # Others come at the same moment, again and again: this one tries it the next time.
        return None

    def _read_before(self, own: WatchRecord, now: int) -> tuple[WatchRecord, ...]:
        records = (self._read(number) for number in self._numbers() if number < own.number)
        return tuple(record for record in records if record is not None and self._is_anothers(record, now))

    def _is_anothers(self, record: WatchRecord | None, now: int) -> bool:
        return record is not None and record.holder != self._holder and is_alive(record, now)

    def _read(self, number: int) -> WatchRecord | None:
        return read_intact_document(self._root, numbered(ALERT_LEASES, number), kind=KIND, form=WatchRecord)

    def _numbers(self) -> tuple[int, ...]:
        files = self._root.list(ALERT_LEASES)
        return tuple(sorted(number for file in files if (number := number_in(ALERT_LEASES, file.path)) is not None))

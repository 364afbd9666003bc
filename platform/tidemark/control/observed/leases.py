"""Leases: a process announces that it acts for the next half minute, on a job or on records of the whole store.

They keep processes from doing the same work at once. Two drivers are kept apart by the attempts and the job log; alert records are
correct whichever process writes them; of two processes that execute a step of an upgrade one creates its record. So a lease that two
hold for a moment does no harm. A lease on a job is taken only when there is something to do. A lease of an ended process of this machine
is not waited for; one of another machine is, until it expires.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

from tidemark.clock import Clock
from tidemark.control.model.paths import LEASES, UPGRADE_LEASES, number_in, numbered
from tidemark.control.model.records import Lease
from tidemark.errors import TidemarkError
from tidemark.state.log.process_identity import current_owner, is_known_dead
from tidemark.state.log.records import OwnerInfo
from tidemark.state.store.documents import create_document, read_intact_document
from tidemark.state.store.layout import job_folder
from tidemark.state.store.store import JobStore

KIND: Final = "lease"
LEASE_MS: Final = 30_000
_KEPT: Final = 4


def take_lease(store: JobStore, job: str, *, holder: str, now: int, owner: OwnerInfo | None = None) -> Lease | None:
    """Take or renew the lease of a job; None while another process holds it.

    Args:
        store: the root store.
        job: the job's name.
        holder: a unique name of this process.
        now: processing time, milliseconds.
        owner: its process, by which others on its machine see when it has ended.
    """
    return _take(store.at(job_folder(job)), LEASES, holder=holder, now=now, owner=owner)


def release_lease(store: JobStore, job: str, lease: Lease) -> None:
    """Release a lease, so that others can act at once. If a newer one exists already, that one counts."""
    _release(store.at(job_folder(job)), LEASES, lease)


class StandingLease:
    """A lease that one process holds as long as it lives and uses it; other processes wait.

    Args:
        store: the store of its records.
        folder: their folder in it.
        holder: a unique name of this process.
        clock: processing time.
    """

    def __init__(self, store: JobStore, folder: str, holder: str, clock: Clock) -> None:
        self._store = store
        self._folder = folder
        self._holder = holder
        self._clock = clock
        self._lease: Lease | None = None

    @property
    def is_valid(self) -> bool:
        """Whether it is held now, without reading the store; checked before each action."""
        return self._lease is not None and is_held(self._lease, self._clock.now_ms())

    def take(self) -> bool:
        """Take the lease, or renew it when it is half over; False while another process has it.

        Raises:
            StoreError: the store cannot be reached.
        """
        now = self._clock.now_ms()
        if self._lease is not None and is_held(self._lease, now) and self._lease.until - now > LEASE_MS // 2:
            return True
        self._lease = _take(self._store, self._folder, holder=self._holder, now=now, owner=current_owner())
        return self._lease is not None

    def competing_lease(self) -> Lease | None:
        """Return the valid lease of another process, None if there is none.

        Raises:
            StoreError: the store cannot be reached.
        """
        numbers = _numbers(self._store, self._folder)
        newest = _read(self._store, self._folder, numbers[-1]) if numbers else None
        return newest if newest is not None and _is_of_another(newest, self._holder, self._clock.now_ms()) else None

    def release(self) -> None:
        """Release the lease, so that others can continue at once; does nothing if it is not held."""
        if self._lease is not None:
            _release(self._store, self._folder, self._lease)
            self._lease = None


def upgrade_lease(store: JobStore, job: str, holder: str, clock: Clock) -> StandingLease:
    """Return the lease for carrying out a job's upgrade, not taken yet. ``store`` is the root store."""
    return StandingLease(store.at(job_folder(job)), UPGRADE_LEASES, holder, clock)


@contextmanager
def renewing(lease: StandingLease) -> Iterator[StandingLease]:
    """Renew a held lease in a thread while the block runs, which may take longer than the lease; release it at the end.

    A lease that is not held, or has expired because this process was suspended, is not renewed: ``take`` it before each action.
    """
    ended = threading.Event()

    def renew() -> None:
        while not ended.wait(LEASE_MS / 3_000):
            if lease.is_valid:
                # A failed renewal is retried; otherwise the lease expires.
                with suppress(TidemarkError):
                    lease.take()

    thread = threading.Thread(target=renew, name="tidemark-lease", daemon=True)
    thread.start()
    try:
        yield lease
    finally:
        ended.set()
        thread.join()
        # It expires by itself.
        with suppress(TidemarkError):
            lease.release()


def is_held(lease: Lease, now: int) -> bool:
    """Return whether a lease is held; one that ends too far ahead is from a clock that was set back since."""
    return 0 < lease.until - now <= 2 * LEASE_MS


def is_alive(lease: Lease, now: int) -> bool:
    """Return whether a lease is held by a process that may be alive; one of this machine that has ended is known."""
    return is_held(lease, now) and not (lease.owner is not None and is_known_dead(lease.owner))


def _take(store: JobStore, folder: str, *, holder: str, now: int, owner: OwnerInfo | None) -> Lease | None:
    numbers = _numbers(store, folder)
    newest = _read(store, folder, numbers[-1]) if numbers else None
    if newest is not None and _is_of_another(newest, holder, now):
        return None
    lease = Lease((numbers[-1] if numbers else 0) + 1, holder, now + LEASE_MS, owner)
    if not create_document(store, numbered(folder, lease.number), kind=KIND, value=lease):
        return None
    after = _numbers(store, folder)
    if after and after[-1] > lease.number:
        # This process was suspended while others took, and deleted, the number that it has now.
        store.delete([numbered(folder, lease.number)])
        return None
    store.delete(numbered(folder, number) for number in after[:-_KEPT])
    return lease


def _is_of_another(lease: Lease, holder: str, now: int) -> bool:
    """Return whether another process that may be alive holds a lease."""
    return lease.holder != holder and is_alive(lease, now)


def _release(store: JobStore, folder: str, lease: Lease) -> None:
    ended = Lease(lease.number + 1, lease.holder, 0)
    create_document(store, numbered(folder, ended.number), kind=KIND, value=ended)


def _read(store: JobStore, folder: str, number: int) -> Lease | None:
    return read_intact_document(store, numbered(folder, number), kind=KIND, form=Lease)


def _numbers(store: JobStore, folder: str) -> tuple[int, ...]:
    return tuple(sorted(number for file in store.list(folder) if (number := number_in(folder, file.path)) is not None))

"""Leases: a process's word to the others that it acts for the next half minute, on a job or on what belongs to the whole store.

They spare processes the work of doing the same thing at once. What keeps two drivers apart is the attempts and the job log; what is stored
of a job's alerts is right from any writer; of two who take a step of an upgrade one creates its record. So a lease that two hold for a
moment does no harm. One on a job is taken only when there is something to do. That of a process of this machine that is gone is not
waited for; of one elsewhere nothing is known but that it does not renew it.
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
    """Take or renew the lease of a job; None while another holder has it.

    Args:
        store: the root store.
        job: the job's name.
        holder: who takes it, by a name that no other has.
        now: processing time, milliseconds.
        owner: its process, by which others on its machine see when it is gone.
    """
    return _take(store.at(job_folder(job)), LEASES, holder=holder, now=now, owner=owner)


def release_lease(store: JobStore, job: str, lease: Lease) -> None:
    """Let others act at once. Where a newer lease is there already, that one counts."""
    _release(store.at(job_folder(job)), LEASES, lease)


class StandingLease:
    """A lease that one process holds for as long as it lives and uses it; the others stand by.

    Args:
        store: the store that its records are in.
        folder: where in it.
        holder: this process, by a name that no other has.
        clock: the time.
    """

    def __init__(self, store: JobStore, folder: str, holder: str, clock: Clock) -> None:
        self._store = store
        self._folder = folder
        self._holder = holder
        self._clock = clock
        self._lease: Lease | None = None

    @property
    def is_valid(self) -> bool:
        """Whether it is held now, as far as is known without a look at the store; asked before each act."""
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
        """Return the lease of another process that keeps this one from it, None where there is none any more.

        Raises:
            StoreError: the store cannot be reached.
        """
        numbers = _numbers(self._store, self._folder)
        newest = _read(self._store, self._folder, numbers[-1]) if numbers else None
        return newest if newest is not None and _is_of_another(newest, self._holder, self._clock.now_ms()) else None

    def release(self) -> None:
        """Release the lease so that others can take it at once; does nothing if it is not held."""
        if self._lease is not None:
            _release(self._store, self._folder, self._lease)
            self._lease = None


def upgrade_lease(store: JobStore, job: str, holder: str, clock: Clock) -> StandingLease:
    """Return the lease for continuing a job's upgrade; it is not taken yet. ``store`` is the root store."""
    return StandingLease(store.at(job_folder(job)), UPGRADE_LEASES, holder, clock)


@contextmanager
def renewing(lease: StandingLease) -> Iterator[StandingLease]:
    """Renew a lease that is held, from a thread of its own, since the work may take longer; release it at the end.

    One that is not held, or has run out because this process slept, is left to who uses it: ``take`` it before each act.
    """
    ended = threading.Event()

    def renew() -> None:
        while not ended.wait(LEASE_MS / 3_000):
            if lease.is_valid:
                # What cannot be renewed now is tried again, and otherwise runs out.
                with suppress(TidemarkError):
                    lease.take()

    thread = threading.Thread(target=renew, name="tidemark-lease", daemon=True)
    thread.start()
    try:
        yield lease
    finally:
        ended.set()
        thread.join()
        # It runs out by itself.
        with suppress(TidemarkError):
            lease.release()


def is_held(lease: Lease, now: int) -> bool:
    """Say whether a lease is held; one that ends too far ahead was given by a clock that has been set back since."""
    return 0 < lease.until - now <= 2 * LEASE_MS


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
        # It slept while others took, and deleted, the number that it has now.
        store.delete([numbered(folder, lease.number)])
        return None
    store.delete(numbered(folder, number) for number in after[:-_KEPT])
    return lease


def _is_of_another(lease: Lease, holder: str, now: int) -> bool:
    """Say whether another process has a lease, and may be alive."""
    return lease.holder != holder and is_held(lease, now) and not (lease.owner is not None and is_known_dead(lease.owner))


def _release(store: JobStore, folder: str, lease: Lease) -> None:
    ended = Lease(lease.number + 1, lease.holder, 0)
    create_document(store, numbered(folder, ended.number), kind=KIND, value=ended)


def _read(store: JobStore, folder: str, number: int) -> Lease | None:
    return read_intact_document(store, numbered(folder, number), kind=KIND, form=Lease)


def _numbers(store: JobStore, folder: str) -> tuple[int, ...]:
    return tuple(sorted(number for file in store.list(folder) if (number := number_in(folder, file.path)) is not None))

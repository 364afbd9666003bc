"""The lock of an upgrade that is under way: it protects the savepoints that the way back needs, and blocks other rewinds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tidemark.errors import UpgradeError
from tidemark.state.store.documents import read_document, write_document
from tidemark.state.store.layout import UPGRADE
from tidemark.state.store.store import JobStore

KIND: Final = "upgrade-note"


@dataclass(frozen=True)
class UpgradeLock:
    """An upgrade that is under way: its identity, and the savepoints that it may still need."""

    identity: str
    savepoints: tuple[str, ...]
    at: int


def read_upgrade_lock(folder: JobStore) -> UpgradeLock | None:
    """Return the upgrade that is under way, None if there is none. ``folder`` is the store at the job's folder.

    Raises:
        CorruptStoreError: the lock is damaged.
    """
    return read_document(folder, UPGRADE, kind=KIND, form=UpgradeLock)


def write_upgrade_lock(folder: JobStore, lock: UpgradeLock) -> None:
    """Write the lock, replacing one of the same upgrade."""
    write_document(folder, UPGRADE, kind=KIND, value=lock)


def remove_upgrade_lock(folder: JobStore) -> None:
    """Delete the lock: the upgrade has ended."""
    folder.require_no_link(UPGRADE)
    folder.delete([UPGRADE])


def require_no_upgrade(folder: JobStore, job: str, *, but: str = "") -> None:
    """Make sure that no upgrade is under way; called before a rewind, and again once no other process can begin one.

    Args:
        folder: the store at the job's folder.
        job: its name.
        but: the identity of the upgrade that rewinds as one of its steps; it has to be under way.

    Raises:
        UpgradeError: one is, or that one has ended.
    """
    lock = read_upgrade_lock(folder)
    if lock is None and but:
        raise UpgradeError(f"upgrade {but} has ended", fix=f"see how it ended: `tidemark status {job}`", job=job)
    if lock is not None and lock.identity != but:
        raise UpgradeError(
            f"an upgrade of the job is under way ({lock.identity})",
            fix=f"finish or abort it first: `tidemark upgrade {job}`, or `tidemark upgrade {job} --abort`",
            job=job,
        )

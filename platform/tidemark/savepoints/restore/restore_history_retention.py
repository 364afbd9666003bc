"""How long the restore history is kept: as long as a driver may ask whether a restore was made.

A driver that starts with a spec, or a run with a restore, asks, and each time the entry is rewritten; so entries that were not asked for
in a long time, with many others since, are of specs that were replaced long ago.
"""

from __future__ import annotations

from typing import Final

from tidemark.savepoints.restore.shared_files import shared_savepoints_of
from tidemark.state.gc.sweep import KeptEpochs
from tidemark.state.log.joblog import Driver
from tidemark.state.store.layout import RESTORED, restored_path

MAX_ENTRIES: Final = 100
"""How many entries are kept at any age: more than there are old generations of a spec that an upgrade could go back to."""

RETENTION_MS: Final = 30 * 24 * 60 * 60 * 1000
"""How long an entry is kept after it was last asked for, however many there are."""


def expire_restore_history(driver: Driver, kept: KeptEpochs) -> tuple[str, ...]:
    """Delete expired entries, and return their paths; called by the driver between epochs, with the sweep.

    Args:
        driver: of the job.
        kept: the job's epochs, read after the driver's last one.

    Raises:
        FencedError: a newer driver has begun; nothing was deleted.
        CorruptStoreError: a record of a shared savepoint is damaged; nothing was deleted.
    """
    folder, now = driver.log.store, driver.log.clock.now_ms()
    newest_first = sorted(folder.list(RESTORED), key=lambda file: (-file.last_modified_ms, file.path))
    old = [file.path for file in newest_first[MAX_ENTRIES:] if now - file.last_modified_ms > RETENTION_MS]
    if not old:
        return ()
    identities = {shared.identity for shared in shared_savepoints_of(folder)}
    identities |= {decoded.record.restored.identity for decoded in kept.all if decoded.record.restored is not None}
    needed = {restored_path(identity) for identity in identities if identity}
    gone = tuple(path for path in old if path not in needed)
    driver.confirm()
    folder.delete(gone)
    return gone

"""Announced disposals: retention and a restore that is requested at the same moment see one another.

Retention announces which savepoints it is about to dispose of, by file references without files, and lists all references again
afterwards. A restore adds its reference first, and then lists the announcements. Whichever comes second sees the other: retention leaves
the savepoint, and the restore waits until retention has decided.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Final

from tidemark.clock import Clock
from tidemark.errors import SavepointInUseError, TidemarkError
from tidemark.state.gc.file_references import FileReference, FileReferences
from tidemark.state.store.store import JobStore

_PREFIX: Final = "disposal-"
_ABANDONED_MS: Final = 60_000
"""The age from which an announcement is that of a process that died; no disposal takes as long."""

_POLL_SECONDS: Final = 0.1
_POLLS: Final = 50


def is_disposal(reference: FileReference) -> bool:
    """Return whether a file reference announces a disposal, and keeps nothing."""
    return reference.name.startswith(_PREFIX)


@contextmanager
def announced_disposals(folder: JobStore, job: str, savepoints: Iterable[str], *, clock: Clock) -> Iterator[None]:
    """Announce the disposal of savepoints for the length of a block, which lists all file references again before it disposes of any.

    Args:
        folder: the store at the job's folder.
        job: the job's name.
        savepoints: their names.
        clock: the time.
    """
    references, token = FileReferences(folder), secrets.token_hex(8)
    made = {f"{_PREFIX}{token}-{number}": name for number, name in enumerate(savepoints)}
    try:
        for reference, savepoint in made.items():
            references.put(FileReference(reference, job, clock.now_ms(), savepoint, (), lasting=False))
        yield
    finally:
        # What stays is ignored after a minute, and removed by the next disposal.
        with suppress(TidemarkError):
            for reference in made:
                references.remove(reference)


def remove_abandoned_disposals(folder: JobStore, *, now_ms: int) -> None:
    """Remove the announcements of processes that died. ``folder`` is the store at the job's folder."""
    references = FileReferences(folder)
    for reference in references.list():
        if is_disposal(reference) and _is_abandoned(reference, now_ms):
            references.remove(reference.name)


def await_disposal(folder: JobStore, job: str, savepoint: str, *, clock: Clock) -> None:
    """Wait until an announced disposal of a savepoint is over; called once a file reference to the savepoint is added.

    Raises:
        SavepointInUseError: it is not over after some seconds.
    """
    for _ in range(_POLLS):
        now = clock.now_ms()
        announced = [each for each in FileReferences(folder).list() if is_disposal(each) and each.savepoint == savepoint]
        if all(_is_abandoned(each, now) for each in announced):
            return
        clock.sleep(_POLL_SECONDS)
    raise SavepointInUseError(
        f"savepoint {savepoint!r} is about to be disposed of by retention", fix="retry in a minute, or name another savepoint", job=job
    )


def _is_abandoned(reference: FileReference, now_ms: int) -> bool:
    # Clocks of machines differ.
    return abs(now_ms - reference.held_at) >= _ABANDONED_MS

"""The note that a rewind was begun: written before its first step, gone after its last. Whoever finds it goes on with it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from tidemark.errors import RewindError
from tidemark.savepoints.model.savepoint import TableVersion
from tidemark.savepoints.model.upgrade_lock import read_upgrade_lock
from tidemark.state.encoding.codec import added_field
from tidemark.state.log.records import EpochRecord, ParentRef
from tidemark.state.store.documents import create_document, read_document, write_document
from tidemark.state.store.layout import REWIND
from tidemark.state.store.store import JobStore

KIND: Final = "rewind"
IDENTITY: Final = "rewind-"
"""The identities of rewinds begin so, and the names of the pins by which they keep what they need."""

FORMER: Final = " (where it was)"
"""Ends the name by which the former table of an output is put back that lies elsewhere now; no output is called so."""


@dataclass(frozen=True)
class RewindJournal:
    """What a rewind is to do.

    Args:
        identity: its own name, by which the lineage that begins with it is known.
        savepoint: where the job is put back to.
        lineage: that begins there.
        epoch: the savepoint's.
        tables: the versions that the Delta tables are put back to, by output; those that are there already are closed to what went on.
            The former table of an output that lies elsewhere now, or is gone, has the output's name with ``FORMER`` behind it, or several.
        at: when it was begun, milliseconds.
        by: who began it.
        why: what for.
        pin: by which the rewind itself keeps the savepoint's epoch, until it is done.
        ended: the job's newest epoch when it was begun, and its lineage, which ends with it.
        tries: how many times somebody tried to give it up; who goes on with it heeds only what says so of a later time.
    """

    identity: str
    savepoint: str
    lineage: str
    epoch: int
    tables: Mapping[str, TableVersion]
    at: int
    by: str = ""
    why: str = ""
    pin: str = added_field("")
    ended: ParentRef | None = added_field(None)  # noqa: RUF009 - it returns a field
    tries: int = added_field(0)


def read_rewind(folder: JobStore) -> RewindJournal | None:
    """Return the rewind that was begun and is not done, None where there is none. ``folder`` is the store at the job's folder.

    Raises:
        CorruptStoreError: the note is damaged.
    """
    return read_document(folder, REWIND, kind=KIND, form=RewindJournal)


def write_rewind(folder: JobStore, journal: RewindJournal) -> bool:
    """Write the note if there is none; False where there is one already."""
    return create_document(folder, REWIND, kind=KIND, value=journal)


def write_tries(folder: JobStore, journal: RewindJournal) -> None:
    """Write the note anew, with how many times it was to be given up; called by who has the job's newest term."""
    write_document(folder, REWIND, kind=KIND, value=journal)


def remove_rewind(folder: JobStore, identity: str) -> None:
    """Take the note of a rewind away: it is done, or given up. Another one's stays."""
    journal = read_rewind(folder)
    if journal is not None and journal.identity == identity:
        folder.require_no_link(REWIND)
        folder.delete([REWIND])


def require_no_rewind(folder: JobStore, job: str) -> None:
    """Make sure that no rewind is half done; called by whoever is about to run the job.

    Raises:
        RewindError: one is; it says what to do.
    """
    journal = read_rewind(folder)
    if journal is not None:
        raise RewindError(
            f"a rewind of the job to savepoint {journal.savepoint!r} (epoch {journal.epoch}) was begun and is not done: "
            "some of its tables may be put back and others not",
            fix=how_to_end(folder, job, journal),
            job=job,
            epoch=journal.epoch,
        )


def is_rewound_to(head: EpochRecord, savepoint: str) -> bool:
    """Say whether an epoch is of a lineage that began with a rewind to a savepoint."""
    restored = head.restored
    return restored is not None and restored.savepoint == savepoint and restored.identity.startswith(IDENTITY)


def how_to_end(folder: JobStore, job: str, journal: RewindJournal) -> str:
    """Return what to do about a rewind that was begun and is not done, for people. ``folder`` is the store at the job's folder."""
    upgrade = read_upgrade_lock(folder)
    if upgrade is not None and journal.savepoint in upgrade.savepoints:
        return f"it is a step of an upgrade; let that come to an end: `tidemark upgrade {job}`, or `tidemark upgrade {job} --abort`"
    first = f"give up the upgrade that was begun meanwhile: `tidemark upgrade {job} --abort`; then " if upgrade is not None else ""
    return (
        f"{first}let it go on to its end first: `tidemark rewind {job} --to {journal.savepoint}`; "
        f"or, if no table was put back yet, give it up: `tidemark rewind {job} --abort`"
    )

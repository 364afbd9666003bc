"""The journal of a rewind: written before its first step, deleted after its last. A process that finds it resumes the rewind."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from tidemark.errors import RewindError
from tidemark.savepoints.model.savepoint import TableVersion
from tidemark.savepoints.model.upgrade_lock import read_upgrade_lock
from tidemark.state.encoding.codec import added_field, added_mapping_field
from tidemark.state.log.records import EpochRecord, ParentRef
from tidemark.state.store.documents import create_document, read_document, write_document
from tidemark.state.store.layout import REWIND
from tidemark.state.store.store import JobStore

KIND: Final = "rewind"
IDENTITY: Final = "rewind-"
"""The identities of rewinds begin so, and the names of the pins by which they keep what they need."""

FORMER: Final = " (where it was)"
"""Suffix of the name under which the former table of a moved output is reverted; no output has such a name."""


@dataclass(frozen=True)
class RewoundPlace:
    """The place of a connector's output: the sink's kind, the location as records have it, and ``PlacePlan.to``."""

    sink: str
    location: str
    to: str = added_field("")


@dataclass(frozen=True)
class RewindJournal:
    """What a rewind is to do.

    Args:
        identity: its unique name, which the lineage that it begins records.
        savepoint: the savepoint that the job is rewound to.
        lineage: the lineage that begins there.
        epoch: the savepoint's.
        tables: the versions that the Delta tables are reverted to, by output; tables at their version already are only fenced.
            The former table of an output that moved or was removed has the output's name with one or more ``FORMER`` appended.
        at: when it was begun, milliseconds.
        by: the user who began it.
        why: the reason, in words.
        pin: the pin by which the rewind itself keeps the savepoint's epoch until it is done.
        ended: the job's newest epoch when it was begun, and its lineage, which ends with it.
        places: the places of connectors that are rewound, by output; former ones are named as former tables.
        tries: how many aborts were attempted; a process that resumes the rewind heeds only abort marks of later attempts.
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
    places: Mapping[str, RewoundPlace] = added_mapping_field()


def output_of(name: str) -> str:
    """Return the name of the output whose table or place a journal has under a name.

    >>> output_of("orders" + FORMER + FORMER)
    'orders'
    """
    return name.partition(FORMER)[0]


def read_rewind(folder: JobStore) -> RewindJournal | None:
    """Return the job's unfinished rewind, None if there is none. ``folder`` is the store at the job's folder.

    Raises:
        CorruptStoreError: the journal is damaged.
    """
    return read_document(folder, REWIND, kind=KIND, form=RewindJournal)


def write_rewind(folder: JobStore, journal: RewindJournal) -> bool:
    """Write the journal if there is none; return False if there is one already."""
    return create_document(folder, REWIND, kind=KIND, value=journal)


def write_tries(folder: JobStore, journal: RewindJournal) -> None:
    """Rewrite the journal with a new number of abort attempts; called by the process that holds the job's newest term."""
    write_document(folder, REWIND, kind=KIND, value=journal)


def remove_rewind(folder: JobStore, identity: str) -> None:
    """Delete the journal of a rewind that is done or aborted. Another rewind's stays."""
    journal = read_rewind(folder)
    if journal is not None and journal.identity == identity:
        folder.require_no_link(REWIND)
        folder.delete([REWIND])


def require_no_rewind(folder: JobStore, job: str) -> None:
    """Make sure that no rewind is unfinished; called by a process that is about to run the job.

    Raises:
        RewindError: one is; the error says what to do.
    """
    journal = read_rewind(folder)
    if journal is not None:
        raise RewindError(
            f"a rewind of the job to savepoint {journal.savepoint!r} (epoch {journal.epoch}) is unfinished: "
            "some of its tables may be reverted and others not",
            fix=how_to_end(folder, job, journal),
            job=job,
            epoch=journal.epoch,
        )


def is_rewound_to(head: EpochRecord, savepoint: str) -> bool:
    """Return whether an epoch is of a lineage that began with a rewind to a savepoint."""
    restored = head.restored
    return restored is not None and restored.savepoint == savepoint and restored.identity.startswith(IDENTITY)


def how_to_end(folder: JobStore, job: str, journal: RewindJournal) -> str:
    """Return what the user can do about an unfinished rewind, in words. ``folder`` is the store at the job's folder."""
    upgrade = read_upgrade_lock(folder)
    if upgrade is not None and journal.savepoint in upgrade.savepoints:
        return f"it is a step of an upgrade; finish or abort that: `tidemark upgrade {job}`, or `tidemark upgrade {job} --abort`"
    first = f"abort the upgrade that was begun since: `tidemark upgrade {job} --abort`; then " if upgrade is not None else ""
    return (
        f"{first}finish it first: `tidemark rewind {job} --to {journal.savepoint}`; "
        f"or, if no table was reverted yet, abort it: `tidemark rewind {job} --abort`"
    )

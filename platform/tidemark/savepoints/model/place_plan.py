"""What a rewind would do to the place of a connector's output."""

from __future__ import annotations

from dataclasses import dataclass

from tidemark.savepoints.model.rewind_journal import RewindJournal
from tidemark.state.log.records import EpochRecord


@dataclass(frozen=True)
class PlacePlan:
    """What a rewind would do to a place.

    Args:
        changed: whether it would delete anything.
        unpublished: whether the place does not hold the newest epoch yet, which is committed and has rows for it.
        refusals: why it cannot be rewound, each with what to do.
        to: what of the place is rewound to, as the connector names it; empty for those that find it by the epoch.
    """

    changed: bool = False
    unpublished: bool = False
    refusals: tuple[str, ...] = ()
    to: str = ""


def newest_published(stored: EpochRecord, output: str, *, published: bool = True) -> tuple[str, int] | None:
    """Return lineage and number of the newest epoch that a place has of an output after an epoch, None if there is none.

    Args:
        stored: the epoch.
        output: the output's name.
        published: whether the epoch itself has been published; else only those before it.
    """
    record = stored.outputs.get(output)
    if record is None:
        return None
    if record.files and published:
        return stored.lineage, stored.epoch
    before = record.before
    return (before.lineage, before.epoch) if before is not None and before.epoch >= 0 else None


def applied_already(output: str, journal: RewindJournal) -> str:
    """Return that a rewind was applied to the table of an output before, as messages say it."""
    return f"the table of output {output!r} is rewound already, to epoch {journal.epoch}"

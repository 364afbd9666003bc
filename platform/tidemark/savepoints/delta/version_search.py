"""Which version of a table shows an epoch with all before it and nothing later, where the epochs in its log are not in their order. Pure.

A RESTORE, or epochs that were published again after later ones, disturb their order.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tidemark.state.delta.delta_tags import MODE
from tidemark.state.gc.pins import LaterLineages
from tidemark.state.log.records import EpochRecord

if TYPE_CHECKING:
    from tidemark.savepoints.delta.table_versions import Commit

Epoch = tuple[str, int]


@dataclass(frozen=True)
class _Content:
    """The content of a version: epochs, one bit each; whether it has something later or unknown; and the commit of the newest epoch."""

    epochs: int = 0
    later: bool = False
    last: Commit | None = None


_NOTHING = _Content()
_UNKNOWN = _Content(later=True)


def version_of(commits: Iterable[Commit], record: EpochRecord, output: str, later: LaterLineages, *, staged: bool) -> int | None:
    """Return the newest version that shows an epoch with all before it and nothing later, None if none is known.

    Args:
        commits: of the table, newest first, as far as its log goes.
        record: of the epoch.
        output: its name.
        later: lineages of the job that came after that epoch.
        staged: whether the epoch has rows for the table.
    """
    own = sorted(commits, key=lambda commit: commit.version)
    shown = [commit for commit in own if _shows_own(commit, record.job)]
    bits = {epoch: 1 << number for number, epoch in enumerate(dict.fromkeys(commit.epoch for commit in shown))}
    begun = next((commit.version for commit in shown if commit.lineage == record.lineage), None)
    contents: dict[int, _Content] = {}
    for commit in own:
        found = _before(commit, contents)
        if commit.epoch is not None and not commit.of_other(record.job):
            lineage, epoch = commit.epoch
            follows = lineage in later.names or (lineage == record.lineage and epoch > record.epoch)
            # One of a lineage that came later and was retired, perhaps.
            strange = not later.all and lineage != record.lineage and begun is not None and commit.version > begun
            if follows or strange:
                found = replace(found, later=True)
            elif commit.prepares is None:
                found = replace(found, epochs=found.epochs | bits[commit.epoch], last=commit)
        contents[commit.version] = found
    due = [epoch for epoch in _due(shown, record) if epoch not in _accepted(shown, record, output)]
    wanted = sum(bits[epoch] for epoch in due)
    if begun is None and record.parent is not None:
        parent = record.parent
        wanted |= sum(bit for epoch, bit in bits.items() if epoch is not None and epoch[0] == parent.lineage and epoch[1] <= parent.epoch)
    elif begun is not None:
        # Everything that the table had when the epoch's lineage began.
        wanted |= contents[begun].epochs & sum(bit for epoch, bit in bits.items() if epoch is not None and epoch[0] != record.lineage)
    newest = max(due, key=lambda epoch: epoch[1], default=None)
    if staged and newest != (record.lineage, record.epoch):
        return None
    fitting = (
        version
        for version, found in contents.items()
        if not found.later and found.epochs & wanted == wanted and (newest is None or _is_newest(found.last, newest))
    )
    return max(fitting, default=None)


def _before(commit: Commit, contents: dict[int, _Content]) -> _Content:
    """Return the content of a commit's version without the commit's own rows."""
    if commit.restores:
        return contents.get(commit.target, _UNKNOWN) if commit.target is not None else _UNKNOWN
    return _NOTHING if commit.empties else contents.get(commit.version - 1, _NOTHING)


def _shows_own(commit: Commit, job: str) -> bool:
    return commit.lineage is not None and not commit.of_other(job)


def _due(shown: Sequence[Commit], record: EpochRecord) -> list[Epoch]:
    """Return the epochs up to one, of its lineage, that the table ever showed."""
    epochs = dict.fromkeys(commit.epoch for commit in shown if commit.epoch is not None)
    return [epoch for epoch in epochs if epoch[0] == record.lineage and epoch[1] <= record.epoch]


def _accepted(shown: Sequence[Commit], record: EpochRecord, output: str) -> frozenset[Epoch]:
    """Return the epochs that were accepted as missing up to one; earlier builds did not record which."""
    repairs = record.outputs[output].repairs
    until = max((repair.epoch for repair in repairs if repair.how == "accepted" and not repair.epochs), default=-1)
    unnamed = (commit.epoch for commit in shown if commit.epoch is not None and commit.epoch[1] < until)
    return frozenset(unnamed).union(*(repair.accepted for repair in repairs))


def _is_newest(last: Commit | None, newest: Epoch) -> bool:
    """Whether the newest epoch came last, where its rows replace those of others."""
    return last is not None and (last.tags.get(MODE) != "upsert" or last.epoch == newest)

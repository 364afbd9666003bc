"""Which savepoints are disposed of: by count and by age, but never the last one, and never one that is in use."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final

from tidemark.savepoints.model.savepoint import AUTOMATIC, Savepoint

DAY_MS: Final = 24 * 60 * 60 * 1000


@dataclass(frozen=True)
class SavepointRetention:
    """How many savepoints are kept, and for how long (milliseconds); a savepoint beyond either bound is disposed of.

    Retention disposes only of savepoints that were taken automatically; those taken manually are disposed of manually. The count is per
    kind, so that periodic ones do not push out those by which an upgrade or a rewind can be undone.
    """

    count: int = 10
    age_ms: int = 7 * DAY_MS


def plan_disposal(
    savepoints: Sequence[Savepoint], retention: SavepointRetention, *, used: Collection[str], now_ms: int
) -> tuple[Savepoint, ...]:
    """Return the savepoints to dispose of, oldest first.

    Args:
        savepoints: all of a job's.
        retention: the bounds.
        used: names of those in use: by jobs that were forked from them, or by a rewind that is under way.
        now_ms: the time.
    """
    newest_first = sorted(savepoints, key=lambda savepoint: (savepoint.taken_at, savepoint.name), reverse=True)
    automatic = [savepoint for savepoint in newest_first if savepoint.info.kind in AUTOMATIC]
    kinds = {savepoint.info.kind for savepoint in automatic}
    of_kind = {kind: [savepoint for savepoint in automatic if savepoint.info.kind == kind] for kind in kinds}
    beyond = {savepoint.name for held in of_kind.values() for savepoint in held[max(retention.count, 0) :]}
    gone = [
        savepoint
        for savepoint in automatic
        if (savepoint.name in beyond or now_ms - savepoint.taken_at > retention.age_ms)
        and savepoint.name not in used
        # The last one is kept, whatever its age.
        and savepoint is not newest_first[0]
    ]
    return tuple(reversed(gone))

"""Which state files to merge and which to drop: size-tiered, decided without reading them.

Files are put into tiers by size, each tier ``FANOUT`` times the one below. A tier with ``min_files`` files is merged, so the number
of live files grows with the logarithm of the data, and a row is rewritten at most about once per tier.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from tidemark.state.log.records import StateFile

FANOUT: Final = 4
SMALLEST_TIER: Final = 16 * 1024
"""Files up to this many bytes are one tier: below it a file costs what opening it costs."""

LARGEST_FILE: Final = 512 * 1024 * 1024
"""Files of this many bytes or more are not merged."""


@dataclass(frozen=True)
class CompactionPlan:
    """``merge``: groups of files, each to become one; ``drop``: files to drop unread. No file is in both, or twice."""

    merge: tuple[tuple[StateFile, ...], ...] = ()
    drop: tuple[StateFile, ...] = ()


def plan_compaction(
    files: Iterable[StateFile],
    *,
    expired_before: int | None = None,
    min_files: int = 8,
    max_files: int = 64,
    largest_file: int = LARGEST_FILE,
) -> CompactionPlan:
    """Return what to do with an operator's live files; call it once per epoch.

    Args:
        files: the live files, oldest first.
        expired_before: a file whose times are all less than this (milliseconds) has expired; None: nothing expires.
        min_files: how many files of a tier make a merge; twice as many in the smallest, where a merge costs more than reading them does.
        max_files: how many files one merge takes at most, the oldest; the rest waits for the next epoch.
        largest_file: files of this many bytes or more are not merged.
    """
    live: list[StateFile] = []
    drop: list[StateFile] = []
    for file in files:
        expired = expired_before is not None and file.max_time is not None and file.max_time < expired_before
        (drop if expired else live).append(file)
    tiers: dict[int, list[StateFile]] = {}
    for file in live:
        if file.bytes < largest_file:
            tiers.setdefault(tier_of(file.bytes), []).append(file)
    full = [tier for tier in sorted(tiers) if len(tiers[tier]) >= (min_files if tier else 2 * min_files)]
    merge = tuple(tuple(tiers[tier][:max_files]) for tier in full)
    return CompactionPlan(merge, tuple(drop))


def tier_of(size: int) -> int:
    """Return a file's tier: 0 up to ``SMALLEST_TIER`` bytes, then one more for each factor of ``FANOUT``.

    >>> [tier_of(size) for size in (1, 16_384, 16_385, 65_536, 65_537)]
    [0, 0, 1, 1, 2]
    """
    tier, bound = 0, SMALLEST_TIER
    while size > bound:
        tier, bound = tier + 1, bound * FANOUT
    return tier

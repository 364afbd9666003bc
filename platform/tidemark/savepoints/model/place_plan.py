"""What a rewind would do to the place of a connector's output."""

from __future__ import annotations

from dataclasses import dataclass


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

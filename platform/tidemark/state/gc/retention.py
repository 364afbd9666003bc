"""Retention: the log keeps the newest epochs' records; older ones are deleted, oldest first.

The records left are always one contiguous run with the head in it. A term record older than the run may be deleted, since every epoch's
record names its term. Pins keep copies and do not block retention.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidemark.crashpoints import crash_point
from tidemark.state.log.joblog import Driver

DEFAULT_RETAINED_EPOCHS = 100


def plan_retention(epoch_slots: Sequence[int], *, retained_epochs: int, slack: int = 0) -> int | None:
    """Return the slot at which the log is to begin, None if it may stay as it is.

    Args:
        epoch_slots: slots of the retained epoch records, oldest first.
        retained_epochs: how many of the newest to keep, at least 1.
        slack: how many more may accumulate before any are deleted, so that this happens seldom.
    """
    keep = max(retained_epochs, 1)
    return epoch_slots[-keep] if len(epoch_slots) > keep + slack else None


def retire(driver: Driver, *, retained_epochs: int = DEFAULT_RETAINED_EPOCHS, slack: int = 0) -> int:
    """Retire old records; called by the driver after a commit. Returns how many records were deleted.

    A crash in between leaves records below the floor, which no longer belong to the log; the next call deletes them.

    Raises:
        FencedError: a newer driver has begun; nothing was retired.
    """
    floor = plan_retention(driver.epoch_slots(), retained_epochs=retained_epochs, slack=slack)
    if floor is None:
        return 0
    driver.confirm()
    crash_point("retention-begun")
    driver.log.slots.raise_floor(floor)
    crash_point("floor-raised")
    driver.forget_below(floor)
    deleted = driver.log.slots.delete_retired()
    crash_point("retention-done")
    return deleted

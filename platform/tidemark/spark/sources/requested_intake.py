"""The intake of an epoch: which share of its usual bounds it may read of each source, and when that changes."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Protocol

from tidemark.spark.sources.intake_limits import MAX_SHARE, MIN_SHARE

logger = logging.getLogger("tidemark")


class IntakeShare(Protocol):
    """The share that epochs may read, as a run uses it.

    ``observe`` is called by the thread that runs epochs, the rest by the one that starts queries.
    """

    @property
    def share(self) -> float:
        """The share in use."""

    @property
    def adapts(self) -> bool:
        """Whether it follows the epochs' time, so that each epoch must say whether it read as much as it might."""

    def observe(self, *, took_ms: int, filled: bool | None) -> None:
        """Take note of an epoch that had input."""

    @property
    def has_new_bounds(self) -> bool:
        """Whether the bounds of the sources are to change."""

    def apply(self) -> float:
        """Use the new share from now on, and return it."""


class RequestedIntake:
    """The share that somebody else decides on, such as the job's spec; an ``IntakeShare``.

    Args:
        requested: returns the share; None is all of the usual bounds. Called several times a second.
    """

    adapts = False

    def __init__(self, requested: Callable[[], float | None] = lambda: None) -> None:
        self._requested = requested
        self.share = self._wanted

    def observe(self, *, took_ms: int, filled: bool | None) -> None:
        """Do nothing: the share does not depend on epochs."""

    @property
    def has_new_bounds(self) -> bool:
        """Whether another share is requested."""
        return self._wanted != self.share

    def apply(self) -> float:
        """Use the requested share from now on, and return it."""
        self.share = self._wanted
        logger.info("an epoch now reads %.3g of its usual bounds, as requested", self.share)
        return self.share

    @property
    def _wanted(self) -> float:
        requested = self._requested()
        return 1.0 if requested is None else min(max(requested, MIN_SHARE), MAX_SHARE)

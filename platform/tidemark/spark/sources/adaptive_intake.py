"""Intake that follows the time epochs take, so that catching up after an outage is many epochs of the usual length, not a giant one.

Spark fixes how much a trigger may take when a query starts, and an epoch is one of its batches: a batch cannot be cut into several
epochs, since what is read again after a crash must be what Spark planned. So where another bound is wanted, the query is ended between
two epochs and another one goes on after the newest record, as at every start. That costs about half a second, and comes only when the
bound is off by half.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from typing import Final

from tidemark.graph.model.nodes import SourceNode
from tidemark.spark.sources.intake_limits import MAX_SHARE, MIN_SHARE, limited_specs

logger = logging.getLogger("tidemark")

UTILISATION: Final = 0.7
"""The share of the trigger interval that an epoch of a backlog should take; the rest is room for what takes longer now and then."""

MIN_TARGET_MS: Final = 700
"""Below it, an epoch is mostly what every epoch costs, whatever it reads."""

_GAIN_UP: Final = 0.5
_GAIN_DOWN: Final = 0.7
_MAX_UP: Final = 4.0
_MAX_DOWN: Final = 8.0
_OFF: Final = 1.5
"""A bound that is off by less is left alone."""


def next_share(share: float, *, took_ms: int, target_ms: float, filled: bool | None) -> float:
    """Return the share of the usual bounds that an epoch should read, from the share wanted so far and the last epoch's time.

    An integrating controller of the bound's logarithm: time grows with the bound and remembers nothing, so each step takes a part of
    the way to the target, and never leads past it. A step is bounded. A longer epoch never leads to a greater share. An epoch that
    read all there was says nothing of what more would take, so it raises nothing; where it is not known whether it did, the usual
    bounds are as far as it goes, so that what was lowered comes back and small epochs do not raise it for ever.

    Args:
        share: wanted so far.
        took_ms: how long the last epoch took.
        target_ms: how long one should take.
        filled: whether it read as much as it might, so that more may wait; None where that is not known.

    >>> next_share(1.0, took_ms=28_000, target_ms=7_000, filled=True) < 0.5
    True
    >>> next_share(1.0, took_ms=1_000, target_ms=7_000, filled=False)
    1.0
    >>> next_share(0.5, took_ms=1_000, target_ms=7_000, filled=None)
    1.0
    """
    ratio = target_ms / max(took_ms, 1)
    if ratio >= 1 and filled is False:
        return share
    step = min(math.pow(ratio, _GAIN_UP), _MAX_UP) if ratio >= 1 else max(math.pow(ratio, _GAIN_DOWN), 1 / _MAX_DOWN)
    most = MAX_SHARE if filled else max(share, 1.0)
    return min(max(share * step, MIN_SHARE), most)


class AdaptiveIntake:
    """Follows the epochs of a run and says when its query should start anew with other bounds.

    ``observe`` is called by the thread that runs epochs, the rest by the one that starts queries.

    Args:
        interval_ms: of the trigger.
        sources: of the job.
    """

    def __init__(self, interval_ms: int, sources: Sequence[SourceNode]) -> None:
        self._target_ms = max(UTILISATION * interval_ms, MIN_TARGET_MS)
        self._sources = tuple(sources)
        self._wanted = 1.0
        self.share = 1.0

    def observe(self, *, took_ms: int, filled: bool | None) -> None:
        """Take in an epoch that had input."""
        self._wanted = next_share(self._wanted, took_ms=took_ms, target_ms=self._target_ms, filled=filled)

    @property
    def has_new_bounds(self) -> bool:
        """Whether the bounds are off by so much that another query should read on."""
        off = abs(math.log(self._wanted / self.share)) >= math.log(_OFF)
        return off and limited_specs(self._sources, self._wanted) != limited_specs(self._sources, self.share)

    def apply(self) -> float:
        """Make the share that is wanted the one to read with, and return it."""
        logger.info("an epoch now reads %.3g of its usual bounds, so that it takes about %d ms", self._wanted, self._target_ms)
        self.share = self._wanted
        return self.share

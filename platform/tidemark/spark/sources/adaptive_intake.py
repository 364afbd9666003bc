"""Adapts an epoch's intake to the time epochs take: catching up after an outage is many epochs of the usual length, not a giant one.

Spark fixes how much a trigger may take when a query starts, and an epoch is one of its batches: a batch cannot be cut into several
epochs, since after a crash exactly the input that Spark planned must be read again. So to change the bound, the query is ended between
two epochs and another one resumes after the newest record, as at every start. That costs about half a second, and happens only when
the bound is off by half.
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
"""The share of the trigger interval that an epoch of a backlog should take; the rest is a margin for epochs that take longer."""

MIN_TARGET_MS: Final = 700
"""Below it, an epoch's time is mostly the fixed cost of any epoch."""

_GAIN_UP: Final = 0.5
_GAIN_DOWN: Final = 0.7
_MAX_UP: Final = 4.0
_MAX_DOWN: Final = 8.0
_OFF: Final = 1.5
"""A bound that is off by a smaller factor is left alone."""


def next_share(share: float, *, took_ms: int, target_ms: float, filled: bool | None) -> float:
    """Return the share of the usual bounds that an epoch should read, from the current share and the last epoch's time.

    An integrating controller of the bound's logarithm: time grows with the bound and has no memory, so each step goes a part of the
    way to the target, and never past it. A step is bounded. A longer epoch never leads to a greater share. An epoch that read all
    available input says nothing of how long more would take, so it does not raise the share; where it is not known whether it did, the
    share rises to the usual bounds at most, so that a lowered share recovers and small epochs do not raise it for ever.

    Args:
        share: the current one.
        took_ms: how long the last epoch took, milliseconds.
        target_ms: how long an epoch should take, milliseconds.
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
    """Observes the epochs of a run and decides when its query should be restarted with other bounds; an ``IntakeShare``.

    ``observe`` is called by the thread that runs epochs, the rest by the one that starts queries.

    Args:
        interval_ms: of the trigger.
        sources: of the job.
    """

    adapts = True

    def __init__(self, interval_ms: int, sources: Sequence[SourceNode]) -> None:
        self._target_ms = max(UTILISATION * interval_ms, MIN_TARGET_MS)
        self._sources = tuple(sources)
        self._wanted = 1.0
        self.share = 1.0

    def observe(self, *, took_ms: int, filled: bool | None) -> None:
        """Update the wanted share from an epoch that had input."""
        self._wanted = next_share(self._wanted, took_ms=took_ms, target_ms=self._target_ms, filled=filled)

    @property
    def has_new_bounds(self) -> bool:
        """Whether the bounds are off by so much that another query should continue."""
        off = abs(math.log(self._wanted / self.share)) >= math.log(_OFF)
        return off and limited_specs(self._sources, self._wanted) != limited_specs(self._sources, self.share)

    def apply(self) -> float:
        """Use the wanted share from now on, and return it."""
        logger.info("an epoch now reads %.3g of its usual bounds, so that it takes about %d ms", self._wanted, self._target_ms)
        self.share = self._wanted
        return self.share

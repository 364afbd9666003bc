"""What a comparison of results with the input may say, and the rule by which one place of either is judged."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Final

import numpy as np
import numpy.typing as npt

from benchmarks.data.fares import Doubles, Longs
from tidemark.errors import TidemarkError

Flags = npt.NDArray[np.bool_]

RELATIVE: Final = 1e-9
"""Floating-point sums depend on the order of their terms."""


class DisagreementError(TidemarkError):
    """An engine's results are not what the input says; its speed means nothing."""

    code: ClassVar[str] = "TM900"


@dataclass(frozen=True)
class Verdict:
    """Of an engine's results that passed.

    Args:
        compared: results in which no late row falls.
        late_kept: rows in an output of late ones.
        late_lost: rows of closed windows that are neither there nor in a result; pairs of row and window, where a row is in many.
    """

    compared: int
    late_kept: int
    late_lost: int


@dataclass(frozen=True)
class Bounds:
    """What results may say, place by place: a place is a key and window, or a session with all that could be part of it.

    Args:
        least: rows that must be counted.
        most: rows that may be counted.
        least_cents: fares of these.
        most_cents: fares of those.
        certain: places where no late row falls, so that every engine must say the same.
    """

    least: Longs
    most: Longs
    least_cents: Longs
    most_cents: Longs
    certain: Flags

    def within(self, places: Flags) -> Bounds:
        """Return the bounds of some places."""
        return Bounds(self.least[places], self.most[places], self.least_cents[places], self.most_cents[places], self.certain[places])


@dataclass(frozen=True)
class Found:
    """What an engine says, place by place: rows, fares in dollars, and whether there is a result."""

    rows: Longs
    fares: Doubles
    there: Flags

    def within(self, places: Flags) -> Found:
        """Return what was found in some places."""
        return Found(self.rows[places], self.fares[places], self.there[places])


def hold(engine: str, bounds: Bounds, found: Found, *, keeps_late: bool, name: Callable[[int], str]) -> int:
    """Hold what was found against the bounds; returns how many rows were neither counted nor kept.

    Args:
        engine: for the error.
        bounds: by place; what an engine keeps in an output of late rows is not among what it may count.
        found: by place.
        keeps_late: the engine has such an output, and has to account for every row.
        name: names a place by its number.

    Raises:
        DisagreementError: they differ; the first place that does is named.
    """

    def none(wrong: Flags, says: str) -> None:
        places = np.flatnonzero(wrong)
        if len(places):
            first = int(places[0])
            least, most = bounds.least[first], bounds.most[first]
            known = f"{most} rows" if least == most else f"{least} to {most} rows"
            said = f"{found.rows[first]} rows, {found.fares[first]:.2f}"
            require(
                engine,
                holds=False,
                says=f"{says} in {len(places):,} places, first {name(first)}: {said} against {known}, {bounds.most_cents[first] / 100:.2f}",
            )

    over, under = found.rows > bounds.most, found.rows < bounds.least
    none(bounds.certain & (over | under), "has another count")
    none(over, "counts rows twice")
    none(under, "neither counts nor keeps some rows" if keeps_late else "loses rows that are on time")
    none(found.there & (bounds.most == 0), "has a result of no rows")
    cents = found.fares * 100
    slack = RELATIVE * np.maximum(np.abs(cents), bounds.most_cents)
    amiss = (cents < bounds.least_cents - slack) | (cents > bounds.most_cents + slack)
    none(bounds.certain & amiss, "has another sum")
    none(amiss, "has another sum with its late rows")
    return int((bounds.most - found.rows).sum())


def require(engine: str, *, holds: bool, says: str) -> None:
    """Let what holds pass.

    Raises:
        DisagreementError: it does not hold.
    """
    if not holds:
        raise DisagreementError(
            f"{engine} {says}", fix="find out which is wrong before comparing speed: run the workload on fewer rows", uid=engine
        )


def to_cents(fares: Doubles) -> Longs:
    """Return fares in whole cents, which add up exactly.

    >>> to_cents(np.array([0.29, 50.0])).tolist()
    [29, 5000]
    """
    cents: Longs = np.rint(fares * 100).astype(np.int64)
    return cents

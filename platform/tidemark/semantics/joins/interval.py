"""Interval joins: which elements meet, which are late, when outer rows come, and when state is dropped.

A left element of time ``l`` and a right one of time ``r`` with the same key meet if ``lower <= r - l <= upper``. So an element of either
side has partners up to its ``reach`` after it: ``upper`` for the left side, ``-lower`` for the right. It may be negative: then all
partners are earlier.

An element of an epoch is on time if its own time is after W(n-1), the operator's watermark after the epoch before.

- **Gone.** Once ``t + reach <= W`` after an epoch, no element that is on time can be a partner any more. The element is gone: no later one
  meets it. If it had no partner, and its side is an outer one, its outer row comes in this very epoch, once.
- **Late.** An element behind the watermark is accepted as long as it can meet anything: a later one, since it is not gone when it comes, or
  one in state. Its newest partner in state would be of time ``t + reach``, and is not gone as long as its own reach goes beyond W(n-1). So
  an element is late if ``t + reach + max(reach of the other side, 0) <= W(n-1)``. That depends on its time alone, not on what other
  elements there are. An element that is on time is never late.
- **Pairs.** An element meets those of the other side that came in an earlier epoch and were not gone after the epoch before, and all that
  come in its own epoch. A pair comes in the epoch in which the second of the two does, with the later of their times. An element that is
  accepted behind the watermark may be gone already: it still meets what it meets in its epoch, or its outer row comes at its end.
- **Null** in a key meets nothing; the outer row comes when it would for any other element of that time.
- **Semi** joins give a left element in the epoch in which it has a partner for the first time, **anti** joins where an outer row would
  come. Both have the left element's own time, as outer rows have.
- **Time.** A row with an element's own time comes up to its reach after the watermark passed it. So operators that follow see the watermark
  later by the greatest reach of the sides that have such rows, as in Flink SQL: a row of an element that was on time is never late there.
- **State** has an element until it is gone. Where the other side's elements without a partner have results, or semi joins have to know
  whether there was one before, it stays longer: until none of its partners is left that could need it, at
  ``t + reach + max(reach of the other side, 0) <= W``. So no more than the width of the interval is kept, behind the watermark.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Final, Generic, Literal, TypeVar, get_args

from tidemark.semantics.watermarks.watermark_strategy import MIN_WATERMARK

R = TypeVar("R")

Side = Literal["left", "right"]
How = Literal["inner", "left", "right", "full", "semi", "anti"]

SIDES: Final[tuple[Side, Side]] = get_args(Side)
HOWS: Final[tuple[How, ...]] = get_args(How)

_OUTER: Final[dict[How, tuple[Side, ...]]] = {"left": ("left",), "right": ("right",), "full": SIDES, "anti": ("left",)}


def other_side(side: Side) -> Side:
    """Return the side that a side is joined with."""
    return "right" if side == "left" else "left"


def outer_sides(how: How) -> tuple[Side, ...]:
    """Return the sides whose elements have a result if they have no partner."""
    return _OUTER.get(how, ())


@dataclass(frozen=True)
class IntervalJoin:
    """The rule. ``lower_ms <= upper_ms`` are the bounds of the right time minus the left one, both inclusive.

    >>> rule = IntervalJoin(lower_ms=-10, upper_ms=60, how="left")
    >>> rule.meets(100, 90), rule.meets(100, 160), rule.meets(100, 161)
    (True, True, False)
    >>> [rule.is_late("left", 100, watermark) for watermark in (169, 170)]
    [False, True]
    >>> rule.gone_at("left", 100), rule.gone_at("right", 100), rule.dropped_at("right", 100)
    (160, 110, 170)
    """

    lower_ms: int
    upper_ms: int
    how: How = "inner"

    def meets(self, left: int, right: int) -> bool:
        """Return whether elements of these times and of one key are partners."""
        return self.lower_ms <= right - left <= self.upper_ms

    def reach(self, side: Side) -> int:
        """Return how long after an element its last partner can be, milliseconds; negative if all are before it."""
        return self.upper_ms if side == "left" else -self.lower_ms

    def span(self, side: Side) -> int:
        """Return how long after an element the last one can be that is gone before its own partners are."""
        return self.reach(side) + max(self.reach(other_side(side)), 0)

    def is_late(self, side: Side, time: int, watermark: int) -> bool:
        """Return whether an element comes too late to meet anything; ``watermark`` is W(n-1)."""
        return time + self.span(side) <= watermark

    def gone_at(self, side: Side, time: int) -> int:
        """Return the least watermark at which no partner of an element can come on time any more."""
        return time + self.reach(side)

    def retention(self, side: Side) -> int:
        """Return how long after its time an element is kept, by the watermark."""
        asked = other_side(side) in outer_sides(self.how) or (self.how == "semi" and side == "right")
        return self.span(side) if asked else self.reach(side)

    def dropped_at(self, side: Side, time: int) -> int:
        """Return the least watermark at which an element leaves the state."""
        return time + self.retention(side)

    @property
    def result_delay(self) -> int:
        """How far behind the watermark the own time of an element that is on time can be when its row comes, milliseconds.

        >>> IntervalJoin(-10, 60, "left").result_delay, IntervalJoin(-10, 60, "right").result_delay, IntervalJoin(-10, 60).result_delay
        (60, 10, 0)
        """
        sides = SIDES[:1] if self.how == "semi" else outer_sides(self.how)
        return max([max(self.reach(side), 0) for side in sides], default=0)

    def keeps_null(self, side: Side) -> bool:
        """Return whether an element with a null in its key is kept, for its outer row."""
        return side in outer_sides(self.how)


@dataclass
class _Element(Generic[R]):
    """An element in the reference's state."""

    side: Side
    key: Hashable
    time: int
    row: R
    matched: bool = False
    gone: bool = False


@dataclass(frozen=True)
class Joined(Generic[R]):
    """A result: the rows of both sides, one of them None in outer rows and in those of semi and anti joins; and its event time."""

    left: R | None
    right: R | None
    time: int


class IntervalJoinByElement(Generic[R]):
    """A reference of the contract, one element at a time: tests compare the engine with it.

    It marks elements that had a partner, and those that are gone; the engine concludes both from times and epochs.
    """

    def __init__(self, rule: IntervalJoin) -> None:
        self._rule = rule
        self._watermark = MIN_WATERMARK
        self._kept: list[_Element[R]] = []
        self._found: list[Joined[R]] = []

    def resume(self, kept: IntervalJoinByElement[R]) -> None:
        """Resume from what a join kept that may have been declared otherwise."""
        self._watermark, self._kept = kept._watermark, kept._kept

    def process(self, side: Side, key: Hashable | None, time: int, row: R) -> bool:
        """Process an element; return whether it is accepted, false for a late one.

        Args:
            side: on which it comes in.
            key: None if a part of it is null.
            time: its event time.
            row: what results have of it.
        """
        if self._rule.is_late(side, time, self._watermark):
            return False
        new = _Element(side, key, time, row)
        for other in self._kept:
            if other.side != side and key is not None and other.key == key and not other.gone and self._meet(new, other):
                self._pair(*((new, other) if side == "left" else (other, new)))
        self._kept.append(new)
        return True

    def _meet(self, one: _Element[R], other: _Element[R]) -> bool:
        left, right = (one, other) if one.side == "left" else (other, one)
        return self._rule.meets(left.time, right.time)

    def _pair(self, left: _Element[R], right: _Element[R]) -> None:
        if self._rule.how == "semi":
            if not left.matched:
                self._found.append(Joined(left.row, None, left.time))
        elif self._rule.how != "anti":
            self._found.append(Joined(left.row, right.row, max(left.time, right.time)))
        left.matched = right.matched = True

    def end_epoch(self, watermark: int) -> list[Joined[R]]:
        """End the epoch with the operator's watermark, W(n); return its results."""
        self._watermark = max(self._watermark, watermark)
        for each in self._kept:
            if not each.gone and self._rule.gone_at(each.side, each.time) <= self._watermark:
                each.gone = True
                if not each.matched and each.side in outer_sides(self._rule.how):
                    own = each.row
                    self._found.append(Joined(own, None, each.time) if each.side == "left" else Joined(None, own, each.time))
        self._kept = [each for each in self._kept if self._is_kept(each)]
        found, self._found = self._found, []
        return found

    def _is_kept(self, element: _Element[R]) -> bool:
        if element.key is None and not self._rule.keeps_null(element.side):
            return False
        return self._rule.dropped_at(element.side, element.time) > self._watermark

    def kept(self) -> list[tuple[Side, Hashable, int, R]]:
        """Return the state: side, key, time and row of each element, earliest first."""
        return sorted(((each.side, each.key, each.time, each.row) for each in self._kept), key=lambda each: each[2])

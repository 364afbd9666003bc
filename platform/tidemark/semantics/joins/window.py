"""Window joins: which elements are paired, when windows fire, which elements are late, and when state is dropped.

Elements of both sides that are in the same window ``[s, e)`` of a key are paired when the window fires. ``L`` is the allowed lateness.

- **Late.** A window accepts an element unless ``e - 1 + L <= W(n-1)``, the operator's watermark after the epoch before. An element that no
  window accepts is late.
- **Firing.** A window of a key fires ON_TIME, with index 0, in the first epoch with ``W(n) >= e - 1``. Elements that it accepts afterwards
  fire it at the end of their epoch, as LATE, with the next index; if nothing came before them, with index 0. Each firing gives the whole
  result of that key and window once more. Firings without a result are counted, too.
- **Outer rows.** An element whose side is an outer one, and whose key and window has no element of the other side, has a row of its own
  in each firing. Semi and anti joins give the left elements that have a partner, or have none, in each window and firing.
- **Null** in a key matches nothing. Elements of an outer side have their outer rows; elements with equal keys, nulls among them, fire
  together. Those of other sides are accepted, and change nothing.
- **Time** of a result is ``e - 1``.
- **State** has an element of a window until ``e - 1 + L <= W``.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import Generic, Literal, TypeVar

from tidemark.semantics.joins.interval import How, Side, outer_sides
from tidemark.semantics.watermarks.watermark_strategy import MIN_WATERMARK
from tidemark.semantics.windows.assigners import Cumulative, Sliding, Tumbling
from tidemark.semantics.windows.windows import Window

R = TypeVar("R")

Key = tuple[Hashable, ...]
AlignedWindows = Tumbling | Sliding | Cumulative
Timing = Literal["ON_TIME", "LATE"]


@dataclass(frozen=True)
class WindowJoin:
    """The rule.

    >>> rule = WindowJoin(Tumbling(10), "left", allowed_lateness_ms=5)
    >>> rule.accepting(7, 13), rule.accepting(7, 14)
    ((Window(start=0, end=10),), ())
    """

    assigner: AlignedWindows
    how: How = "inner"
    allowed_lateness_ms: int = 0

    def expires_at(self, end: int) -> int:
        """Return the least watermark at which a window accepts nothing any more, and its elements leave the state."""
        return end - 1 + self.allowed_lateness_ms

    def accepting(self, time: int, watermark: int) -> tuple[Window, ...]:
        """Return the windows that accept an element, none for a late one; ``watermark`` is W(n-1)."""
        return tuple(window for window in self.assigner.assign(time) if self.expires_at(window.end) > watermark)

    def keeps_null(self, side: Side) -> bool:
        """Return whether an element with a null in its key is kept, for its outer row."""
        return side in outer_sides(self.how)


@dataclass(frozen=True)
class WindowJoined(Generic[R]):
    """A result: the rows of both sides, one of them None in outer rows and in those of semi and anti joins; its window and pane."""

    left: R | None
    right: R | None
    window: Window
    timing: Timing
    index: int


@dataclass
class _Group(Generic[R]):
    """The elements of a key and window, and how often it fired."""

    left: list[R] = field(default_factory=list)
    right: list[R] = field(default_factory=list)
    fired: int = 0
    touched: bool = False


class WindowJoinByElement(Generic[R]):
    """A reference of the contract, one element at a time: tests compare the engine with it.

    It counts the firings of each key and window; the engine concludes them from the epochs of its elements.
    """

    def __init__(self, rule: WindowJoin) -> None:
        self._rule = rule
        self._watermark = MIN_WATERMARK
        self._groups: dict[tuple[Key, Window], _Group[R]] = {}

    def resume(self, kept: WindowJoinByElement[R]) -> None:
        """Resume from what a join kept that may have been declared otherwise."""
        self._watermark, self._groups = kept._watermark, kept._groups

    def process(self, side: Side, key: Key, time: int, row: R) -> bool:
        """Process an element; return whether it is accepted, false for a late one."""
        windows = self._rule.accepting(time, self._watermark)
        if None not in key or self._rule.keeps_null(side):
            for window in windows:
                group = self._groups.setdefault((key, window), _Group())
                (group.left if side == "left" else group.right).append(row)
                group.touched = True
        return bool(windows)

    def end_epoch(self, watermark: int) -> list[WindowJoined[R]]:
        """End the epoch with the operator's watermark, W(n); return its results."""
        before, self._watermark = self._watermark, max(self._watermark, watermark)
        found: list[WindowJoined[R]] = []
        for (key, window), group in list(self._groups.items()):
            late = window.max_timestamp <= before
            if group.touched if late else window.max_timestamp <= self._watermark:
                pairs = self._pairs(key, group)
                found += [WindowJoined(*pair, window, "LATE" if late else "ON_TIME", group.fired) for pair in pairs]
                group.fired += 1
            group.touched = False
            if self._rule.expires_at(window.end) <= self._watermark:
                del self._groups[key, window]
        return found

    def _pairs(self, key: Key, group: _Group[R]) -> Sequence[tuple[R | None, R | None]]:
        how, unmatched = self._rule.how, None in key
        left, right = (unmatched or not group.right), (unmatched or not group.left)
        alone: list[tuple[R | None, R | None]] = []
        if left and "left" in outer_sides(how):
            alone += [(row, None) for row in group.left]
        if right and "right" in outer_sides(how):
            alone += [(None, row) for row in group.right]
        if how == "semi":
            return [] if left else [(row, None) for row in group.left]
        pairs = [] if how == "anti" or unmatched else [(one, other) for one in group.left for other in group.right]
        return [*pairs, *alone]

    def kept(self) -> list[tuple[Side, Key, Window, R]]:
        """Return the state: side, key, window and row of each element in each of its windows."""
        found: list[tuple[Side, Key, Window, R]] = []
        for (key, window), group in self._groups.items():
            found += [("left", key, window, row) for row in group.left]
            found += [("right", key, window, row) for row in group.right]
        return found

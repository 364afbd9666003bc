"""Which stored elements a window no longer holds, in compact form, so that removing an element does not rewrite stored files.

Elements are stored once and never changed. Each has a time and an order, a number that grows with arrival. Elements that a purge or an
evictor removed from a window are recorded here; compaction may then drop elements that no window holds.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from tidemark.semantics.windows.windows import Window


@dataclass(frozen=True)
class ElementRange:
    """Elements of times ``[start, end)`` that had arrived up to an order, except some."""

    start: int
    end: int
    through: int
    except_orders: frozenset[int] = frozenset()

    def covers(self, timestamp: int, order: int) -> bool:
        """Return whether an element is one of them."""
        return order <= self.through and self.start <= timestamp < self.end and order not in self.except_orders

    def is_within(self, other: ElementRange) -> bool:
        """Return whether all of them are in another range, which has no exceptions."""
        return not other.except_orders and other.start <= self.start and self.end <= other.end and self.through <= other.through


@dataclass(frozen=True)
class RemovedElements:
    """The elements removed from one window: ranges, and single elements by their order."""

    areas: tuple[ElementRange, ...] = ()
    single: frozenset[int] = frozenset()

    def covers(self, timestamp: int, order: int) -> bool:
        """Return whether an element was removed."""
        return order in self.single or any(area.covers(timestamp, order) for area in self.areas)

    def with_survivors(self, window: Window, through: int, *, held: Sequence[int], survivors: Sequence[int]) -> RemovedElements:
        """Return the removed elements after an eviction, in the shorter form: by those evicted, or by those that stay.

        Args:
            window: the one that fired.
            through: the greatest order that an element of the epoch can have.
            held: orders of all elements that the window held, ascending.
            survivors: orders of those that stay, ascending.
        """
        if not survivors:
            return all_of(window, through)
        first = survivors[0]
        head = ElementRange(window.start, window.end, first - 1)
        areas = tuple(area for area in self.areas if not area.is_within(head))
        single = frozenset(order for order in self.single if order > first)
        if held[0] < first or len(areas) < len(self.areas) or len(single) < len(self.single):
            areas = (*areas, head)
        single |= {order for order in held if order > first} - set(survivors)
        if len(single) + sum(len(area.except_orders) for area in areas) > len(survivors):
            return RemovedElements((ElementRange(window.start, window.end, through, frozenset(survivors)),))
        return RemovedElements(areas, single)

    def to_json(self) -> list[object]:
        """Return the removed elements as plain JSON."""
        return [[[area.start, area.end, area.through, sorted(area.except_orders)] for area in self.areas], sorted(self.single)]


NOTHING_REMOVED: Final = RemovedElements()


def all_of(window: Window, through: int) -> RemovedElements:
    """Return all elements of a window that have arrived as removed, as after a purge."""
    return RemovedElements((ElementRange(window.start, window.end, through),))


def united(parts: Iterable[RemovedElements]) -> RemovedElements:
    """Return the removed elements of a session merged from others: those removed from each."""
    found = list(parts)
    areas = tuple(area for part in found for area in part.areas)
    return RemovedElements(areas, frozenset(order for part in found for order in part.single))


def removed_from_json(value: object) -> RemovedElements:
    """Return the removed elements from the JSON of ``RemovedElements.to_json``."""
    areas, single = value  # type: ignore[misc]
    found = tuple(ElementRange(start, end, through, frozenset(spared)) for start, end, through, spared in areas)  # type: ignore[has-type]
    return RemovedElements(found, frozenset(single))  # type: ignore[has-type]


def add_tombstone(graves: Iterable[ElementRange], window: Window, through: int, open_windows: Iterable[Window]) -> tuple[ElementRange, ...]:
    """Return the tombstones of a key's sessions with one more: the elements of an expired session, which no later session may hold.

    By merging, a later session can cover the times of an expired one while its elements are still stored. Tombstones with no open session
    between them are united: no element there belongs to a window. So there are hardly more tombstones than open sessions.

    Args:
        graves: the key's tombstones so far.
        window: the expired session.
        through: the greatest order that an element of the epoch can have.
        open_windows: of the key, without the expired one.
    """
    taken = sorted(open_windows)
    joined: list[ElementRange] = []
    for grave in sorted([*graves, ElementRange(window.start, window.end, through)], key=lambda area: (area.start, area.end)):
        if joined:
            last = joined[-1]
            start, end = last.start, max(last.end, grave.end)
            if not any(other.start < end and start < other.end for other in taken):
                joined[-1] = ElementRange(start, end, max(last.through, grave.through))
                continue
        joined.append(grave)
    return tuple(joined)

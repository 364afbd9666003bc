"""The order of a map's keys, so that a removal that is undone puts a key back to its place."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from tidemark.semantics.keyed_process.key_record import Entry


class MapOrder:
    """The places of the keys of a map, numbered once; each key that is put later has the next place.

    Args:
        entries: the map, which it changes.
    """

    def __init__(self, entries: dict[object, Entry]) -> None:
        self.entries = entries
        self._places = {key: place for place, key in enumerate(entries)}
        self._next = len(entries)

    def append(self, key: object) -> None:
        """Note a key that is put."""
        self._places[key] = self._next
        self._next += 1

    def remove(self, key: object) -> Callable[[], None]:
        """Remove a key; return what puts it back.

        >>> order = MapOrder({"a": (1, 0), "b": (2, 0), "c": (3, 0)})
        >>> undo = order.remove("b")
        >>> undo()
        >>> "".join(order.entries)
        'abc'
        """
        return partial(self._put_back, key, self.entries.pop(key), self._places.pop(key))

    def _put_back(self, key: object, entry: Entry, place: int) -> None:
        self.entries[key], self._places[key] = entry, place
        in_order = sorted(self.entries.items(), key=lambda each: self._places[each[0]])
        self.entries.clear()
        self.entries.update(in_order)

"""The join of two tables, in plain Python: what a regular join's content is at an epoch's end, and how it changes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from typing import Generic, Literal, TypeVar

from tidemark.semantics.changelog.lifetimes import KeyLifetimes
from tidemark.semantics.changelog.row_kinds import RowKind
from tidemark.semantics.keyed_process.declarations import StateTtl

Row = TypeVar("Row")
How = Literal["inner", "left", "right", "full", "semi", "anti"]
Compared = tuple[Hashable, ...]


def joined(
    left: Iterable[tuple[Compared, Row]], right: Iterable[tuple[Compared, Row]], how: How
) -> Iterator[tuple[Row | None, Row | None]]:
    """Yield the join of two tables, as pairs of rows; None for a row without a partner.

    Args:
        left: the rows of the left table, each with its compared values; a None among them equals nothing.
        right: those of the right.
        how: the kind of join; ``semi`` and ``anti`` give left rows alone.

    >>> list(joined([((1,), "a"), ((None,), "b")], [((1,), "x"), ((2,), "y")], "full"))
    [('a', 'x'), ('b', None), (None, 'y')]
    """
    partners: dict[Compared, list[Row]] = defaultdict(list)
    listed = list(right)
    for compared, row in listed:
        if None not in compared:
            partners[compared].append(row)
    met: set[Compared] = set()
    for compared, row in left:
        found = partners.get(compared, [])
        met.add(compared)
        if how in {"semi", "anti"}:
            if bool(found) == (how == "semi"):
                yield row, None
            continue
        yield from ((row, partner) for partner in found)
        if not found and how in {"left", "full"}:
            yield row, None
    if how in {"right", "full"}:
        yield from ((None, row) for compared, row in listed if None in compared or compared not in met)


class TableContent(Generic[Row]):
    """The content of a changelog: its rows by key. ``was`` is the content before the epoch.

    With a lifetime, a row that expired is in ``was`` as far as a change of the epoch brings it.

    Args:
        ttl: how long a row lives after it was inserted or updated, None for ever.
    """

    def __init__(self, ttl: StateTtl | None = None) -> None:
        self.rows: dict[Hashable, Row] = {}
        self.was: dict[Hashable, Row] = {}
        self._lives: KeyLifetimes[Hashable] = KeyLifetimes(ttl)
        self._changed: set[Hashable] = set()

    def resume(self, kept: TableContent[Row]) -> None:
        """Resume from the rows that a table had whose lifetime may have been another."""
        self.rows, self.was = kept.rows, kept.was
        self._lives.resume_keys(kept._lives, self.rows)

    def begin(self, now: int) -> None:
        """Begin an epoch: drop the rows whose lifetime is over."""
        self.expire(now)
        self.was = dict(self.rows)
        self._changed.clear()

    def expire(self, now: int) -> None:
        """Drop the rows whose lifetime is over."""
        for key in self._lives.expire(now):
            self.rows.pop(key, None)

    def apply(self, key: Hashable, kind: RowKind, row: Row) -> None:
        """Apply a change."""
        if kind.adds:
            self.rows[key] = row
            self._lives.touch(key)
        else:
            self.rows.pop(key, None)
            if key not in self._changed:
                self.was.setdefault(key, row)
        self._changed.add(key)

    def end(self, now: int) -> None:
        """End an epoch: the rows that it wrote live from a time on."""
        self._lives.renew(now)
        self.expire(now)


def net_changes(
    before: Mapping[Hashable, Row], after: Mapping[Hashable, Row], same: Callable[[Row, Row], bool]
) -> Iterator[tuple[RowKind, Row]]:
    """Yield how one content becomes another, as history has it: inserts, the row after an update, the row that was deleted."""
    for key, row in after.items():
        if key not in before:
            yield RowKind.INSERT, row
        elif not same(before[key], row):
            yield RowKind.UPDATE_AFTER, row
    yield from ((RowKind.DELETE, row) for key, row in before.items() if key not in after)

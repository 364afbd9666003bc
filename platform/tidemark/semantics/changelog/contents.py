"""The content of a changelog in plain Python: its fold, the newest row of each key, and the best rows of each group."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, Literal, TypeVar

from tidemark.semantics.changelog.lifetimes import KeyLifetimes
from tidemark.semantics.changelog.row_kinds import RowKind

K = TypeVar("K", bound=Hashable)
R = TypeVar("R")


def fold(content: Mapping[K, R], changes: Iterable[tuple[RowKind, K, R]]) -> dict[K, R]:
    """Return the content after changes: rows by key.

    Raises:
        ValueError: a change does not fit the content, such as a delete of a key that is not there.

    >>> fold({"a": 1}, [(RowKind.UPDATE_BEFORE, "a", 1), (RowKind.UPDATE_AFTER, "a", 2), (RowKind.INSERT, "b", 3)])
    {'a': 2, 'b': 3}
    """
    found = dict(content)
    for kind, key, row in changes:
        if kind.adds == (key in found):
            raise ValueError(f"{kind.name} of {key!r}, which {'is' if key in found else 'is not'} there")
        if kind.adds:
            found[key] = row
        elif found.pop(key) != row:
            raise ValueError(f"{kind.name} of {key!r} with another row than the one that is there")
    return found


def changes_between(before: Mapping[K, R], after: Mapping[K, R]) -> list[tuple[RowKind, K, R]]:
    """Return the net changes from one content to another.

    >>> [(kind.name, key, row) for kind, key, row in changes_between({"a": 1, "b": 2}, {"a": 3, "c": 4})]
    [('UPDATE_BEFORE', 'a', 1), ('UPDATE_AFTER', 'a', 3), ('DELETE', 'b', 2), ('INSERT', 'c', 4)]
    """
    found: list[tuple[RowKind, K, R]] = []
    for key, row in before.items():
        if key not in after:
            found.append((RowKind.DELETE, key, row))
        elif after[key] != row:
            found += [(RowKind.UPDATE_BEFORE, key, row), (RowKind.UPDATE_AFTER, key, after[key])]
    return [*found, *((RowKind.INSERT, key, row) for key, row in after.items() if key not in before)]


@dataclass
class LatestByElement(Generic[K, R]):
    """The newest row of each key, element by element in the order of the source.

    ``ordered`` says that rows have sequences: then keys that were deleted are remembered with theirs. A null sequence is less than any
    value. ``lives`` says how long a row lives after it was written.
    """

    ordered: bool = False
    lives: KeyLifetimes[K] = field(default_factory=KeyLifetimes)
    rows: dict[K, R] = field(default_factory=dict)
    sequences: dict[K, Any] = field(default_factory=dict)

    def resume(self, kept: LatestByElement[K, R]) -> None:
        """Resume from the rows that an operator kept that may have been declared otherwise."""
        self.rows, self.sequences = kept.rows, kept.sequences
        self.lives.resume_keys(kept.lives, {*self.rows, *self.sequences})

    def process(self, key: K, row: R, *, sequence: Any = None, deleted: bool = False) -> Literal["accepted", "outdated"]:  # noqa: ANN401
        """Take a row; return ``outdated`` where its sequence is less than that of a row that came before."""
        if self.is_outdated(key, sequence):
            return "outdated"
        if self.ordered:
            self.sequences[key] = sequence
        self.lives.touch(key)
        if deleted:
            self.rows.pop(key, None)
        else:
            self.rows[key] = row
        return "accepted"

    def is_outdated(self, key: K, sequence: Any) -> bool:  # noqa: ANN401
        """Return whether a sequence is less than that of a row of the key that came before."""
        return self.ordered and key in self.sequences and _is_less(sequence, self.sequences[key])

    def expire(self, now: int) -> None:
        """Drop the keys whose lifetime is over. Called before an epoch's elements."""
        for key in self.lives.expire(now):
            self.rows.pop(key, None)
            self.sequences.pop(key, None)


def best_rows(rows: Iterable[R], n: int, group: Callable[[R], K], order: Callable[[R], Any]) -> dict[K, list[R]]:
    """Return the first ``n`` rows of each group in an order.

    >>> best_rows([3, 1, 2, 10], 2, group=lambda row: row >= 10, order=lambda row: row)
    {False: [1, 2], True: [10]}
    """
    groups: dict[K, list[R]] = {}
    for row in rows:
        groups.setdefault(group(row), []).append(row)
    return {key: sorted(members, key=order)[:n] for key, members in groups.items()}


def _is_less(one: Any, other: Any) -> bool:  # noqa: ANN401
    if one is None or other is None:
        return one is None and other is not None
    return bool(one < other)

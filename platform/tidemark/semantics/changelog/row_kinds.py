"""The kinds of a changelog's rows, as Flink has them, and the net change of a key in an epoch."""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum
from typing import Final, TypeVar

R = TypeVar("R")


class RowKind(IntEnum):
    """What a row of a changelog says of its key. An update is two rows: the one before it, and the one after."""

    INSERT = 0
    UPDATE_BEFORE = 1
    UPDATE_AFTER = 2
    DELETE = 3

    @property
    def adds(self) -> bool:
        """Whether the row is there from now on; else it is there no longer."""
        return self in (RowKind.INSERT, RowKind.UPDATE_AFTER)


NAMES: Final = {
    "insert": RowKind.INSERT,
    "update_before": RowKind.UPDATE_BEFORE,
    "update_after": RowKind.UPDATE_AFTER,
    "delete": RowKind.DELETE,
}
"""The kinds by the names that users write and read."""

SIGNS: Final = {"+I": RowKind.INSERT, "-U": RowKind.UPDATE_BEFORE, "+U": RowKind.UPDATE_AFTER, "-D": RowKind.DELETE}
"""The kinds by the signs that Flink prints."""


def net_change(rows: Iterable[tuple[RowKind, R]]) -> tuple[R | None, R | None]:
    """Return the row before and the row after all changes of one key, None where there is none.

    Args:
        rows: the changes, in order.

    >>> net_change([(RowKind.INSERT, "a"), (RowKind.UPDATE_BEFORE, "a"), (RowKind.UPDATE_AFTER, "b")])
    (None, 'b')
    """
    ordered = list(rows)
    if not ordered:
        return None, None
    (first, before), (last, after) = ordered[0], ordered[-1]
    return (None if first.adds else before), (after if last.adds else None)

"""What an epoch takes of the changes, and of the rows that a table has: the algorithm of the snapshot without a gap or a double.

A part of a table is read by one snapshot, between two keys, while changes go on. The epoch with the part has all changes up to an LSN
after the snapshot, in this order: those that the snapshot sees, the rows of the part, those that it does not see. Changes of rows that
are not read yet are taken, too: a later part has the row as it is then. Every transaction of earlier epochs is seen by the snapshot,
since an epoch ends before the first one that could not be seen when it was planned.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final

from tidemark.graph.model.postgres_changes_spec import CapturedTable, PostgresChangesSpec
from tidemark.spark.sources.postgres_changes.captured_files import CapturedRow
from tidemark.spark.sources.postgres_changes.messages import UNCHANGED
from tidemark.spark.sources.postgres_changes.positions import Snapshot
from tidemark.spark.sources.postgres_changes.server import TablePart
from tidemark.spark.sources.postgres_changes.transactions import Change, Row, Transaction

Captured = tuple[CapturedTable, CapturedRow]

TOGETHER: Final = 1_000
"""Of so many changes at most the large values that they lack are read at once."""

TOGETHER_BYTES: Final = 64 * 1024 * 1024
"""Fewer changes are taken at once where the rows that were read for those before would have more bytes than these."""

_FIRST: Final = 16


@dataclass(frozen=True)
class ReadChanges:
    """Transactions in the order of their commits: all that end at ``lsn`` or before. ``reached`` says whether the wanted LSN was."""

    transactions: tuple[Transaction, ...]
    lsn: int
    reached: bool

    @property
    def has_rows(self) -> bool:
        """Whether any row of a captured table was changed."""
        return any(each.changes or each.truncated for each in self.transactions)


def seen_first(found: Sequence[Transaction], snapshot: Snapshot) -> tuple[Transaction, ...]:
    """Return the transactions before the first one that a snapshot does not see: it is committed, but not visible yet."""
    for number, transaction in enumerate(found):
        if not snapshot.sees(transaction.xid):
            return tuple(found[:number])
    return tuple(found)


def unread_values(spec: PostgresChangesSpec, changes: Iterable[Change]) -> dict[str, list[Row]]:
    """Return the rows, by the labels of their tables, of which a large value that did not change is not among the changes."""
    found: dict[str, list[Row]] = {}
    for change in changes:
        table = spec.table(change.relation.label)
        if table is not None and any(change.row.get(name) is UNCHANGED for name in table.columns.names):
            found.setdefault(change.relation.label, []).append(change.row)
    return found


@dataclass(frozen=True)
class LargeValues:
    """Values that changes do not have, as they are now, by the label of the table and the key."""

    rows: dict[tuple[str, tuple[object, ...]], tuple[str | None, ...]]

    @property
    def size(self) -> int:
        """The number of characters of all values."""
        return sum(len(value) for row in self.rows.values() for value in row if value is not None)

    def of(self, table: CapturedTable, row: Row) -> tuple[str | None, ...]:
        """Return the values of a row in the order of the declared columns; null for those of a row that no longer exists."""
        key = tuple(row.get(name) for name in table.keys)
        now = self.rows.get((table.label, key))
        found: list[str | None] = []
        for place, name in enumerate(table.columns.names):
            value = row.get(name)
            if value is UNCHANGED:
                found.append(None if now is None else now[place])
            else:
                found.append(value if isinstance(value, str) else None)
        return tuple(found)


def rows_in_order(
    spec: PostgresChangesSpec,
    transactions: Sequence[Transaction],
    large_values: Callable[[Sequence[Change]], LargeValues],
    part: tuple[CapturedTable, TablePart] | None = None,
) -> Iterator[Captured]:
    """Yield the rows of an epoch, so that the last one of a key is as the key is after the epoch.

    Args:
        spec: of the source.
        transactions: of the epoch.
        large_values: returns, for some changes, the values that they do not have.
        part: rows of a table, which the snapshot of the part saw.
    """
    if part is None:
        yield from _changes(spec, transactions, large_values)
        return
    table, read = part
    yield from _changes(spec, [each for each in transactions if read.snapshot.sees(each.xid)], large_values)
    for values in read.rows:
        yield table, CapturedRow("read", read.at, values)
    yield from _changes(spec, [each for each in transactions if not read.snapshot.sees(each.xid)], large_values)


def _changes(
    spec: PostgresChangesSpec, transactions: Sequence[Transaction], large_values: Callable[[Sequence[Change]], LargeValues]
) -> Iterator[Captured]:
    changes = ((transaction, change) for transaction in transactions for change in transaction.changes)
    many = min(_FIRST, TOGETHER)
    while some := list(islice(changes, many)):
        large = large_values([change for _, change in some])
        # A row may be large, and so may those that follow it.
        many = max(1, min(TOGETHER, 2 * many, TOGETHER_BYTES * len(some) // max(large.size, 1)))
        for transaction, change in some:
            table = spec.table(change.relation.label)
            if table is not None:
                yield table, _captured(table, transaction, change, large)


def _captured(table: CapturedTable, transaction: Transaction, change: Change, large: LargeValues) -> CapturedRow:
    values = large.of(table, change.row)
    return CapturedRow(change.operation, transaction.committed_at, values, transaction.end_lsn, transaction.xid)

"""Sorted Arrow batches as keys and their rows, in a task. A row is referred to by its place in a batch, and read only when needed."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Final, NamedTuple

from tidemark.spark.operators.keyed.columns import HASH, HASH_AGAIN, TAG

if TYPE_CHECKING:
    import pyarrow as pa

PLACE: Final = ""
"""The one name in a ``Place`` as a mapping; no column has it."""

ROWS_AT_ONCE: Final = 10_000

FEW_CALLS: Final = 16
"""From so many small requests on, all rows of a batch are read at once: reading a few costs hardly less than reading hundreds."""

SMALL: Final = 200
MAX_READ: Final = 3


class Place:
    """One row of a batch. As a mapping it contains itself, so that it can stand for an element's row where the row is not read."""

    __slots__ = ("batch", "number")

    def __init__(self, batch: pa.RecordBatch, number: int) -> None:
        self.batch = batch
        self.number = number

    def keys(self) -> tuple[str, ...]:
        """Return its one name."""
        return (PLACE,)

    def __getitem__(self, name: str) -> Place:
        return self


class BatchValues:
    """The columns of a batch as Python values, each made at its first use: a batch may have thousands of keys."""

    __slots__ = ("_batch", "_found")

    def __init__(self, batch: pa.RecordBatch) -> None:
        self._batch = batch
        self._found: dict[str, list[object]] = {}

    def __getitem__(self, column: str) -> list[object]:
        found = self._found.get(column)
        if found is None:
            found = self._found[column] = self._batch.column(column).to_pylist()
        return found


class Run(NamedTuple):
    """Consecutive rows of one key and one tag, in one batch, of which ``all`` has the values."""

    batch: pa.RecordBatch
    tag: int
    start: int
    stop: int
    all: BatchValues

    def values(self, column: str) -> list[object]:
        """Return the values of a column as Python values."""
        return self.all[column][self.start : self.stop]

    def first(self, column: str) -> object:
        """Return the value of a column in the first row."""
        return self.all[column][self.start]

    def rows(self, columns: Mapping[str, str]) -> list[dict[str, object]]:
        """Return the rows as dicts; ``columns`` are names in the batch by names in the dicts."""
        if not columns:
            return [{} for _ in range(self.start, self.stop)]
        return [dict(zip(columns, values, strict=True)) for values in zip(*map(self.values, columns.values()), strict=True)]


class KeyRows:
    """The rows of one key, in order of their tags. ``first`` is one of them, to read the key from, and ``values`` those of its batch."""

    def __init__(self, runs: Iterator[Run]) -> None:
        self._runs = runs
        self._ahead = next(runs, None)
        if self._ahead is None:
            raise ValueError("a key without rows")
        self.first = Place(self._ahead.batch, self._ahead.start)
        self.values = self._ahead.all

    def of(self, tag: int) -> Iterator[Run]:
        """Yield the rows of a tag; skips unread rows of lower tags."""
        while self._ahead is not None and self._ahead.tag <= tag:
            run, self._ahead = self._ahead, next(self._runs, None)
            if run.tag == tag:
                yield run

    def has(self, tag: int) -> bool:
        """Return whether there are rows of this tag; skips rows of lower tags."""
        while self._ahead is not None and self._ahead.tag < tag:
            self._ahead = next(self._runs, None)
        return self._ahead is not None and self._ahead.tag == tag


def keys_of(batches: Iterable[pa.RecordBatch]) -> Iterator[KeyRows]:
    """Yield the keys of sorted batches; each must be processed before the next is requested."""
    for _, runs in groupby(_runs(batches), key=lambda found: found[0]):
        yield KeyRows(run for _, run in runs)


def table_of(places: Sequence[Place], columns: Mapping[str, str]) -> pa.Table:
    """Return rows of any batches, in order, with these columns; ``columns`` are names in the batches by names in the result."""
    import pyarrow as pa

    numbers: dict[int, list[int]] = {}
    batches: dict[int, pa.RecordBatch] = {}
    for place in places:
        batches.setdefault(id(place.batch), place.batch)
        numbers.setdefault(id(place.batch), []).append(place.number)
    parts = [_named(batch, columns).take(pa.array(numbers[key], pa.int32())) for key, batch in batches.items()]
    table = pa.Table.from_batches(parts)
    if len(parts) > 1:
        # The rows are grouped by batch; restore the requested order.
        following = {}
        reached = 0
        for key in batches:
            following[key] = reached
            reached += len(numbers[key])
        order = []
        for place in places:
            order.append(following[id(place.batch)])
            following[id(place.batch)] += 1
        table = table.take(pa.array(order, pa.int64()))
    return table


class RowReader:
    """Rows of batches as dicts, for many small requests.

    Args:
        columns: names in the batches by names in the dicts.
    """

    def __init__(self, columns: Mapping[str, str]) -> None:
        self._columns = columns
        self._asked: dict[int, int] = {}
        self._read: OrderedDict[int, tuple[pa.RecordBatch, list[dict[str, object]]]] = OrderedDict()

    def rows(self, places: Sequence[Place]) -> list[dict[str, object]]:
        """Return rows of any batches, in order; the caller may change the dicts."""
        if len(places) <= SMALL and all(self._is_read(place.batch) for place in places):
            return [dict(self._read[id(place.batch)][1][place.number]) for place in places]
        found: list[dict[str, object]] = table_of(places, self._columns).to_pylist()
        return found

    def _is_read(self, batch: pa.RecordBatch) -> bool:
        key = id(batch)
        if key in self._read:
            return True
        if len(self._asked) > MAX_READ:
            self._asked.clear()
        self._asked[key] = self._asked.get(key, 0) + 1
        if self._asked[key] < FEW_CALLS:
            return False
        # It stays here with its rows, so that no other batch has its identity.
        self._read[key] = batch, _named(batch, self._columns).to_pylist()
        if len(self._read) > MAX_READ:
            self._read.popitem(last=False)
        return True


def _runs(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[tuple[int, int], Run]]:
    for batch in batches:
        marks = zip(*(batch.column(name).to_pylist() for name in (HASH, HASH_AGAIN, TAG)), strict=True)
        start, values = 0, BatchValues(batch)
        for (first, second, tag), same in groupby(marks):
            stop = start + sum(1 for _ in same)
            yield (first, second), Run(batch, tag, start, stop, values)
            start = stop


def _named(batch: pa.RecordBatch, columns: Mapping[str, str]) -> pa.RecordBatch:
    import pyarrow as pa

    found = [batch.column(name) for name in columns.values()]
    fields = [batch.schema.field(name).with_name(shown) for shown, name in columns.items()]
    return pa.RecordBatch.from_arrays(found, schema=pa.schema(fields))

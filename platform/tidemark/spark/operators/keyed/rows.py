"""Sorted Arrow batches as keys and their rows, in a task. A row is referred to by its place in a batch, and read only when needed."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import reduce
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Final, NamedTuple

from tidemark.spark.operators.keyed.columns import HASH, HASH_AGAIN, NEW, TAG, VERSION
from tidemark.spark.operators.keyed.python_values import Conversions, conversions_of, not_utf8, python_rows, python_values

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

    __slots__ = ("_batch", "_bytes", "_found", "_named", "_rows", "_tuples")

    def __init__(self, batch: pa.RecordBatch) -> None:
        self._batch = batch
        self._bytes: int | None = None
        self._found: dict[str, list[object]] = {}
        self._rows: tuple[Mapping[str, str], list[dict[str, object]]] | None = None
        self._named: tuple[Mapping[str, str], pa.RecordBatch] | None = None
        self._tuples: tuple[tuple[str, ...], list[tuple[object, ...]]] | None = None

    def __getitem__(self, column: str) -> list[object]:
        found = self._found.get(column)
        if found is None:
            try:
                found = self._found[column] = python_values(self._batch.column(column))
            except UnicodeDecodeError as error:
                raise not_utf8(error) from None
        return found

    @property
    def nbytes(self) -> int:
        """The bytes of the batch, counted at their first use."""
        if self._bytes is None:
            self._bytes = self._batch.nbytes
        return self._bytes

    def rows(self, columns: Mapping[str, str]) -> list[dict[str, object]]:
        """Return all rows as dicts, made at their first use; ``columns`` are names in the batch by names in the dicts."""
        if self._rows is None or self._rows[0] is not columns:
            self._rows = columns, dicts_of({name: self[column] for name, column in columns.items()}, self._batch.num_rows)
        return self._rows[1]

    def tuples(self, columns: tuple[str, ...]) -> list[tuple[object, ...]]:
        """Return the values of columns of all rows, made at their first use."""
        if self._tuples is None or self._tuples[0] != columns:
            self._tuples = columns, list(zip(*(self[name] for name in columns), strict=True))
        return self._tuples[1]

    def named(self, columns: Mapping[str, str]) -> pa.RecordBatch:
        """Return the batch with these columns; ``columns`` are names in the batch by names in the result."""
        if self._named is None or self._named[0] is not columns:
            self._named = columns, _named(self._batch, columns)
        return self._named[1]


def dicts_of(columns: Mapping[str, Sequence[object]], count: int) -> list[dict[str, object]]:
    """Return ``count`` rows as dicts, from columns of as many values by their names."""
    rows: list[dict[str, object]] = [{} for _ in range(count)]
    # Column by column, which takes half the time of a dict of each row's names and values.
    for name, column in columns.items():
        for row, value in zip(rows, column, strict=True):
            row[name] = value
    return rows


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

    def first(self, columns: tuple[str, ...]) -> tuple[object, ...]:
        """Return the values of columns in the first row."""
        return self.all.tuples(columns)[self.start]

    def rows(self, columns: Mapping[str, str]) -> list[dict[str, object]]:
        """Return the rows as dicts; ``columns`` are names in the batch by names in the dicts."""
        return self.all.rows(columns)[self.start : self.stop]

    def batch_of(self, columns: Mapping[str, str]) -> pa.RecordBatch:
        """Return the rows as a batch; ``columns`` are names in the batch by names in the result."""
        return self.all.named(columns).slice(self.start, self.stop - self.start)


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


MarkedRun = tuple[tuple[int, int], Run]
"""Rows with the hashes of their key."""


def runs_of_both(versions: Iterable[pa.RecordBatch], elements: Iterable[pa.RecordBatch]) -> Iterator[MarkedRun]:
    """Yield the runs of sorted batches of ``VERSION`` rows, and of ``NEW`` rows, as ``runs_of`` does."""
    return _merged(runs_of(versions, VERSION), runs_of(elements, NEW))


def _merged(one: Iterator[MarkedRun], other: Iterator[MarkedRun]) -> Iterator[MarkedRun]:
    """Yield the runs of both by their keys, for one key first those of the first; a heap takes twice as long."""
    first, second = next(one, None), next(other, None)
    while first is not None and second is not None:
        if first[0] <= second[0]:
            yield first
            first = next(one, None)
        else:
            yield second
            second = next(other, None)
    if first is not None:
        yield first
        yield from one
    elif second is not None:
        yield second
        yield from other


def keys_of(runs: Iterable[MarkedRun]) -> Iterator[KeyRows]:
    """Yield the keys of runs; each must be processed before the next is requested."""
    for _, found in groupby(runs, key=itemgetter(0)):
        yield KeyRows(map(itemgetter(1), found))


def table_of(places: Sequence[Place], columns: Mapping[str, str]) -> pa.Table:
    """Return rows of any batches, in order, with these columns; ``columns`` are names in the batches by names in the result."""
    import numpy as np
    import pyarrow as pa

    batches = {id(place.batch): place.batch for place in places}
    numbers = np.array([place.number for place in places], np.int32)
    if len(batches) == 1:
        (batch,) = batches.values()
        return pa.Table.from_batches([_named(batch, columns).take(pa.array(numbers))])
    nth = {key: number for number, key in enumerate(batches)}
    of_batch = np.array([nth[id(place.batch)] for place in places], np.int32)
    parts = [_named(batch, columns).take(pa.array(numbers[of_batch == nth[key]])) for key, batch in batches.items()]
    # The rows are grouped by batch; restore the requested order.
    order = np.empty(len(places), np.int64)
    order[np.argsort(of_batch, kind="stable")] = np.arange(len(places))
    return pa.Table.from_batches(parts).take(pa.array(order))


class RowReader:
    """Rows of batches as dicts, for many small requests.

    Args:
        columns: names in the batches by names in the dicts.
    """

    def __init__(self, columns: Mapping[str, str]) -> None:
        self._columns = columns
        self._conversions: Conversions | None = None
        self._asked: dict[int, int] = {}
        self._read: OrderedDict[int, tuple[pa.RecordBatch, list[dict[str, object]]]] = OrderedDict()

    def rows(self, places: Sequence[Place]) -> list[dict[str, object]]:
        """Return rows of any batches, in order; the caller may change the dicts."""
        if len(places) <= SMALL and all(self._is_read(place.batch) for place in places):
            return [dict(self._read[id(place.batch)][1][place.number]) for place in places]
        table = table_of(places, self._columns)
        if self._conversions is None:
            self._conversions = conversions_of(table.schema)
        return python_rows(table, self._conversions)

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
        self._read[key] = batch, python_rows(_named(batch, self._columns))
        if len(self._read) > MAX_READ:
            self._read.popitem(last=False)
        return True


def runs_of(batches: Iterable[pa.RecordBatch], tag: int | None = None) -> Iterator[MarkedRun]:
    """Yield the runs of sorted batches, each with the hashes of its key; ``tag`` is that of all rows, None where a column has it."""
    import pyarrow.compute as pc

    columns = (HASH, HASH_AGAIN, TAG) if tag is None else (HASH, HASH_AGAIN)
    for batch in batches:
        values = BatchValues(batch)
        starts = pc.indices_nonzero(starts_of_runs(batch, columns))
        marks = zip(*(batch.column(name).take(starts).to_pylist() for name in columns), strict=True)
        begins = starts.to_pylist()
        for start, stop, (first, second, *tags) in zip(begins, [*begins[1:], batch.num_rows], marks, strict=True):
            # This is ``Run(...)``, in half the time.
            yield (first, second), tuple.__new__(Run, (batch, tags[0] if tag is None else tag, start, stop, values))


def starts_of_runs(batch: pa.RecordBatch, columns: Sequence[str]) -> pa.BooleanArray:
    """Return which rows differ from the row before in some of the columns, which have no nulls; the first one does."""
    import pyarrow as pa
    import pyarrow.compute as pc

    count = batch.num_rows
    if count < 2:
        return pa.array([True] * count, pa.bool_())
    changed = [pc.not_equal(batch.column(name).slice(1), batch.column(name).slice(0, count - 1)) for name in columns]
    return pa.concat_arrays([pa.array([True]), reduce(pc.or_, changed)])


def _named(batch: pa.RecordBatch, columns: Mapping[str, str]) -> pa.RecordBatch:
    import pyarrow as pa

    found = [batch.column(name) for name in columns.values()]
    # The rows of several tags may differ in which of their columns can have nulls.
    fields = [pa.field(shown, column.type) for shown, column in zip(columns, found, strict=True)]
    return pa.RecordBatch.from_arrays(found, schema=pa.schema(fields))

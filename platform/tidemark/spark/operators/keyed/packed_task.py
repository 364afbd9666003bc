"""The task over keys whose rows come packed: sorts them, and leaves out the versions of keys that need no call."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Final

from tidemark.semantics.watermarks.operator_clock import OperatorClock
from tidemark.spark.columns.arrow_batches import POSITION_PARTS
from tidemark.spark.columns.expressions import POSITION, START, TIME
from tidemark.spark.operators.keyed.columns import DUE, EPOCH, HASH, HASH_AGAIN, NOTE, STATE, TAG, TIMER, VERSION
from tidemark.spark.operators.keyed.key_state import TaskStats
from tidemark.spark.operators.keyed.output_buffer import Shape
from tidemark.spark.operators.keyed.packed_rows import CLOCK, DATA, ROWS, as_value, unpacked
from tidemark.spark.operators.keyed.rows import ROWS_AT_ONCE, MarkedRun, runs_of_both, starts_of_runs
from tidemark.spark.operators.keyed.settled_worker import settle_worker
from tidemark.spark.operators.keyed.sorted_rows import MAX_BYTES, SortedRows, SortKeys
from tidemark.spark.operators.keyed.task import KeyTask

if TYPE_CHECKING:
    import pyarrow as pa

_BY_KEY: Final[SortKeys] = ((HASH, "ascending"), (HASH_AGAIN, "ascending"))
_NEWEST_FIRST: Final[SortKeys] = (*_BY_KEY, (EPOCH, "descending"))

VALUE_BYTES: Final = 1024 * 1024
"""Up to so many bytes of output rows are one value, or one row, which may have more."""


@dataclass(frozen=True)
class PackedKeyTask:
    """Processes the keys of a task; called by Spark in a worker.

    The clock of the epoch comes with the packed rows, so that the task of each epoch is the same to Spark.

    Args:
        task: makes what processes sorted rows, from ``clock``.
        keys: the types of the key columns.
        output: the columns that it returns.
        within: columns by which elements of one time are ordered before their position.
        with_position: whether the task reads the position of elements.
        sort_bytes: of elements, and of versions, that are in memory at once while they are sorted.
    """

    task: Callable[..., KeyTask]
    keys: pa.Schema
    output: pa.Schema
    within: Sequence[str] = ()
    with_position: bool = False
    sort_bytes: int = MAX_BYTES

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the output rows of the keys: those of state and counts as they are, others packed."""
        given = iter(batches)
        first = next((batch for batch in given if batch.num_rows), None)
        if first is not None:
            clock = OperatorClock("event", *first.column(CLOCK)[0].as_py())
            task = self.task(clock=clock)
            for rows in task.process(lambda stats: self._runs(chain((first,), given), clock, stats)):
                tag = rows.column(TAG)[0].as_py()
                yield self._plain(tag, rows) if tag == VERSION or tag >= NOTE else self._packed(tag, rows, task.shapes[tag])
        settle_worker("keys")

    def _plain(self, tag: int, rows: pa.RecordBatch) -> pa.RecordBatch:
        import pyarrow as pa

        # Files of state have bounds of the time at which their keys are due.
        found = dict(zip(rows.schema.names, rows.columns, strict=True)) | ({START: rows.column(DUE)} if tag == VERSION else {})
        columns = [found[each.name] if each.name in found else pa.nulls(rows.num_rows, each.type) for each in self.output]
        return pa.RecordBatch.from_arrays(columns, schema=self.output)

    def _packed(self, tag: int, rows: pa.RecordBatch, shape: Shape) -> pa.RecordBatch:
        import pyarrow as pa

        names = {*shape.carried, *shape.made, *shape.results}
        whole = rows.select([name for name in rows.schema.names if name in names])
        size = max(1, whole.num_rows * VALUE_BYTES // max(whole.nbytes, 1))
        parts = [whole.slice(start, size) for start in range(0, whole.num_rows, size)]
        values = {TAG: [tag] * len(parts), ROWS: [part.num_rows for part in parts], DATA: [as_value(part) for part in parts]}
        columns = [pa.array(values.get(each.name, [None] * len(parts)), each.type) for each in self.output]
        return pa.RecordBatch.from_arrays(columns, schema=self.output)

    def _runs(self, batches: Iterable[pa.RecordBatch], clock: OperatorClock, stats: TaskStats) -> Iterator[MarkedRun]:
        import pyarrow as pa
        import pyarrow.compute as pc

        in_order = (TIME, *self.within, *POSITION_PARTS)
        new = SortedRows((*_BY_KEY, *((name, "ascending") for name in in_order)), max_bytes=self.sort_bytes)
        versions, hashes = SortedRows(_NEWEST_FIRST, max_bytes=self.sort_bytes), [pa.array([], pa.int64())]
        for batch in batches:
            for tag, data in zip(batch.column(TAG).to_pylist(), batch.column(DATA), strict=True):
                rows = self._typed(unpacked(data))
                if tag == VERSION:
                    versions.add(rows)
                else:
                    new.add(rows)
                    hashes.append(pc.unique(rows.column(HASH)))
        with_elements = pc.unique(pa.concat_arrays(hashes))
        yield from runs_of_both(self._needed(versions, with_elements, clock, stats), self._elements(new))

    def _typed(self, rows: pa.Table) -> pa.Table:
        """Return rows whose keys have the same type, whatever their tag: fields of structs may differ in whether they can be null."""
        for field in self.keys:
            column = rows.column(field.name)
            if column.type != field.type:
                rows = rows.set_column(rows.column_names.index(field.name), field, column.cast(field.type))
        return rows

    def _needed(self, versions: SortedRows, with_elements: pa.Array, clock: OperatorClock, stats: TaskStats) -> Iterator[pa.RecordBatch]:
        """Yield the newest versions of keys that have elements or are due; count those of the others."""
        import pyarrow as pa
        import pyarrow.compute as pc

        last = None
        for table in versions.read():
            rows = _whole(table)
            first, end = (tuple(rows.column(name)[at].as_py() for name in (HASH, HASH_AGAIN)) for at in (0, rows.num_rows - 1))
            # The newest version of the first key may have been in the table before.
            newest = pa.concat_arrays([pa.array([first != last]), starts_of_runs(rows, (HASH, HASH_AGAIN)).slice(1)])
            last = end
            reached = ((DUE, clock.watermark), (TIMER, clock.timers_due_until))
            due = [pc.fill_null(pc.less_equal(rows.column(name), pa.scalar(until, pa.int64())), False) for name, until in reached]
            live = pc.is_valid(rows.column(STATE))
            wanted = pc.or_(pc.is_in(rows.column(HASH), value_set=with_elements), pc.and_(live, pc.or_(*due)))
            stats.leave_all(rows.filter(pc.and_not(newest, wanted)))
            yield from pa.Table.from_batches([rows.filter(pc.and_(newest, wanted))]).to_batches(max_chunksize=ROWS_AT_ONCE)

    def _elements(self, new: SortedRows) -> Iterator[pa.RecordBatch]:
        for table in new.read():
            for batch in table.to_batches(max_chunksize=ROWS_AT_ONCE):
                yield _with_position(batch) if self.with_position else batch


def _whole(table: pa.Table) -> pa.RecordBatch:
    return table.combine_chunks().to_batches()[0]


def _with_position(batch: pa.RecordBatch) -> pa.RecordBatch:
    import pyarrow as pa
    import pyarrow.compute as pc

    if not set(POSITION_PARTS) <= set(batch.schema.names):
        return batch
    origin, block, row = (batch.column(name) for name in POSITION_PARTS)
    text = origin.cast(pa.string()) if pa.types.is_dictionary(origin.type) else origin
    fields = [pa.field(name, kind) for name, kind in (("origin", pa.string()), ("block", pa.int64()), ("row", pa.int64()))]
    return batch.append_column(POSITION, pa.StructArray.from_arrays([text, block, row], fields=fields, mask=pc.is_null(origin)))

"""Walks through one key's epoch with a function that takes elements in batches."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from types import GeneratorType
from typing import TYPE_CHECKING, Any

from tidemark.errors import UserCodeError
from tidemark.semantics.keyed_process.context import Row
from tidemark.semantics.keyed_process.element_batches import ElementBatch, batches_of_key
from tidemark.semantics.keyed_process.walk import Emitted, Failed, KeyWalk, Output, OutputBatch, Walked
from tidemark.semantics.user_rows import name_of, own_row, require_row, rows_of

if TYPE_CHECKING:
    import pyarrow as pa


class BatchWalk(KeyWalk[ElementBatch]):
    """Calls the function for batches of elements.

    A batch ends before an element at whose watermark a timer is due that is set when the batch begins; timers that the call itself sets
    fire after it. The watermark of a call is that at its first element, so that an element is late exactly where it is when the function
    takes it alone. ``start`` is the number of the first element of a call among all of the key's epoch.
    """

    start = 0
    _first = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        self._context.takes_batches = True

    def _process(self, elements: Iterable[ElementBatch], walked: Walked) -> Iterator[Emitted]:
        now, times, timers = self._now, self.times, self._timers
        self.start = self._first = 0
        for batch in batches_of_key(elements):
            instants: list[int] = batch.times.to_pylist()
            start = 0
            while start < len(instants):
                now.watermark = times.watermark_at(instants[start])
                if timers.are_due(now):
                    yield from self._fire(walked)
                stop = self._stop(instants, start)
                walked.elements += stop - start
                yield from self._call(batch, start, stop, walked)
                start = stop
                self.start = self._first + stop
            self._first += len(instants)

    def _stop(self, instants: Sequence[int], start: int) -> int:
        """Return the number of the first element before which a timer fires, given the times of all."""
        due, times = self._timers.next_event_time(), self.times
        if due is None or due > times.watermark:
            return len(instants)
        # The timers up to W(n-1) have fired, so that it depends on the times of elements alone when this one is due.
        return bisect_left(instants, due + times.bound + 1, lo=start + 1)

    def _call(self, elements: ElementBatch, start: int, stop: int, walked: Walked) -> Iterator[Emitted]:
        batch, process, context = elements.part(start, stop), self.function.inputs[0], self._context
        newest = batch.times[-1].as_py()
        self.start, self._now.timestamp, context.timestamps = self._first + start, newest, batch.times
        if self._undo is None:
            returned = process(batch.rows, context)
            if returned is not None or context.pending_outputs:
                yield from self._outputs(returned, name_of(process), newest)
            return
        failure, emitted = self._attempt(partial(process, batch.rows), newest, name_of(process))
        if failure is None:
            yield from emitted
        elif stop - start == 1:
            walked.failed += 1
            yield Failed(first_row(batch.rows), newest, failure)
        else:
            # One call for each: those that fail alone are put aside alone.
            for number in range(start, stop):
                self._now.watermark = self.times.watermark_at(elements.times[number].as_py())
                yield from self._fire(walked)
                yield from self._call(elements, number, number + 1, walked)

    def _outputs(self, returned: object, name: str, time: int) -> Iterator[Emitted]:
        pending = self._context.pending_outputs
        for each in _parts(returned):
            if pending:
                yield from self._tagged(time)
            found = None if type(each) is dict else _as_batch(each, name)
            if found is not None:
                rows, times = found
                yield OutputBatch(None, rows, time if times is None else times)
            else:
                require_row(each, 0, name)
                yield Output(None, own_row(each), time)
        if pending:
            yield from self._tagged(time)

    def _tagged(self, time: int) -> Iterator[Emitted]:
        for tag, other in self._context.take_outputs():
            found = _as_batch(other, f"ctx.output({tag!r})")
            yield Output(tag, other, time) if found is None else OutputBatch(tag, found[0], time if found[1] is None else found[1])


def first_row(rows: pa.RecordBatch) -> Row:
    """Return the first row as errors show it, without values that Python has not: texts that are not UTF-8, and instants after 9999."""
    found: dict[str, object] = {}
    for name, column in zip(rows.schema.names, rows.columns, strict=True):
        with suppress(ValueError, OverflowError):
            found[name] = column[0].as_py()
    return found


def _parts(returned: Any) -> Iterable[Any]:  # noqa: ANN401 - whatever the function returns
    """Return the rows and batches that a call returned, one after the other."""
    import pyarrow as pa

    if returned is None or type(returned) is GeneratorType:
        return returned or ()
    if isinstance(returned, pa.RecordBatch | pa.Table) or _is_timed(returned):
        return (returned,)
    if isinstance(returned, Iterable) and not isinstance(returned, dict | str | bytes):
        return returned
    return rows_of(returned, "process_batch")


def _is_timed(each: object) -> bool:
    import pyarrow as pa

    return isinstance(each, tuple) and len(each) == 2 and isinstance(each[0], pa.RecordBatch | pa.Table)


def _as_batch(each: Any, name: str) -> tuple[pa.RecordBatch, pa.Int64Array | None] | None:  # noqa: ANN401 - as above
    """Return what was emitted as a batch and the times of its rows; None where it is a row."""
    import pyarrow as pa

    rows, times = each if _is_timed(each) else (each, None)
    if isinstance(rows, pa.Table):
        rows = pa.RecordBatch.from_struct_array(rows.to_struct_array().combine_chunks()) if rows.num_rows else _empty(rows.schema)
    if not isinstance(rows, pa.RecordBatch):
        return None
    if times is None:
        return rows, None
    if not isinstance(times, pa.Int64Array) or len(times) != rows.num_rows or times.null_count:
        raise UserCodeError(
            f"{name} emitted {rows.num_rows} rows with {_shown(times)} as their times",
            fix="give a pyarrow array of int64 with the time of each row, in milliseconds, such as ctx.timestamps.filter(mask)",
        )
    return rows, times


def _empty(schema: pa.Schema) -> pa.RecordBatch:
    import pyarrow as pa

    return pa.RecordBatch.from_pylist([], schema=schema)


def _shown(times: object) -> str:
    return f"{len(times)} values of {times.type}" if hasattr(times, "type") and hasattr(times, "__len__") else repr(times)

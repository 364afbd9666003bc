"""The function over elements of a task."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from tidemark.semantics.closing import closing
from tidemark.semantics.element_process.calls import ElementCalls, Failure, Method
from tidemark.semantics.keyed_process.broadcast_maps import read_only
from tidemark.semantics.user_rows import Row
from tidemark.spark.columns.expressions import TIME
from tidemark.spark.operators.elements.layout import FAILED_ROW
from tidemark.spark.operators.elements.task import Origin, failed_call, named, rows_of_batch
from tidemark.spark.operators.keyed.columns import NOTE, OUTPUT
from tidemark.spark.operators.keyed.output_buffer import OutputBuffer, Shape
from tidemark.spark.operators.keyed.rows import Place

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class ProcessElements:
    """Calls a function for the elements of a task, one after the other. Immutable: it is sent to the workers.

    Args:
        uid: of the operator.
        name: of the function.
        function: the user's.
        method: what it is.
        elements: the columns of elements by their names in the stream.
        tags: of rows of side outputs, by their names.
        schema: of the rows that come out.
        shapes: of these rows, by tag.
        watermark: that the epoch began with.
        processing_time: of the epoch.
        forgives: whether an element whose call fails is put aside.
        broadcast: maps that the function reads, by name.
    """

    uid: str
    name: str
    function: object
    method: Method
    elements: Mapping[str, str]
    tags: Mapping[str, int]
    schema: pa.Schema
    shapes: Mapping[int, Shape]
    watermark: int
    processing_time: int
    forgives: bool
    broadcast: Mapping[str, Mapping[Any, Any]]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the output rows of a task; called by Spark in a worker."""
        out = OutputBuffer(self.schema, self.shapes, self.uid, self.name)
        accepted, read, last = 0, 0, None
        with ExitStack() as task:
            calls = None
            for batch in batches:
                if not batch.num_rows:
                    continue
                calls = task.enter_context(self._opened()) if calls is None else calls
                last, read = Place(batch, batch.num_rows - 1), read + batch.nbytes
                times = batch.column(TIME).to_pylist()
                for number, (row, time) in enumerate(zip(rows_of_batch(batch, self.elements, uid=self.uid), times, strict=True)):
                    accepted += self._process(calls, row, time, out, Place(batch, number))
                    if out.is_full:
                        yield from out.remaining_batches()
            if last is not None:
                out.add(NOTE, last, (accepted, read))
        yield from out.remaining_batches()

    def _process(self, calls: ElementCalls, row: Row, time: int, out: OutputBuffer, place: Place) -> bool:
        """Add what the call for an element emits; return whether it did not fail."""
        try:
            emitted = calls.call(row, time)
            if isinstance(emitted, Failure):
                out.add(FAILED_ROW, place, (emitted.error,))
                return False
            if self.method == "filter":
                for _ in emitted:
                    out.add(OUTPUT, place)
            elif self.method == "map":
                for each in emitted:
                    out.add(OUTPUT, place, result=each.row, origin=Origin(row))
            else:
                origin = Origin(row)
                for nth, each in enumerate(emitted):
                    out.add(OUTPUT if each.tag is None else self.tags[each.tag], place, (nth,), result=each.row, origin=origin)
        except Exception as error:
            raise failed_call(self.name, error, row, uid=self.uid) from error
        return True

    @contextmanager
    def _opened(self) -> Iterator[ElementCalls]:
        """Open the function, and close it at the end."""
        method: Callable[..., object] = getattr(self.function, self.method, self.function)  # type: ignore[arg-type]
        calls = ElementCalls(
            method,
            self.method,
            tags=frozenset(self.tags),
            watermark=self.watermark,
            processing_time=self.processing_time,
            forgives=self.forgives,
            broadcast=read_only(self.broadcast),
        )
        with closing(partial(self._call, "close")):
            self._call("open", calls.context)
            yield calls

    def _call(self, name: str, *arguments: object) -> None:
        method = getattr(self.function, name, None)
        if callable(method):
            with named(name, self.name, self.uid):
                method(*arguments)

"""The asynchronous function of a task: many calls at once on one event loop."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from tidemark.errors import UserCodeError
from tidemark.graph.operators.async_map.function import call_of, lifecycle
from tidemark.semantics.async_map.calls import Answer, AsyncCalls, AsyncSettings
from tidemark.semantics.closing import closing
from tidemark.semantics.user_rows import Row, describe_failure, one_row
from tidemark.spark.operators.elements.layout import FAILED_ROW
from tidemark.spark.operators.elements.task import Origin, failed_call, named, rows_of_batch
from tidemark.spark.operators.keyed.columns import NOTE, OUTPUT
from tidemark.spark.operators.keyed.output_buffer import OutputBuffer, Shape
from tidemark.spark.operators.keyed.rows import Place

if TYPE_CHECKING:
    import pyarrow as pa

Element = tuple[Row, Place]


@dataclass(frozen=True)
class AsyncElements:
    """Calls an asynchronous function for the elements of a task. Immutable: it is sent to the workers.

    Args:
        uid: of the operator.
        name: of the function.
        function: the user's.
        settings: how it is called.
        elements: the columns of elements by their names in the stream.
        schema: of the rows that come out.
        shapes: of these rows, by tag.
        forgives: whether an element whose last attempt fails is put aside.
    """

    uid: str
    name: str
    function: object
    settings: AsyncSettings
    elements: Mapping[str, str]
    schema: pa.Schema
    shapes: Mapping[int, Shape]
    forgives: bool

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the output rows of a task; called by Spark in a worker."""
        out = OutputBuffer(self.schema, self.shapes, self.uid, self.name)
        accepted, last = 0, None
        following = iter(self._elements(batches))
        first = next(following, None)
        with ExitStack() as task:
            if first is not None:
                calls = task.enter_context(self._opened())
                for answer in calls.run(_all(first, following)):
                    accepted += self._add(answer, out)
                    last = answer.element[1]
                    if out.is_full:
                        yield from out.remaining_batches()
            if last is not None:
                out.add(NOTE, last, (accepted, None))
        yield from out.remaining_batches()

    def _elements(self, batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[Row, Element]]:
        for batch in batches:
            for number, row in enumerate(rows_of_batch(batch, self.elements, uid=self.uid)):
                yield row, (row, Place(batch, number))

    def _add(self, answer: Answer[Element], out: OutputBuffer) -> bool:
        """Add the row of an element; return whether its call did not fail."""
        row, place = answer.element
        if answer.error is None:
            try:
                out.add(OUTPUT, place, result=one_row(answer.value, self.name), origin=Origin(row))
            except UserCodeError as error:
                if not self.forgives:
                    raise failed_call(self.name, error, row, uid=self.uid) from error
                out.add(FAILED_ROW, place, (describe_failure(error),))
                return False
            return True
        if self.forgives:
            out.add(FAILED_ROW, place, (answer.describe(self.settings),))
            return False
        raise self._failed(answer, row) from answer.error

    def _failed(self, answer: Answer[Element], row: Row) -> UserCodeError:
        return failed_call(self.name, answer.cause, row, uid=self.uid, more=answer.describe_attempts(self.settings))

    @contextmanager
    def _opened(self) -> Iterator[AsyncCalls]:
        """Open the function on the event loop of the task, and close it at the end."""
        calls = AsyncCalls(call_of(self.function), self.settings)
        with closing(partial(self._close, calls)):
            self._complete(calls, "open")
            yield calls

    def _close(self, calls: AsyncCalls) -> None:
        with calls:
            calls.cancel()
            self._complete(calls, "close")

    def _complete(self, calls: AsyncCalls, name: str) -> None:
        method = lifecycle(self.function, name)
        if method is not None:
            with named(name, self.name, self.uid):
                calls.complete(method())


def _all(first: tuple[Row, Element], following: Iterator[tuple[Row, Element]]) -> Iterator[tuple[Row, Element]]:
    yield first
    yield from following

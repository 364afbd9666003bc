"""Which stored elements some window still holds, in a task: for the merging of files of elements."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidemark.semantics.process.window_process import WindowProcess
from tidemark.semantics.watermarks.operator_clock import OperatorClock
from tidemark.spark.columns.expressions import START
from tidemark.spark.operators.keyed.columns import ORDER, STORED
from tidemark.spark.operators.keyed.key_state import newest_version
from tidemark.spark.operators.keyed.output_buffer import Outbox, Shape
from tidemark.spark.operators.keyed.rows import KeyRows, Place, keys_of
from tidemark.spark.operators.process.elements_task import key_of

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class CompactionTask:
    """What a task does with the elements of its keys: keeps those that the newest version of their key holds.

    Args:
        process: the windows.
        clock: of the operator in the epoch.
        keys: key columns by the names of the keys.
        schema: of the rows that come out.
        shapes: of these rows, by tag.
        uid: of the operator.
    """

    process: WindowProcess
    clock: OperatorClock
    keys: Mapping[str, str]
    schema: pa.Schema
    shapes: Mapping[int, Shape]
    uid: str

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the elements that stay; called by Spark in a worker."""
        out = Outbox(self.schema, self.shapes, self.uid)
        for rows in keys_of(batches):
            yield from self._run_key(rows, out)
        yield from out.rest()

    def _run_key(self, rows: KeyRows, out: Outbox) -> Iterator[pa.RecordBatch]:
        version = newest_version(rows)
        if version.state is None or not rows.has(STORED):
            return
        epoch = self.process.begin(key_of(rows.first, self.keys), version.state, self.clock)
        for run in rows.of(STORED):
            for number, (time, order) in enumerate(zip(run.values(START), run.values(ORDER), strict=True), start=run.start):
                if epoch.holds(time, order):  # type: ignore[arg-type]
                    out.add(STORED, Place(run.batch, number), (time, order))
            yield from out.enough()

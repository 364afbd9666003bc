"""Rows of many keys in one value, as they travel between tasks.

Spark moves such values as bytes; to shuffle and sort the rows themselves takes it about as long as a function in Python takes for them.
One task packs rows, apart by the task that will process them, which unpacks and sorts them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Final

from pyspark.sql import types as T

from tidemark.spark.operators.keyed.columns import HASH, TAG
from tidemark.spark.operators.keyed.settled_worker import settle_worker

if TYPE_CHECKING:
    import pyarrow as pa

PART: Final = "__tm_part"
"""The number of the task that processes the rows."""

ROWS: Final = "__tm_rows"
"""Their number."""

DATA: Final = "__tm_data"
HASHES: Final = "__tm_hashes"
"""The hashes of the rows' keys, each once; null where nobody asks for them."""

CLOCK: Final = "__tm_clock"
"""The number of the epoch, and its times as ``OperatorClock`` has them, behind its domain."""

VALUE_FIELDS: Final = (T.StructField(ROWS, T.LongType()), T.StructField(DATA, T.BinaryType()))

PACKED: Final = T.StructType(
    [
        T.StructField(TAG, T.IntegerType()),
        T.StructField(PART, T.IntegerType()),
        T.StructField(HASHES, T.ArrayType(T.LongType())),
        *VALUE_FIELDS,
    ]
)
"""The columns of packed rows; ``DATA`` is a stream of Arrow's, with the rows of one tag."""

MAX_BYTES: Final = 32 * 1024 * 1024
"""So many bytes of rows are packed at once."""


@dataclass(frozen=True)
class PackTask:
    """Packs the rows of a task; called by Spark in a worker.

    Args:
        tag: of the rows.
        parts: the number of tasks that process keys.
        list_hashes: whether the hashes of their keys are asked for.
        repeated: columns of texts that many rows share.
        max_bytes: of rows that are packed at once.
    """

    tag: int
    parts: int
    list_hashes: bool = False
    repeated: tuple[str, ...] = ()
    max_bytes: int = MAX_BYTES

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield packed rows."""
        import pyarrow as pa

        held: list[pa.RecordBatch] = []
        size = 0
        for batch in batches:
            if not batch.num_rows:
                continue
            held.append(batch)
            size += batch.nbytes
            if size > self.max_bytes:
                yield self._packed(pa.Table.from_batches(held))
                held, size = [], 0
        if held:
            yield self._packed(pa.Table.from_batches(held))
        settle_worker("pack")

    def _packed(self, rows: pa.Table) -> pa.RecordBatch:
        import pyarrow as pa
        import pyarrow.compute as pc

        rows = rows.combine_chunks()
        for name in self.repeated:
            rows = rows.set_column(rows.column_names.index(name), name, rows.column(name).dictionary_encode())
        found: list[tuple[int, pa.Table]] = []
        if self.parts == 1:
            found.append((0, rows))
        else:
            part = part_of(rows.column(HASH), self.parts)
            ordered = rows.take(pc.array_sort_indices(part))
            start = 0
            for number, count in sorted((each["values"].as_py(), each["counts"].as_py()) for each in pc.value_counts(part)):
                found.append((number, ordered.slice(start, count)))
                start += count
        count = len(found)
        columns = {
            TAG: pa.array([self.tag] * count, pa.int32()),
            PART: pa.array([number for number, _ in found], pa.int32()),
            HASHES: self._hashes([each for _, each in found]),
            ROWS: pa.array([each.num_rows for _, each in found], pa.int64()),
            DATA: pa.array([as_value(each) for _, each in found], pa.binary()),
        }
        return pa.RecordBatch.from_arrays(list(columns.values()), list(columns))

    def _hashes(self, tables: Sequence[pa.Table]) -> pa.ListArray:
        import pyarrow as pa
        import pyarrow.compute as pc

        if not self.list_hashes:
            return pa.nulls(len(tables), pa.list_(pa.int64()))
        found = [pc.unique(each.column(HASH)) for each in tables]
        return pa.ListArray.from_arrays(pa.array(accumulate(map(len, found), initial=0), pa.int32()), pa.concat_arrays(found))


def part_of(hashes: pa.ChunkedArray, parts: int) -> pa.Array:
    """Return the number of the task for each of some hashes."""
    import pyarrow as pa
    import pyarrow.compute as pc

    positive = pc.bit_wise_and(hashes, pa.scalar(2**62 - 1, pa.int64()))
    whole = pc.multiply(pc.divide(positive, parts), parts)
    return pc.subtract(positive, whole).combine_chunks().cast(pa.int32())


@dataclass(frozen=True)
class UnpackTask:
    """Unpacks values, which are the only column; called by Spark in a worker."""

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the rows of the values."""
        for batch in batches:
            for data in batch.column(0):
                yield from unpacked(data).to_batches()
        settle_worker("unpack")


def unpacked(data: pa.Scalar) -> pa.Table:
    """Return the rows in a value."""
    import pyarrow as pa

    return pa.ipc.open_stream(data.as_buffer()).read_all()


def as_value(rows: pa.Table | pa.RecordBatch) -> bytes:
    """Return rows as one value."""
    import pyarrow as pa

    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema, options=pa.ipc.IpcWriteOptions(compression="lz4")) as writer:
        writer.write(rows)
    written: bytes = sink.getvalue().to_pybytes()
    return written

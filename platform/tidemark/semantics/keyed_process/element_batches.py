"""The elements of a key in batches whose ends depend on these elements alone, however they come to a task."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa

MAX_ROWS: Final = 10_000
MAX_BYTES: Final = 8 * 1024 * 1024
"""A batch has at most so many bytes, or one element, which may have more."""


class ElementBatch(NamedTuple):
    """Elements of a key in the order of their times: their columns, these times, and a number of bytes that they do not exceed."""

    rows: pa.RecordBatch
    times: pa.Int64Array
    limit: int

    def part(self, start: int, stop: int) -> ElementBatch:
        """Return some of the elements."""
        if stop - start == len(self.times):
            return self
        return ElementBatch(self.rows.slice(start, stop - start), self.times.slice(start, stop - start), self.limit)


def batches_of_key(parts: Iterable[ElementBatch], *, max_rows: int = MAX_ROWS, max_bytes: int = MAX_BYTES) -> Iterator[ElementBatch]:
    """Yield the elements of a key in batches of so many rows, or bytes; where the parts end makes no difference."""
    held: list[ElementBatch] = []
    for part in parts:
        rest = part
        while (stop := _fitting(held, rest, max_rows, max_bytes)) < len(rest.times):
            yield _joined([*held, rest.part(0, stop)])
            held, rest = [], rest.part(stop, len(rest.times))
        held.append(rest)
    if held:
        yield _joined(held)


def _fitting(held: Sequence[ElementBatch], rest: ElementBatch, max_rows: int, max_bytes: int) -> int:
    """Return how many of further elements are of one batch with those that are held."""
    most = min(len(rest.times), max_rows - sum(len(each.times) for each in held))
    if sum(each.limit for each in held) + rest.limit <= max_bytes:
        return most
    import numpy as np

    taken = sum(int(bytes_of_rows(each.rows).sum()) for each in held)
    fitting = int(np.searchsorted(np.cumsum(bytes_of_rows(rest.rows)), max_bytes - taken, side="right"))
    return max(min(most, fitting), 0 if held else 1)


def _joined(parts: Sequence[ElementBatch]) -> ElementBatch:
    if len(parts) == 1:
        return parts[0]
    import pyarrow as pa

    found = [part for part in parts if len(part.times)]
    return ElementBatch(
        pa.Table.from_batches([part.rows for part in found]).combine_chunks().to_batches()[0],
        pa.concat_arrays([part.times for part in found]),
        sum(part.limit for part in found),
    )


def bytes_of_rows(rows: pa.RecordBatch) -> npt.NDArray[np.int64]:
    """Return the number of bytes of each row's values, which does not depend on the other rows, as ``nbytes`` does."""
    import numpy as np

    return sum((_bytes_of_values(column) for column in rows.columns), np.zeros(rows.num_rows, np.int64))


def _bytes_of_values(column: pa.Array) -> npt.NDArray[np.int64]:
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = column.type
    if pa.types.is_dictionary(kind):
        return _bytes_of_values(column.dictionary_decode())
    if pa.types.is_struct(kind):
        return sum(map(_bytes_of_values, column.flatten()), np.zeros(len(column), np.int64))
    if pa.types.is_map(kind) or pa.types.is_list(kind) or pa.types.is_large_list(kind):
        parts = (column.keys, column.items) if pa.types.is_map(kind) else (column.values,)
        of_values = sum(map(_bytes_of_values, parts), np.zeros(len(parts[0]), np.int64))
        before, offsets = np.concatenate([[0], np.cumsum(of_values)]), column.offsets.to_numpy()
        found = before[offsets[1:]] - before[offsets[:-1]]
        return np.where(column.is_null().to_numpy(zero_copy_only=False), 0, found)
    try:
        return np.full(len(column), max(1, kind.bit_width // 8), np.int64)
    except ValueError:
        # Texts and bytes.
        return np.asarray(pc.fill_null(pc.binary_length(column), 0), np.int64)

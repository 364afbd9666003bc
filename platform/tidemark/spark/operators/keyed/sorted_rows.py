"""Sorts the rows of a task in bounded memory: what would exceed it is written to the local disk in sorted runs, which are merged."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final, Literal

if TYPE_CHECKING:
    import pyarrow as pa

SortKeys = Sequence[tuple[str, Literal["ascending", "descending"]]]

MAX_BYTES: Final = 32 * 1024 * 1024
"""So many bytes of rows are sorted at once, which takes about three times as much for a moment."""

BLOCK_ROWS: Final = 5_000
"""Rows of a run that are read at once."""

BLOCK_BYTES: Final = 512 * 1024
"""Up to so many bytes of them, or one row, which may have more: while runs are merged, a block of each is in memory."""

_FENCE: Final = "__tm_fence"


class SortedRows:
    """Rows that are added in any order and read once, sorted; nulls come first.

    Args:
        keys: columns to sort by, as far as the rows have them; rows that are equal in all of them come in any order.
        max_bytes: of rows that are in memory at once.
        block_rows: rows of a run that are read at once.
    """

    def __init__(self, keys: SortKeys, *, max_bytes: int = MAX_BYTES, block_rows: int = BLOCK_ROWS) -> None:
        self._keys = keys
        self._max_bytes = max_bytes
        self._block_rows = block_rows
        self._tables: list[pa.Table] = []
        self._bytes = 0
        self._folder: TemporaryDirectory[str] | None = None
        self._runs: list[Path] = []

    def add(self, rows: pa.Table) -> None:
        """Add rows."""
        if rows.num_rows:
            self._tables.append(rows)
            self._bytes += rows.nbytes
            if self._bytes > self._max_bytes:
                self._write_run()

    def read(self) -> Iterator[pa.Table]:
        """Yield the rows in order; in one table where they fit into memory."""
        if self._runs and self._tables:
            self._write_run()
        if self._folder is not None:
            with self._folder:
                yield from self._merged()
        elif self._tables:
            yield self._taken()

    def _taken(self) -> pa.Table:
        tables, self._tables, self._bytes = self._tables, [], 0
        return _in_order(tables, self._keys)

    def _write_run(self) -> None:
        import pyarrow as pa

        if self._folder is None:
            # Executors give their workers the folders that Spark itself writes to when memory is short.
            places = os.environ.get("SPARK_LOCAL_DIRS", "").split(",")
            self._folder = TemporaryDirectory(prefix="tidemark-sort-", dir=places[0] or None)
        path = Path(self._folder.name) / f"{len(self._runs)}.arrow"
        rows = self._taken()
        with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, rows.schema) as writer:
            fitting = rows.num_rows * BLOCK_BYTES // max(rows.nbytes, 1)
            writer.write_table(rows, max_chunksize=max(1, min(self._block_rows, fitting)))
        self._runs.append(path)

    def _merged(self) -> Iterator[pa.Table]:
        """Yield the rows of all runs, whose blocks are read in the order of their first rows."""
        import pyarrow as pa

        runs = [pa.ipc.open_file(pa.memory_map(str(path))) for path in self._runs]
        blocks = [(run, number) for run in runs for number in range(run.num_record_batches)]
        firsts = [pa.Table.from_batches([run.get_batch(number).slice(0, 1)]) for run, number in blocks]
        marked = [first.append_column(_FENCE, pa.array([nth], pa.int64())) for nth, first in enumerate(firsts)]
        # Only the columns to sort by are copied: where rows are large each is a block.
        compared = [name for name, _ in self._keys if name in marked[0].column_names]
        order = _in_order([each.select([*compared, _FENCE]) for each in marked], self._keys).column(_FENCE).to_pylist()
        for nth, following in zip(order, [*order[1:], None], strict=True):
            run, number = blocks[nth]
            self._tables.append(pa.Table.from_batches([run.get_batch(number)]))
            self._bytes += self._tables[-1].nbytes
            if following is None:
                yield self._taken()
            elif self._bytes > self._max_bytes:
                # No row that was not read yet precedes the first one of the next block.
                held = [table.append_column(_FENCE, pa.nulls(table.num_rows, pa.int64())) for table in self._tables]
                rows = _in_order([*held, marked[following]], self._keys)
                stop = rows.column(_FENCE).index(following).as_py()
                rows = rows.drop_columns(_FENCE)
                yield rows.slice(0, stop)
                self._tables, self._bytes = [rows.slice(stop + 1)], 0


def _in_order(tables: Sequence[pa.Table], keys: SortKeys) -> pa.Table:
    import pyarrow as pa
    import pyarrow.compute as pc

    rows = pa.concat_tables(tables).unify_dictionaries().combine_chunks()
    compared: dict[str, pa.ChunkedArray | pa.Array] = {}
    by: list[tuple[str, str]] = []
    for name, direction in keys:
        if name in rows.column_names:
            if rows.column(name).null_count:
                compared[f"{name} is there"] = pc.is_valid(rows.column(name))
                by.append((f"{name} is there", "ascending"))
            compared[name] = _comparable(rows.column(name))
            by.append((name, direction))
    return rows.take(pc.sort_indices(pa.table(compared), sort_keys=by))


def _comparable(column: pa.ChunkedArray) -> pa.ChunkedArray | pa.Array:
    """Return a column as one that can be sorted by: of a dictionary the places of its values."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if not pa.types.is_dictionary(column.type):
        return column
    whole = column.combine_chunks()
    values = whole.chunk(0) if isinstance(whole, pa.ChunkedArray) else whole
    return pc.rank(values.dictionary).take(values.indices)

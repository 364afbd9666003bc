"""The elements of one key in a past epoch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.errors import PySparkException

from tidemark.errors import EngineError
from tidemark.graph.operators.keyed_process.node import KeyedProcessNode
from tidemark.semantics.keyed_process.context import Row
from tidemark.semantics.keyed_process.element_batches import ElementBatch
from tidemark.spark.columns.error_text import first_line
from tidemark.spark.columns.expressions import POSITION, TIME
from tidemark.spark.operators.keyed.python_values import python_values
from tidemark.spark.operators.keyed.rows import ROWS_AT_ONCE
from tidemark.spark.operators.keyed_process.columns import INPUT
from tidemark.spark.operators.keyed_process.runtime import KeyedProcessRuntime
from tidemark.spark.operators.keyed_process.staging import staged_rows
from tidemark.spark.replay.replay_input import PastEpoch
from tidemark.spark.replay.replayed_key import ReplayedKey

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class KeyElements:
    """The elements of a key in the order in which its function is called, and the key's values as their types have them.

    ``table`` is None where the epoch had no input; ``columns`` are those of each input's elements.
    """

    key: Mapping[str, object]
    table: pa.Table | None = None
    columns: tuple[Mapping[str, str], ...] = ()

    @staticmethod
    def read(past: PastEpoch, node: KeyedProcessNode, key: ReplayedKey) -> KeyElements:
        """Read them again from the job's sources.

        Raises:
            ColumnError: a value of the key is none of its column's type.
            EngineError: the input cannot be read any more.
        """
        with past.inputs_of(node, KeyedProcessRuntime(node)) as inputs:
            keyed = {port: each.rows for port, each in inputs.items() if port in node.element_ports}
            if not keyed:
                return KeyElements(key.values)
            rows, types, columns = staged_rows(node, keyed)
            order = [name for name in (TIME, INPUT, POSITION) if name in rows.columns]
            chosen = rows.where(key.condition(node)(types)).orderBy(*order)
            try:
                return KeyElements(key.typed(types), chosen.toArrow().combine_chunks(), columns)
            except PySparkException as error:
                raise EngineError(
                    f"the input of epoch {past.record.epoch} cannot be read again: {first_line(error)}",
                    fix="choose a newer epoch, whose files or offsets the source still has",
                    job=past.job.name,
                    uid=node.uid,
                ) from error

    def rows(self) -> Iterator[tuple[Row, int, int]]:
        """Yield each element with its time, and the number of its input."""
        table = self.table
        if table is None:
            return
        values = {name: python_values(table.column(name).combine_chunks()) for name in table.column_names if name != POSITION}
        numbers: Any = values.get(INPUT, [0] * table.num_rows)
        for nth, (time, number) in enumerate(zip(values[TIME], numbers, strict=True)):
            yield {name: values[stored][nth] for name, stored in self.columns[number].items()}, time, number  # type: ignore[misc]

    def batches(self) -> Iterator[ElementBatch]:
        """Yield the elements in batches."""
        if self.table is None:
            return
        named = self.table.select(list(self.columns[0].values())).rename_columns(list(self.columns[0]))
        times = self.table.column(TIME)
        for batch in named.to_batches(max_chunksize=ROWS_AT_ONCE):
            first = times.slice(0, batch.num_rows).combine_chunks()
            times = times.slice(batch.num_rows)
            yield ElementBatch(batch, first, batch.nbytes)

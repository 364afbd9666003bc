"""The rows that an epoch passes to the tasks: the input, the state of keys that need a call, and stored rows of keys that need them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from tidemark.semantics.watermarks.operator_clock import OperatorClock
from tidemark.semantics.watermarks.watermarks import MAX_WATERMARK
from tidemark.spark.columns.expressions import TIME, quoted
from tidemark.spark.columns.state_files import read_files
from tidemark.spark.operators.base.contract import OperatorContext
from tidemark.spark.operators.keyed.columns import EPOCH, NEW, SORT, TAG, VERSION
from tidemark.spark.operators.keyed.key_table import FIRES, KeyTable, rows_of_keys, union_of
from tidemark.spark.operators.keyed.layout import Layout
from tidemark.state.log.parquet_files import ParquetSummary

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

FEW_ROWS = 20_000
"""Up to so many stored rows, passing all of them to the tasks costs less than looking up those that an epoch needs."""

NO_OTHER_KEYS = (MAX_WATERMARK, MAX_WATERMARK, MAX_WATERMARK)


Fed = tuple["DataFrame", tuple[int, int, int]]


@dataclass(frozen=True)
class StoredRows:
    """Rows of earlier epochs, with their tag and order; ``count`` is the greatest number there may be.

    They are passed for keys that are due, and for keys with new rows for which the SQL condition ``wanted_by`` is true.
    """

    rows: DataFrame
    count: int
    wanted_by: str


class TaskInput:
    """Rows for one run of a task.

    Args:
        layout: the operator's columns in the epoch.
        keys: the table of its keys.
        context: of the epoch.
        clock: of the operator.
    """

    def __init__(self, layout: Layout, *, keys: KeyTable, context: OperatorContext, clock: OperatorClock) -> None:
        self._layout = layout
        self._keys = keys
        self._context = context
        self._clock = clock
        self._columns = list(layout.keys.values())

    def new(self, staged: Sequence[ParquetSummary]) -> DataFrame | None:
        """Return the rows of files of the epoch's input; None where there are none."""
        if not staged:
            return None
        files = [file.as_state_file(self._context.epoch) for file in staged]
        rows = read_files(self._context.spark, self._context.store, files, self._layout.new)
        return rows.withColumn(TAG, F.lit(NEW)).withColumn(SORT, F.col(TIME))

    def takes_all(self, stored: StoredRows | None = None) -> bool:
        """Return whether all stored rows are passed; otherwise new rows are read twice."""
        return not self._columns or self._keys.rows + (0 if stored is None else stored.count) <= FEW_ROWS

    def rows(self, new: DataFrame | None, stored: StoredRows | None = None) -> Fed:
        """Return the rows, and the least deadlines and the oldest time of keys that are not passed.

        Args:
            new: the epoch's rows, with ``TAG`` and ``SORT``.
            stored: rows of earlier epochs, None where no key can need any.
        """
        versions = self._keys.read(self._layout.versions).withColumn(TAG, F.lit(VERSION)).withColumn(SORT, F.expr(f"-{EPOCH}"))
        kept = [versions] if stored is None else [versions, stored.rows]
        parts = [] if new is None else [new]
        if self.takes_all(stored):
            return union_of([*parts, *kept]), NO_OTHER_KEYS
        wanted = []
        if new is not None:
            wanted.append(self._asking(new, "false" if stored is None else stored.wanted_by))
        due, others = self._keys.due_now(versions, self._context.before.watermark, self._clock)
        if due is not None:
            wanted.append(self._asking(due, "true"))
        needed = rows_of_keys(union_of(kept), union_of(wanted), self._columns, f"({TAG} = {VERSION} OR {FIRES})")
        return union_of([*parts, needed]), others

    def _asking(self, rows: DataFrame, fires: str) -> DataFrame:
        return rows.select(*map(quoted, self._columns), F.expr(fires).alias(FIRES))

"""The stored elements that an epoch passes to the tasks: those of keys whose windows may fire."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from tidemark.graph.operators.window.node import WindowNode
from tidemark.semantics.process.window_process import ElementOrder
from tidemark.semantics.watermarks.operator_clock import OperatorClock
from tidemark.semantics.watermarks.watermarks import MIN_WATERMARK
from tidemark.spark.columns.expressions import START, TIME
from tidemark.spark.columns.state_files import overlapping
from tidemark.spark.operators.base.tables import StateTables
from tidemark.spark.operators.keyed.columns import SORT, STORED, TAG
from tidemark.spark.operators.keyed.input import StoredRows
from tidemark.spark.operators.keyed.layout import Layout
from tidemark.spark.prepared.runtime_literals import runtime_literals
from tidemark.state.log.parquet_files import ParquetSummary

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True)
class StoredElements:
    """The elements of an operator in one epoch.

    ``before`` is the watermark of the epoch before; ``fires_when_due`` is whether windows fire only when they are due, and for late
    elements after that; ``order`` is the sort order of stored elements.
    """

    node: WindowNode
    tables: StateTables
    clock: OperatorClock
    before: int
    order: ElementOrder
    fires_when_due: bool

    def needed(self, layout: Layout, staged: Sequence[ParquetSummary], *, reached: bool) -> StoredRows | None:
        """Return the elements, None where no window can fire; ``staged`` is the epoch's input, ``reached`` whether keys may be due."""
        waking = self._waking(staged)
        rows = self._rows(layout) if reached or waking else None
        return None if rows is None else StoredRows(rows, sum(file.rows for file in self.tables.files()), waking or "false")

    def _waking(self, staged: Sequence[ParquetSummary]) -> str:
        """Return the condition of new elements whose key may fire although it is not due, empty where there is none."""
        if not staged:
            return ""
        if not self.fires_when_due:
            return "true"
        # Elements of a fired window are not after the watermark at which it fired; those that touch a session may be, by a millisecond.
        last = self.before + 1 if self.node.assigner.merging else self.before
        late = self.node.allowed_lateness_ms and any(file.min_time is None or file.min_time <= last for file in staged)
        return f"{TIME} <= {runtime_literals(last, varying=TIME)[0]}" if late else ""

    def _rows(self, layout: Layout) -> DataFrame | None:
        files = self.tables.files()
        if self.fires_when_due:
            files = overlapping(files, MIN_WATERMARK, self.clock.watermark)
        if not files:
            return None
        rows = self.tables.read(files, layout.stored)
        if self.fires_when_due:
            rows = rows.where(f"{START} <= {runtime_literals(self.clock.watermark)[0]}")
        return rows.withColumn(TAG, F.lit(STORED)).withColumn(SORT, F.expr("0L") if self.order == "arrival" else F.col(START))

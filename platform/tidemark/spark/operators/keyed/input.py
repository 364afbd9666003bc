"""What an epoch hands to the tasks: the input, what is kept of the keys that need a call, and elements of those that may fire."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from tidemark.graph.model.nodes import WindowNode
from tidemark.semantics.process.window_process import ElementOrder
from tidemark.semantics.watermarks.operator_clock import OperatorClock
from tidemark.semantics.watermarks.watermarks import MAX_WATERMARK, MIN_WATERMARK
from tidemark.spark.columns.expressions import START, TIME, quoted
from tidemark.spark.columns.state_files import overlapping, read_files
from tidemark.spark.operators.base.contract import EpochSetting
from tidemark.spark.operators.base.runtime_literals import parameters
from tidemark.spark.operators.base.tables import StateTables
from tidemark.spark.operators.keyed.columns import EPOCH, NEW, SORT, STORED, TAG, VERSION
from tidemark.spark.operators.keyed.key_table import FIRES, KeyTable, of_keys, together
from tidemark.spark.operators.keyed.layout import Layout
from tidemark.state.log.parquet_files import ParquetSummary

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

FEW_ROWS = 20_000
"""Up to so many stored rows, handing all of them to the tasks costs less than looking for those that an epoch needs."""

NOTHING_ELSE = (MAX_WATERMARK, MAX_WATERMARK, MAX_WATERMARK)


Fed = tuple["DataFrame", tuple[int, int, int]]


class Feed:
    """Rows for one pass.

    Args:
        node: the operator.
        layout: its columns in the epoch.
        tables: its files; the main ones are elements.
        keys: what is kept of its keys.
        setting: of the epoch.
        clock: of the operator.
    """

    def __init__(
        self, node: WindowNode, layout: Layout, *, tables: StateTables, keys: KeyTable, setting: EpochSetting, clock: OperatorClock
    ) -> None:
        self._node = node
        self._layout = layout
        self._tables = tables
        self._keys = keys
        self._setting = setting
        self._clock = clock
        self._columns = list(layout.keys.values())

    def rows(self, staged: Sequence[ParquetSummary], *, order: ElementOrder, fires_when_due: bool) -> Fed:
        """Return the rows, and the least deadlines and the oldest window of keys that are not among them.

        Args:
            staged: the files of the epoch's input.
            order: what stored elements are sorted by.
            fires_when_due: whether windows fire only when they are due, and for late elements after that.
        """
        new = self._new(staged)
        reached = self._keys.before.reached(self._clock)
        waking = self._waking(staged, fires_when_due=fires_when_due)
        elements = self._elements(order, fires_when_due=fires_when_due) if reached or waking else None
        versions = self._keys.read(self._layout.versions).withColumn(TAG, F.lit(VERSION)).withColumn(SORT, F.expr(f"-{EPOCH}"))
        kept = [versions] if elements is None else [versions, elements]
        stored_rows = self._keys.rows + (sum(file.rows for file in self._tables.files()) if elements is not None else 0)
        parts = [] if new is None else [new]
        if not self._columns or stored_rows <= FEW_ROWS:
            return together([*parts, *kept]), NOTHING_ELSE
        wanted = []
        if new is not None:
            wanted.append(new.select(*map(quoted, self._columns), F.expr(waking or "false").alias(FIRES)))
        others = self._keys.before.due, self._keys.before.timer, self._keys.before.oldest
        if reached:
            due = self._keys.due(versions, self._setting.before.watermark, self._clock)
            wanted.append(due.select(*map(quoted, self._columns), F.expr("true").alias(FIRES)))
            others = self._keys.ahead(versions, self._clock)
        needed = of_keys(together(kept), together(wanted), self._columns, f"({TAG} = {VERSION} OR {FIRES})")
        return together([*parts, needed]), others

    def _new(self, staged: Sequence[ParquetSummary]) -> DataFrame | None:
        if not staged:
            return None
        files = [file.as_state_file(self._setting.epoch) for file in staged]
        rows = read_files(self._setting.spark, self._setting.store, files, self._layout.new)
        return rows.withColumn(TAG, F.lit(NEW)).withColumn(SORT, F.col(TIME))

    def _waking(self, staged: Sequence[ParquetSummary], *, fires_when_due: bool) -> str:
        """Return the condition of new elements whose key may fire though it was not due, empty where there is none."""
        if not staged:
            return ""
        if not fires_when_due:
            return "true"
        before = self._setting.before.watermark
        # What lies in a window that has fired is not after the watermark it fired at; what touches a session may be, by a millisecond.
        last = before + 1 if self._node.assigner.merging else before
        late = self._node.allowed_lateness_ms and any(file.min_time is None or file.min_time <= last for file in staged)
        return f"{TIME} <= {parameters(last, varying=TIME)[0]}" if late else ""

    def _elements(self, order: ElementOrder, *, fires_when_due: bool) -> DataFrame | None:
        files = self._tables.files()
        if fires_when_due:
            files = overlapping(files, MIN_WATERMARK, self._clock.watermark)
        if not files:
            return None
        rows = self._tables.read(files, self._layout.stored)
        if fires_when_due:
            rows = rows.where(f"{START} <= {parameters(self._clock.watermark)[0]}")
        return rows.withColumn(TAG, F.lit(STORED)).withColumn(SORT, F.expr("0L") if order == "arrival" else F.col(START))

"""The DataFrames of sliding and cumulative windows: from an epoch's input to slices, and from slices to windows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from tidemark.graph.operators.window.node import WindowNode
from tidemark.semantics.windows.assigners import Cumulative, Sliding
from tidemark.semantics.windows.slices import Slices
from tidemark.spark.columns.expressions import POSITION, START, TIME
from tidemark.spark.operators.aligned.pre_aggregation import FIRST_START, AlignedRuntime, Thresholds
from tidemark.spark.operators.aligned.two_stacks import END, Ends, TwoStacks
from tidemark.spark.operators.base.late_metrics import last_end_sql
from tidemark.spark.prepared.runtime_literals import runtime_literals
from tidemark.state.log.records import OperatorState

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

SINCE = "__tm_since"
MARKS = "__tm_marks"
INDEX = "__tm_index"


class SliceFrames(AlignedRuntime):
    """The DataFrames of one operator.

    Args:
        node: the operator; its assigner must be Sliding or Cumulative.
    """

    def __init__(self, node: WindowNode) -> None:
        if not isinstance(node.assigner, Sliding | Cumulative):
            raise TypeError(f"no step for windows of kind {type(node.assigner).__name__}")
        self.slices = Slices.of(node.assigner)
        super().__init__(node, self.slices.width, self.slices.offset)
        self.two_stacks = TwoStacks(self.slices, self.partials)

    def next_timer(self, state: OperatorState) -> int | None:
        """Return the end of the first window that has yet to fire, by the bounds of files, less a millisecond."""
        following = self.slices.last_end(state.watermark) + self.slices.ends
        ends = [
            max(following, following if file.min_time is None else self.slices.first_end_of(file.min_time)) - 1
            for file in state.files
            if not file.part and (file.max_time is None or self.slices.last_end_of(file.max_time) >= following)
        ]
        return min(ends, default=None)

    def outside_windows(self, start: str) -> str | None:
        """Return the condition of rows between windows, where the slide is greater than the size."""
        slices = self.slices
        return f"pmod({start} - {slices.offset}L, {slices.starts}L) >= {slices.span}L" if slices.gaps else None

    @property
    def end_of_late(self) -> str:
        """SQL of the end of the last window that covers a slice."""
        return last_end_sql(self.slices, START)

    def last_window_of(self, start: int) -> int | None:
        """Return the start of the last window that covers a slice, None where none does."""
        return self.slices.last_window_of(start)

    def marks(self, fired: str, bounds: Thresholds, epoch: int) -> list[str]:
        """Return the columns that determine a window's number of panes: up to where windows had fired when a row came, and refirings."""
        if not self.lateness:
            return []
        reached, number = runtime_literals(bounds.reached, epoch)
        mark = f"array(named_struct('epoch', {number}, 'fired', {reached}))"
        return [f"{reached} AS {SINCE}", f"if({fired}, {mark}, CAST(array() AS ARRAY<STRUCT<epoch: BIGINT, fired: BIGINT>>)) AS {MARKS}"]

    def merged(self, state: DataFrame, *by: str, extra: Sequence[Column] = ()) -> DataFrame:
        """Return rows of slices merged to one per key and the columns ``by``, with their marks."""
        kept = []
        if MARKS in state.columns:
            # Rows from before the operator had an allowed lateness were on time.
            kept.append(F.expr(f"min(coalesce({SINCE}, {FIRST_START}L)) AS {SINCE}"))
            kept.append(F.expr(f"array_distinct(flatten(collect_list({MARKS}))) AS {MARKS}"))
        return self.partials.grouped(state, *by, extra=[*kept, *extra])

    def in_windows(self, state: DataFrame, ends: Ends) -> DataFrame:
        """Return rows of slices, one for each window that covers it and ends within bounds, with the window's ``END``."""
        slices = self.slices
        low, high = runtime_literals(ends.first, ends.last)
        first = f"greatest({START} + {slices.width}L, {low})"
        last = f"least({START} - pmod({START} - {slices.offset}L, {slices.starts}L) + {slices.span}L, {high})"
        grid = slices.last_end(0)
        spread = state.selectExpr(
            "*",
            f"{first} + pmod({grid}L - {first}, {slices.ends}L) AS __tm_from",
            f"{last} - pmod({last} - {grid}L, {slices.ends}L) AS __tm_to",
        ).where("__tm_from <= __tm_to")
        return spread.selectExpr("*", f"explode(sequence(__tm_from, __tm_to, {slices.ends}L)) AS {END}").drop("__tm_from", "__tm_to")

    def results(self, merged: DataFrame, timing: str) -> DataFrame:
        """Return the result rows of merged windows: keys, bounds, aggregates, pane, and the hidden time ``end - 1``.

        Args:
            merged: partials by key and ``END``, with ``INDEX`` where they are late.
            timing: of the panes.
        """
        slices = self.slices
        start = f"{END} - 1L - pmod({END} - 1L - {slices.offset}L, {slices.span}L)" if slices.growing else f"{END} - {slices.span}L"
        return merged.selectExpr(
            *self.partials.key_results,
            f"timestamp_millis({start}) AS window_start",
            f"timestamp_millis({END}) AS window_end",
            *self.partials.results,
            f"'{timing}' AS pane_timing",
            f"CAST({INDEX if timing == 'LATE' else 0} AS INT) AS pane_index",
            f"{END} - 1L AS {TIME}",
            f"struct('{self.node.uid}' AS origin, {END} AS block, {self.partials.key_hash} AS row) AS {POSITION}",
        )

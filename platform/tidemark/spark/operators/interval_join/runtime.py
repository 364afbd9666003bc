"""Interval joins: an epoch's elements are written as state, and joined with what is in reach of their times, by one pass.

State is one table of each side, a row per element. Its files have the bounds of their times: only files that overlap the times of an
epoch's partners are read, and expired files are dropped unread.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from pyspark.sql import Observation

from tidemark.graph.operators.interval_join.node import IntervalJoinNode
from tidemark.semantics.joins.interval import SIDES, Side, outer_sides
from tidemark.semantics.watermarks.watermarks import MAX_WATERMARK
from tidemark.spark.columns.expressions import START
from tidemark.spark.operators.base.contract import Observed, OperatorContext, Results
from tidemark.spark.operators.base.late_metrics import SHORTFALL
from tidemark.spark.operators.base.touched_times import late_metric
from tidemark.spark.operators.interval_join.columns import SideColumns
from tidemark.spark.operators.interval_join.epoch import ElementJoinEpoch, ElementJoinRuntime
from tidemark.spark.operators.interval_join.frames import LATE_ROW, IntervalJoinFrames
from tidemark.spark.operators.interval_join.joining import EpochJoin
from tidemark.spark.operators.interval_join.state import IntervalElements, stored_elements
from tidemark.state.log.records import OperatorState

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def due_counter(side: Side) -> str:
    """Return the counter of the least watermark at which an element of a side is gone, which has an outer row then."""
    return f"due_{side}"


class IntervalJoinRuntime(ElementJoinRuntime):
    """An interval join of a run.

    Args:
        node: its declaration.
    """

    def __init__(self, node: IntervalJoinNode) -> None:
        super().__init__(node)
        self._declared = node
        self.rule = node.rule
        self.frames = IntervalJoinFrames(node)

    @property
    def node(self) -> IntervalJoinNode:
        """The operator's declaration."""
        return self._declared

    def begin(self, context: OperatorContext) -> IntervalJoinEpoch:
        """Return the operator at work on an epoch."""
        return IntervalJoinEpoch(self, context)

    def next_timer(self, state: OperatorState) -> int | None:
        """Return the least watermark at which an element without a partner has its row."""
        due = [state.counters.get(due_counter(side), MAX_WATERMARK) for side in outer_sides(self.rule.how)]
        least = min(due, default=MAX_WATERMARK)
        return None if least >= MAX_WATERMARK else least


class IntervalJoinEpoch(ElementJoinEpoch):
    """An interval join in one epoch."""

    runtime: IntervalJoinRuntime

    def __init__(self, runtime: IntervalJoinRuntime, context: OperatorContext) -> None:
        super().__init__(runtime, context)
        self._elements = {side: IntervalElements(self._tables, side, context, runtime.rule) for side in SIDES}
        self._join: EpochJoin | None = None

    @property
    def elements(self) -> Mapping[Side, IntervalElements]:
        """The elements of both sides."""
        return self._elements

    def numbers(self, side: Side) -> tuple[int, ...]:
        """Return the numbers of this epoch that ``judged`` needs."""
        return self.runtime.frames.numbers(side, epoch=self.context.epoch, watermark=self.context.before.watermark)

    def judged(self, side: Side, rows: DataFrame, columns: SideColumns, observation: Observation, numbers: Sequence[int]) -> DataFrame:
        """Return the rows of a side that are kept, as in state."""
        frames = self.runtime.frames
        late_times = late_metric(LATE_ROW, START, SHORTFALL)
        return frames.kept(side, frames.counted(frames.judged(side, rows, columns, numbers), observation, late_times))

    def is_late(self, side: Side) -> str:
        """Return SQL of whether a row of this epoch's input is late."""
        *_, last, _ = self.numbers(side)
        return self.runtime.frames.is_late(last)

    def emit(self, watermark: int, observation: Observation) -> Results | None:
        """Return the pairs of this epoch, and the rows of elements that are gone without a partner; None where there are none."""
        del observation  # the results are given theirs
        self.watermark = watermark
        before = {side: self.context.before.counters.get(due_counter(side), MAX_WATERMARK) for side in SIDES}
        frames, context = self.runtime.frames, self.context
        self._join = EpochJoin(frames, self._tables, self._elements, self.known(), context, watermark=watermark, due=before)
        return self._join.results()

    def emitted(self, observation: Observed) -> int:
        """Return the number of results."""
        if self._join is not None:
            self._join.read_counts()
        return super().emitted(observation)

    def stored_tables(self) -> Mapping[str, DataFrame]:
        """Return ``elements``: those of both sides, with their keys, times and columns."""
        node, schema = self.runtime.node, self._tables.schema
        return {"elements": stored_elements(node, self._elements, schema, self.context, watermark=self.watermark)}

    def snapshot(self) -> OperatorState:
        """Return the operator's state after this epoch."""
        due = {} if self._join is None else {due_counter(side): self._join.due[side] for side in outer_sides(self.runtime.rule.how)}
        return self._tables.snapshot(self.watermark, due)

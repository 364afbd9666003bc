"""Interval joins: an epoch's elements are written as state, and joined with what is in reach of their times, by one pass.

State is one table of each side, a row per element. Its files have the bounds of their times: only files that overlap the times of an
epoch's partners are read, and expired files are dropped unread.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from pyspark.sql import Observation
from pyspark.sql import functions as F
from pyspark.sql import types as T

from tidemark.crashpoints import crash_point
from tidemark.graph.operators.interval_join.node import LATE_OF, IntervalJoinNode
from tidemark.semantics.joins.interval import SIDES, Side, outer_sides
from tidemark.semantics.watermarks.watermarks import MAX_WATERMARK
from tidemark.spark.operators.base.contract import InputCounts, Observed, OperatorContext, OperatorEpoch, OperatorRuntime, PortInput
from tidemark.spark.operators.base.tables import StateTables
from tidemark.spark.operators.interval_join.columns import (
    SideColumns,
    check_key_types,
    key_columns,
    key_types,
    known_columns,
    row_types,
    state_schema,
)
from tidemark.spark.operators.interval_join.frames import IntervalJoinFrames
from tidemark.spark.operators.interval_join.joining import EpochJoin
from tidemark.spark.operators.interval_join.state import ElementTable, stored_elements
from tidemark.state.log.records import OperatorState

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def due_counter(side: Side) -> str:
    """Return the counter of the least watermark at which an element of a side is gone, which has an outer row then."""
    return f"due_{side}"


class IntervalJoinRuntime(OperatorRuntime):
    """An interval join of a run; ``given`` are the columns of the sides that had rows in it.

    Args:
        node: its declaration.
    """

    def __init__(self, node: IntervalJoinNode) -> None:
        super().__init__(node)
        self._declared = node
        self.rule = node.rule
        self.frames = IntervalJoinFrames(node)
        self.given: dict[Side, SideColumns] = {}

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


class IntervalJoinEpoch(OperatorEpoch):
    """An interval join in one epoch."""

    runtime: IntervalJoinRuntime

    def __init__(self, runtime: IntervalJoinRuntime, context: OperatorContext) -> None:
        super().__init__(runtime, context)
        self._tables = StateTables(context, runtime.node.place)
        self._elements = {side: ElementTable(self._tables, side, runtime.rule, context) for side in SIDES}
        self._counts: dict[str, InputCounts] = {}
        self._join: EpochJoin | None = None

    @property
    def input_counts(self) -> Mapping[str, InputCounts] | None:
        """The numbers of accepted and late elements of each side."""
        return self._counts or None

    def process_batch(self, inputs: Mapping[str, PortInput]) -> None:
        """Write the accepted elements of each side that has some as state; one Spark job each."""
        for side in SIDES:
            if side in inputs:
                self._write(side, inputs[side].rows)
        crash_point("state-staged")

    def _write(self, side: Side, rows: DataFrame) -> None:
        runtime, frames, context = self.runtime, self.runtime.frames, self.context
        columns = runtime.given[side] = SideColumns(runtime.node, side, row_types(rows))
        self._adopt(key_types(runtime.node, side, rows), columns)
        observation = Observation()
        judged = frames.judged(side, rows, epoch=context.epoch, watermark=context.before.watermark, columns=columns)
        self._elements[side].write(frames.kept(side, frames.counted(judged, observation)))
        found = observation.get
        late = next(counter for counter, own in LATE_OF.items() if own == side)
        self._counts[side] = InputCounts(found["judged"] - found["late"], {late: found["late"]})

    def _adopt(self, keys: T.StructType, columns: SideColumns) -> None:
        """Set the columns of state, those of the other side as they are stored.

        Raises:
            UserCodeError: the keys of the other side are of other types.
            StateMismatchError: a column would change its type.
        """
        schema, node = self._tables.schema, self.runtime.node
        stored = [] if schema is None else [field for field in schema if field.name in key_columns(node)]
        if stored and not any(file.part == columns.side for file in self._tables.files(columns.side)):
            # Of elements of this side nothing is stored, so that these types are the other's.
            check_key_types(node, T.StructType(stored), keys)
        own = state_schema(keys, [columns])
        names = {field.name.lower() for field in own}
        prefix = columns.stored("")
        others = [field for field in schema or () if field.name.lower() not in names and not field.name.startswith(prefix)]
        self._tables.adopt(T.StructType([*own, *others]))

    def emit(self, watermark: int, observation: Observation) -> DataFrame | None:
        """Return the pairs of this epoch, and the rows of elements that are gone without a partner; None where there are none."""
        self.watermark = watermark
        before = {side: self.context.before.counters.get(due_counter(side), MAX_WATERMARK) for side in SIDES}
        self._join = EpochJoin(self.runtime.frames, self._elements, self._known(), self.context, watermark=watermark, due=before)
        results = self._join.results()
        return None if results is None else results.observe(observation, F.expr("count(1) AS results"))

    def _known(self) -> dict[Side, SideColumns]:
        """Return the columns of both sides, as far as they are known."""
        found = dict(self.runtime.given)
        for side in SIDES:
            columns = known_columns(self.runtime.node, side, self._tables.schema) if side not in found else None
            if columns is not None:
                found[side] = columns
        return found

    def emitted(self, observation: Observed) -> int:
        """Return the number of results."""
        if self._join is not None:
            self._join.read_counts()
        return int(observation.get["results"])

    def side_rows(self, counter: str, inputs: Mapping[str, DataFrame]) -> DataFrame:
        """Return the late elements of a side."""
        side = LATE_OF[counter]
        return inputs[side].where(self.runtime.frames.is_late(side, self.context.before.watermark))

    def compact(self) -> Callable[[], None] | None:
        """Drop files of which nothing is needed any more; return the work that merges others."""
        work = [merge for side in SIDES if (merge := self._elements[side].compact(self.watermark)) is not None]
        if not work:
            return None

        def merge_all() -> None:
            for each in work:
                each()

        return merge_all

    def stored_tables(self) -> Mapping[str, DataFrame]:
        """Return ``elements``: those of both sides, with their keys, times and columns."""
        return {"elements": stored_elements(self.runtime.node, self._elements, self._tables.schema, self.context, self.watermark)}

    def snapshot(self) -> OperatorState:
        """Return the operator's state after this epoch."""
        due = {} if self._join is None else {due_counter(side): self._join.due[side] for side in outer_sides(self.runtime.rule.how)}
        return self._tables.snapshot(self.watermark, due)

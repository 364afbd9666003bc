"""The DataFrames of windows that fire by a trigger with a rule: from an epoch's input to windows, and from windows to results."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tidemark.graph.operators.window.execution import rule_of
from tidemark.graph.operators.window.node import WindowNode
from tidemark.semantics.triggers.builtin_triggers import EventTimeTrigger, PurgingTrigger, default_trigger
from tidemark.semantics.watermarks.watermarks import MAX_WATERMARK, MIN_WATERMARK
from tidemark.semantics.windows.assigners import Cumulative, GlobalWindows, Sliding, Tumbling
from tidemark.semantics.windows.local_windows import LocalWindows
from tidemark.semantics.windows.slices import Slices
from tidemark.spark.columns.expressions import POSITION, START, TIME
from tidemark.spark.operators.aligned.firing_rules import FIRST_TIME, Times, next_step, next_tick, waits
from tidemark.spark.operators.aligned.pre_aggregation import AlignedRuntime, Thresholds
from tidemark.spark.operators.aligned.two_stacks import END
from tidemark.spark.operators.base.late_metrics import last_end_sql
from tidemark.spark.operators.base.tables import MAIN
from tidemark.spark.prepared.runtime_literals import runtime_literals
from tidemark.state.log.records import OperatorState

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

CLOCK = "processing_time"
TAKEN = "__tm_taken"
TAKEN_LATE = "__tm_taken_late"
NEWEST = "__tm_newest"
EPOCH = "__tm_epoch"
INDEX = "__tm_index"
_YEARS = 10**15
"""Longer than all of event time: the one slice of a global window."""


class TriggerFrames(AlignedRuntime):
    """The DataFrames of one operator.

    Args:
        node: the operator; one that ``is_triggered``.

    ``trigger`` decides when windows fire, and ``purges`` is whether that purges them.
    """

    def __init__(self, node: WindowNode) -> None:
        trigger = node.trigger or default_trigger(node.assigner)
        self.slices = _slices_of(node)
        width, offset = (_YEARS, -_YEARS // 2) if self.slices is None else (self.slices.width, self.slices.offset)
        super().__init__(node, width, offset)
        self.purges = isinstance(trigger, PurgingTrigger)
        self.trigger = rule_of(trigger)
        self.further = (f"min({TIME}) AS {FIRST_TIME}", f"max({TIME}) AS {NEWEST}", f"count(1) AS {TAKEN}")

    @property
    def time_column(self) -> str:
        """The column whose bounds are recorded for each state file: the windows' ends."""
        return END

    def next_timer(self, state: OperatorState) -> int | None:
        """Return the watermark at which a window may reach its end or its next step, by the bounds of files."""
        reached = min(state.watermark, MAX_WATERMARK - 1) + 1
        open_files = [file for file in state.files if file.part == MAIN and (file.max_time is None or file.max_time > reached)]
        if not open_files:
            return None
        waiting = waits(self.trigger, Times(MIN_WATERMARK, MAX_WATERMARK - 1, 0, 0)) is not None
        first = min(reached + 1 if file.min_time is None else max(file.min_time, reached + 1) for file in open_files) - 1
        first = max(first, self.next_end(state.watermark + 1) - 1)
        step = next_step(self.trigger, state.watermark) if state.watermark > MIN_WATERMARK else None
        due = [at for at in (first if waiting else None, step) if at is not None]
        return min(due, default=None)

    def next_end(self, time: int) -> int:
        """Return the first time after another one at which a window may end; of a global window, which has no end, any may be."""
        return time + 1 if self.slices is None else self.slices.last_end(time - 1) + self.slices.ends

    def next_processing_time(self, state: OperatorState) -> int | None:
        """Return the processing time at which a window may reach its end or its next step."""
        clock = state.counters.get(CLOCK)
        files = [file for file in state.files if file.part == MAIN]
        if isinstance(self.trigger, EventTimeTrigger):
            # Early firing ends at a window's end.
            due = min(state.watermark, MAX_WATERMARK - 1) + 1
            files = [file for file in files if file.max_time is None or file.max_time > due]
        if clock is None or not files:
            return None
        ends = []
        if waits(self.trigger, Times(0, 0, clock, MAX_WATERMARK)) is not None and next_tick(self.trigger, clock) is None:
            following = self.next_end(clock)
            ends = [max(file.min_time, following) for file in files if file.min_time is not None and (file.max_time or clock) > clock]
        return min([at for at in (*ends, next_tick(self.trigger, clock)) if at is not None], default=None)

    def outside_windows(self, start: str) -> str | None:
        """Return the condition of rows between windows, where the slide is greater than the size."""
        slices = self.slices
        return f"pmod({start} - {slices.offset}L, {slices.starts}L) >= {slices.span}L" if slices and slices.gaps else None

    @property
    def end_of_late(self) -> str | None:
        """SQL of the end of the last window that covers a slice; None for the global window."""
        return None if self.slices is None else last_end_sql(self.slices, START)

    def last_window_of(self, start: int) -> int | None:
        """Return the start of the last window that covers a slice, None where none does."""
        return None if self.slices is None else self.slices.last_window_of(start)

    def marks(self, fired: str, bounds: Thresholds, epoch: int) -> list[str]:  # noqa: ARG002
        """Return the number of the epoch, which identifies a window's first elements."""
        return [f"{runtime_literals(epoch)[0]} AS {EPOCH}"]

    def in_windows_of(self, groups: DataFrame, bounds: Thresholds) -> DataFrame:
        """Return groups once for each window that accepts them, with its ``END`` and the number of elements that came when it was due."""
        slices = self.slices
        if slices is None:
            return groups.selectExpr("*", f"{MAX_WATERMARK}L AS {END}", f"0L AS {TAKEN_LATE}")
        (ended,) = runtime_literals(bounds.window_expired)
        (due,) = runtime_literals(bounds.reached, varying=END)
        grid = slices.last_end(0)
        first = f"greatest({START} + {slices.width}L, {ended} + 1L)"
        last = last_end_sql(slices, START)
        each = f"sequence({first} + pmod({grid}L - {first}, {slices.ends}L), {last}, {slices.ends}L)"
        start = f"{END} - 1L - pmod({END} - 1L - {slices.offset}L, {slices.span}L)" if slices.growing else f"{END} - {slices.span}L"
        windows = groups.selectExpr("*", f"explode({each}) AS {END}").drop(START)
        return windows.selectExpr("*", f"{start} AS {START}", f"if({END} <= {due}, {TAKEN}, 0L) AS {TAKEN_LATE}")

    def merged(self, state: DataFrame, *, extra: Sequence[Column] = ()) -> DataFrame:
        """Return state rows merged to one per key and window."""
        # An epoch's first element of a window may be in any of its slices.
        first = f"min(struct({EPOCH}, {FIRST_TIME})).{FIRST_TIME} AS {FIRST_TIME}"
        kept = (first, f"max({NEWEST}) AS {NEWEST}", f"min({EPOCH}) AS {EPOCH}")
        counts = (f"sum({TAKEN}) AS {TAKEN}", f"sum({TAKEN_LATE}) AS {TAKEN_LATE}")
        return self.partials.grouped(state, START, END, extra=[*kept, *counts, *extra])

    @property
    def result_order(self) -> str:
        """SQL of a number that orders the results of one time."""
        return self.partials.key_hash

    def results(self, fired: DataFrame, times: Times) -> DataFrame:
        """Return the result rows of windows that fired: keys, bounds, aggregates, pane, and the hidden result time."""
        due_before, due = runtime_literals(
            *(min(at, MAX_WATERMARK - 1) + 1 for at in (times.watermark_before, times.watermark)), varying=END
        )
        bounded = self.slices is not None
        time = f"{END} - 1L" if bounded else NEWEST
        return fired.selectExpr(
            *self.partials.key_results,
            f"timestamp_millis({START}) AS window_start" if bounded else "CAST(NULL AS TIMESTAMP) AS window_start",
            f"timestamp_millis({END}) AS window_end" if bounded else "CAST(NULL AS TIMESTAMP) AS window_end",
            *self.partials.results,
            f"CASE WHEN {END} <= {due_before} THEN 'LATE' WHEN {END} <= {due} THEN 'ON_TIME' ELSE 'EARLY' END AS pane_timing",
            f"CAST({INDEX} AS INT) AS pane_index",
            f"{time} AS {TIME}",
            f"struct('{self.node.uid}' AS origin, {time} AS block, {self.result_order} AS row) AS {POSITION}",
        )


def _slices_of(node: WindowNode) -> Slices | None:
    match node.assigner:
        case Tumbling() | Sliding() | Cumulative():
            return Slices.of(node.assigner)
        case LocalWindows():
            return Slices.of(node.assigner.windows)
        case GlobalWindows():
            return None
    raise TypeError(f"no step for windows of kind {type(node.assigner).__name__}")

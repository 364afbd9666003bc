"""Window joins: an epoch's elements are written as state, and the elements of windows that fire are joined, by one pass.

State is one table of each side, a row per element and window. A row's time is the end of its window, so that files have the bounds of
these: only files that overlap the ends of windows that fire are read, and expired files are dropped unread.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from pyspark.sql import Observation

from tidemark.graph.operators.window_join.node import WindowJoinNode
from tidemark.semantics.joins.interval import SIDES, Side, outer_sides
from tidemark.semantics.joins.window import Timing
from tidemark.spark.columns.expressions import START
from tidemark.spark.columns.state_files import overlapping
from tidemark.spark.operators.base.contract import OperatorContext, Results
from tidemark.spark.operators.base.touched_times import CORRECTED, listed_starts, started_metric
from tidemark.spark.operators.interval_join.columns import SideColumns, unknown_columns
from tidemark.spark.operators.interval_join.epoch import ElementJoinEpoch, ElementJoinRuntime
from tidemark.spark.operators.interval_join.results import results_of
from tidemark.spark.operators.interval_join.state import ElementTable, span_of, stored_elements
from tidemark.spark.operators.window_join.columns import WindowJoinColumns
from tidemark.spark.operators.window_join.frames import Firing, WindowJoinFrames
from tidemark.state.log.records import OperatorState

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class WindowJoinRuntime(ElementJoinRuntime):
    """A window join of a run.

    Args:
        node: its declaration.
    """

    def __init__(self, node: WindowJoinNode) -> None:
        super().__init__(node)
        self._declared = node
        self.rule = node.rule
        self.frames = WindowJoinFrames(node)

    @property
    def node(self) -> WindowJoinNode:
        """The operator's declaration."""
        return self._declared

    @property
    def allowed_lateness_ms(self) -> int:
        """The join's allowed lateness."""
        return self._declared.rule.allowed_lateness_ms

    def begin(self, context: OperatorContext) -> WindowJoinEpoch:
        """Return the operator at work on an epoch."""
        return WindowJoinEpoch(self, context)

    def next_timer(self, state: OperatorState) -> int | None:
        """Return the end of the first window that has yet to fire, by the bounds of files, less a millisecond."""
        slices = self.frames.slices
        following = slices.last_end(state.watermark) + slices.ends
        waiting = [file for file in state.files if file.max_time is None or file.max_time >= following]
        return min((max(following, file.min_time or following) - 1 for file in waiting), default=None)


class WindowJoinEpoch(ElementJoinEpoch):
    """A window join in one epoch."""

    runtime: WindowJoinRuntime

    def __init__(self, runtime: WindowJoinRuntime, context: OperatorContext) -> None:
        super().__init__(runtime, context)
        # An element is not needed any more once end - 1 + lateness <= W.
        retention = runtime.rule.allowed_lateness_ms - 1
        lifetime = retention + runtime.frames.slices.span
        self._elements = {side: ElementTable(self._tables, side, context, retention, lifetime) for side in SIDES}

    @property
    def elements(self) -> Mapping[Side, ElementTable]:
        """The elements of both sides."""
        return self._elements

    def numbers(self, side: Side) -> tuple[int, ...]:
        """Return the numbers of this epoch that ``judged`` needs."""
        del side
        return self.runtime.frames.numbers(epoch=self.context.epoch, watermark=self.context.before.watermark)

    def judged(self, side: Side, rows: DataFrame, columns: SideColumns, observation: Observation, numbers: Sequence[int]) -> DataFrame:
        """Return the accepted rows of a side as in state, one for each window."""
        return self.runtime.frames.judged(side, rows, columns, observation, numbers)

    def is_late(self, side: Side) -> str:
        """Return SQL of whether a row of this epoch's input is late."""
        *_, expired, _, _ = self.numbers(side)
        return self.runtime.frames.is_late(expired)

    def emit(self, watermark: int, observation: Observation) -> Results | None:
        """Return the results of windows that the watermark reached, and of those that fire again; None where there are none."""
        del observation  # the results are given theirs
        self.watermark = watermark
        firings = [firing for firing in self._firings() if self._has_results(firing)]
        if not firings:
            return None
        known = self.known()
        node, needed = self.runtime.node, SIDES[:1] if self.runtime.node.one_sided else SIDES
        for side in needed:
            if side not in known:
                raise unknown_columns(node, side)
        columns, frames = WindowJoinColumns(node, known), self.runtime.frames

        def parts(numbers: Sequence[int]) -> Iterator[DataFrame]:
            *bounds, epoch = numbers
            for firing, first, last in zip(firings, bounds[::2], bounds[1::2], strict=True):
                operands = {side: self._elements[side].operand(files) for side, files in firing.files.items()}
                yield frames.results(replace(firing, first=first, last=last), operands, known, columns, epoch=epoch)

        shape = [" ".join([firing.timing, *firing.files]) for firing in firings]
        return results_of(
            parts,
            columns,
            self._tables,
            numbers=(*(bound for firing in firings for bound in (firing.first, firing.last)), self.context.epoch),
            scans=[files for firing in firings for files in frames.scans(firing)],
            shape=" ".join([*shape, "of", *sorted(known)]),
            corrected=_refired if any(firing.timing == "LATE" for firing in firings) else None,
        )

    def _firings(self) -> Iterator[Firing]:
        """Yield the windows whose end the watermark reached, and those that have late elements of this epoch."""
        slices, before = self.runtime.frames.slices, self.context.before.watermark
        reached = slices.last_end(before)
        last = slices.last_end(self.watermark)
        if last > reached:
            yield self._firing("ON_TIME", reached + slices.ends, last)
        new = [file for table in self._elements.values() for file in table.new]
        first = span_of(new)[0] if new else reached + 1
        if first <= reached:
            yield self._firing("LATE", first, reached)

    def _firing(self, timing: Timing, first: int, last: int) -> Firing:
        found = {}
        for side, table in self._elements.items():
            files = overlapping([*table.before, *table.new], first, last)
            if files:
                found[side] = files
        return Firing(timing, first, last, found)

    def _has_results(self, firing: Firing) -> bool:
        """Return whether there are elements of both sides, or of one that has rows without a partner."""
        return len(firing.files) == len(SIDES) or any(side in outer_sides(self.runtime.rule.how) for side in firing.files)

    def listed(self, times: Iterable[int]) -> tuple[int, ...]:
        """Return the starts of the newest windows."""
        return listed_starts(times)

    def stored_tables(self) -> Mapping[str, DataFrame]:
        """Return ``elements``: those of both sides in each of their windows, with keys, the window's bounds, and columns."""
        start = self.runtime.frames.window_start
        times = {"window_start": f"timestamp_millis({start})", "window_end": f"timestamp_millis({START})"}
        node, schema = self.runtime.node, self._tables.schema
        return {"elements": stored_elements(node, self._elements, schema, self.context, watermark=self.watermark, times=times)}

    def snapshot(self) -> OperatorState:
        """Return the operator's state after this epoch."""
        return self._tables.snapshot(self.watermark, {})


def _refired(numbers: Sequence[int]) -> str:
    """Return the aggregate of the windows that have a result once more, or after their time."""
    del numbers
    return started_metric("pane_timing = 'LATE'", "unix_millis(window_start)", CORRECTED)

"""The DataFrames of a window join: elements with the ends of their windows, and the results of windows that fire.

How often a key's window has fired follows from its elements: once for all that came before its end was reached, and once for each epoch of
those that came afterwards. So no counts of firings are kept.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F

from tidemark.graph.operators.window_join.node import WindowJoinNode
from tidemark.semantics.joins.interval import SIDES, How, Side
from tidemark.semantics.joins.window import Timing
from tidemark.semantics.watermarks.shortfalls import least_kept
from tidemark.semantics.windows.slices import Slices
from tidemark.spark.columns.expressions import START, TIME, quoted, visible_of
from tidemark.spark.columns.few_rows import in_one_task
from tidemark.spark.frame_steps import FrameSteps
from tidemark.spark.operators.base.late_metrics import SHORTFALL, last_end_sql, shortfall_sql
from tidemark.spark.operators.base.touched_times import late_metric
from tidemark.spark.operators.interval_join.columns import (
    EPOCH,
    SEEN,
    ResultColumns,
    SideColumns,
    key_columns,
    key_values,
    newest_time,
    side_column,
)
from tidemark.spark.operators.interval_join.frames import LATE_ROW, IntervalJoinFrames, Operand, one_task
from tidemark.spark.prepared.runtime_literals import runtime_literals
from tidemark.state.log.records import StateFile

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, Observation

INDEX: Final = "__tm_index"

_TYPES: Final[Mapping[How, str]] = {
    "inner": "inner",
    "left": "left_outer",
    "right": "right_outer",
    "full": "full_outer",
    "semi": "left_semi",
    "anti": "left_anti",
}
_LED_BY: Final[Mapping[How, Sequence[Side]]] = {"right": ("right",), "full": SIDES}
"""The sides whose elements each have to be in a window that fires; those of the other are, if they have a partner. Else the left."""


@dataclass(frozen=True)
class Firing:
    """Windows that fire, by their ends, and the files of each side with elements that may be in them; sides without any are missing."""

    timing: Timing
    first: int
    last: int
    files: Mapping[Side, Sequence[StateFile]]


class WindowJoinFrames:
    """The frames over elements. Nothing runs until a returned frame is written.

    Args:
        node: the operator.
    """

    def __init__(self, node: WindowJoinNode) -> None:
        self.node = node
        self.rule = node.rule
        self.slices = Slices.of(node.assigner)
        self._keys = key_columns(node)

    @property
    def window_start(self) -> str:
        """SQL of the start of a window, of its end in state."""
        return self._start(START)

    def numbers(self, *, epoch: int, watermark: int) -> tuple[int, ...]:
        """Return the numbers that ``judged`` needs: the epoch, W(n-1), the last expired end, that and 1, and the least that is kept."""
        expired = self._expired(watermark)
        return epoch, watermark, expired, expired + 1, least_kept(watermark, self.rule.allowed_lateness_ms)

    def judged(self, side: Side, rows: DataFrame, columns: SideColumns, observation: Observation, numbers: Sequence[int]) -> DataFrame:
        """Return a side's accepted rows of an epoch as in state: one for each window, by its end.

        Args:
            side: which one.
            rows: of the port.
            columns: of the side.
            observation: will have the numbers of all rows and of late ones, the shortfalls of these, and the starts of their windows.
            numbers: as ``numbers`` returns them.
        """
        epoch, watermark, expired, following, kept = numbers
        now, seen, accepting, least = runtime_literals(epoch, watermark, following, kept, varying=TIME)
        own = {name.lower(): name for name in visible_of(rows.columns)}
        values = [f"{quoted(own[name.lower()])} AS {quoted(columns.stored(name))}" for name in columns.names]
        late = [f"{self.is_late(expired)} AS {LATE_ROW}", f"{self._shortfall(expired, least)} AS {SHORTFALL}"]
        judged = FrameSteps(rows).select(*key_values(self.node, side), *values, TIME, f"{now} AS {EPOCH}", f"{seen} AS {SEEN}", *late)
        # Rows between windows have none, and no shortfall.
        late_starts = late_metric(f"{SHORTFALL} IS NOT NULL", self._start(f"({self._last_end})"), SHORTFALL, step=self.slices.starts)
        accepted = IntervalJoinFrames.counted(judged, observation, late_starts).where(f"NOT {LATE_ROW}")
        if not self.rule.keeps_null(side):
            accepted.where(" AND ".join(f"{quoted(key)} IS NOT NULL" for key in self._keys))
        low, ends = f"greatest({TIME} + 1L, {accepting})", self.slices.ends
        first = f"{low} + pmod({self.slices.last_end(0)}L - ({low}), {ends}L)"
        ends_of = f"explode(sequence({first}, {self._last_end}, {ends}L)) AS {START}"
        return accepted.select(f"* EXCEPT ({TIME}, {LATE_ROW}, {SHORTFALL})", ends_of).frame()

    def is_late(self, expired: int) -> str:
        """Return SQL of whether a row of the input is late: its windows end by the last expired end, or it is between windows."""
        (last,) = runtime_literals(expired, varying=TIME)
        return f"({self._last_end} <= {last}{f' OR {self._outside}' if self.slices.gaps else ''})"

    @property
    def _outside(self) -> str:
        """SQL of whether a row is between windows, where the slide is greater than the size."""
        slices = self.slices
        return f"pmod({TIME} - ({slices.offset}L), {slices.starts}L) >= {slices.span}L"

    def _shortfall(self, expired: int, least: str) -> str:
        late = f"{self.is_late(expired)} AND NOT {self._outside}" if self.slices.gaps else self.is_late(expired)
        return shortfall_sql(late, f"{self._last_end} - 1L", least)

    def _expired(self, watermark: int) -> int:
        """Return the last end of windows that accept nothing any more."""
        return watermark + 1 - self.rule.allowed_lateness_ms

    @property
    def _last_end(self) -> str:
        return last_end_sql(self.slices, TIME)

    def _start(self, end: str) -> str:
        slices = self.slices
        return f"{end} - 1L - pmod({end} - 1L - ({slices.offset}L), {slices.span}L)" if slices.growing else f"{end} - {slices.span}L"

    def scans(self, firing: Firing) -> list[Sequence[StateFile]]:
        """Return the files that ``results`` reads, in the order in which it does."""
        together = list(firing.files.values())
        if self.rule.how == "semi" and self._led_by(firing):
            # Spark moves the semi join before that with panes.
            return together * 2
        found = []
        for side, files in firing.files.items():
            found += [files, *(together if side in self._led_by(firing) else ())]
        return found

    def _led_by(self, firing: Firing) -> list[Side]:
        """Return the sides whose elements are looked for in the panes of windows that fire again."""
        led = _LED_BY.get(self.rule.how, SIDES[:1]) if firing.timing == "LATE" else ()
        return [side for side in led if side in firing.files]

    def results(
        self,
        firing: Firing,
        operands: Mapping[Side, Operand],
        columns: Mapping[Side, SideColumns],
        results: ResultColumns,
        *,
        epoch: int,
    ) -> DataFrame:
        """Return the results of windows that fire, with their times.

        Args:
            firing: the windows.
            operands: the elements of their files, of which some have results.
            columns: of the sides that have elements, and those of all that results have.
            results: the columns of results.
            epoch: the current one.
        """
        rows = {side: self._between(operand.rows, firing) for side, operand in operands.items()}
        with_row = SIDES[:1] if self.node.one_sided else SIDES
        frames = {side: columns[side].joined(each, with_row=side in with_row) for side, each in rows.items()}
        few = all(operand.few for operand in operands.values())
        index = "0"
        if led := self._led_by(firing):
            panes = self._panes(rows, epoch, few=few)
            for side in led:
                frames[side] = self._in_panes(frames[side], side, panes, few=few)
            index = f"coalesce({', '.join(side_column(side, INDEX) for side in led)})"
        present = [side for side in with_row if side in frames]
        made = self._joined(frames, few=few) if len(frames) > 1 else frames[present[0]]
        end = newest_time(present)
        return made.selectExpr(
            *results.values(*present),
            f"timestamp_millis({self._start(end)}) AS window_start",
            f"timestamp_millis({end}) AS window_end",
            f"'{firing.timing}' AS pane_timing",
            f"CAST({index} AS INT) AS pane_index",
            f"{end} - 1L AS {TIME}",
        )

    @staticmethod
    def _between(rows: DataFrame, firing: Firing) -> DataFrame:
        first, last = runtime_literals(firing.first, firing.last)
        return rows.where(f"{START} BETWEEN {first} AND {last}")

    def _joined(self, frames: Mapping[Side, DataFrame], *, few: bool) -> DataFrame:
        equal = [f"{side_column('left', name)} = {side_column('right', name)}" for name in (START,)]
        equal += [f"{quoted(side_column('left', key))} = {quoted(side_column('right', key))}" for key in self._keys]
        condition, how = " AND ".join(equal), _TYPES[self.rule.how]
        if few:
            return one_task(frames["left"], frames["right"], condition, how, absent=side_column("right", EPOCH))
        return frames["left"].join(frames["right"], F.expr(condition), how)

    def _panes(self, rows: Mapping[Side, DataFrame], epoch: int, *, few: bool) -> DataFrame:
        """Return the keys and windows that have elements of this epoch, with the index of their pane."""
        narrow = [each.select(*map(quoted, self._keys), START, EPOCH, SEEN) for each in rows.values()]
        every = reduce(lambda one, other: one.unionByName(other), narrow)
        (now,) = runtime_literals(epoch)
        marked = (in_one_task(every) if few else every).selectExpr(
            *map(quoted, self._keys),
            START,
            f"if({SEEN} < {START} - 1L, -1L, {EPOCH}) AS mark",
            f"{EPOCH} = {now} AS is_new",
        )
        aggregates: list[Column] = [F.expr(f"size(collect_set(mark)) - 1 AS {INDEX}"), F.expr("bool_or(is_new) AS is_new")]
        return marked.groupBy(*map(quoted, self._keys), START).agg(*aggregates).where("is_new").drop("is_new")

    def _in_panes(self, frame: DataFrame, side: Side, panes: DataFrame, *, few: bool) -> DataFrame:
        """Return the elements of one side in panes, with the index of these."""
        named = [f"{quoted(name)} AS {quoted(f'__tm_pane_{name}')}" for name in (*self._keys, START)]
        made = panes.selectExpr(*named, f"{INDEX} AS {side_column(side, INDEX)}")
        equal = [f"{quoted(side_column(side, name))} <=> {quoted(f'__tm_pane_{name}')}" for name in (*self._keys, START)]
        condition, how = " AND ".join(equal), "inner"
        found = one_task(frame, made, condition, how, absent=INDEX) if few else frame.join(made, F.expr(condition), how)
        return found.drop(*(f"__tm_pane_{name}" for name in (*self._keys, START)))

"""The results of an interval join in one epoch: pairs, and elements that are gone without a partner."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import reduce
from typing import TYPE_CHECKING

from pyspark.sql import Observation
from pyspark.sql import functions as F

from tidemark.semantics.joins.interval import SIDES, Side, other_side, outer_sides
from tidemark.semantics.watermarks.watermarks import MAX_WATERMARK
from tidemark.spark.operators.base.contract import OperatorContext
from tidemark.spark.operators.interval_join.columns import ResultColumns, SideColumns, unknown_columns
from tidemark.spark.operators.interval_join.frames import IntervalJoinFrames, Operand
from tidemark.spark.operators.interval_join.state import IntervalElements, span_of
from tidemark.state.log.records import StateFile

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class EpochJoin:
    """The join of an epoch's elements with those in state.

    ``due`` are the least watermarks at which elements of outer sides are gone; after ``read_counts`` they are exact, before it they may be
    less.

    Args:
        frames: of the operator.
        tables: the elements of both sides.
        columns: of the sides, as far as they are known.
        context: of the epoch.
        watermark: W(n).
        due: after the epoch before.
    """

    def __init__(
        self,
        frames: IntervalJoinFrames,
        tables: Mapping[Side, IntervalElements],
        columns: Mapping[Side, SideColumns],
        context: OperatorContext,
        *,
        watermark: int,
        due: Mapping[Side, int],
    ) -> None:
        self.due = dict(due)
        self._frames = frames
        self._rule = frames.rule
        self._tables = tables
        self._columns = columns
        self._context = context
        self._watermark = watermark
        self._least: dict[Side, tuple[Observation, int]] = {}

    def results(self) -> DataFrame | None:
        """Return the results with their times and positions; None where there cannot be any."""
        parts = [*self._pairs(), *(part for side in outer_sides(self._rule.how) for part in self._alone(side))]
        if not parts:
            return None
        return self._result_columns.with_position(reduce(lambda one, other: one.union(other), parts))

    @property
    def _result_columns(self) -> ResultColumns:
        node = self._frames.node
        for side in SIDES[:1] if node.one_sided else SIDES:
            if side not in self._columns:
                raise unknown_columns(node, side)
        return ResultColumns(node, self._columns)

    def _pairs(self) -> Iterator[DataFrame]:
        """Yield pairs of which at least one element is of this epoch; for a semi join the left elements of those that are the first."""
        left, right = self._tables["left"], self._tables["right"]
        if self._rule.how == "anti":
            return
        semi = self._rule.how == "semi"
        if left.new and (partners := right.partners_of(span_of(left.new), [*right.waiting, *right.new])):
            yield self._paired(left.operand(left.new), right.operand(partners), semi=semi)
        if right.new and (waiting := left.partners_of(span_of(right.new), left.waiting)):
            one, other = left.operand(waiting), right.operand(right.new)
            if not semi:
                yield self._paired(one, other, semi=False)
            else:
                yield self._first(one, other)

    def _paired(self, one: Operand, other: Operand, *, semi: bool) -> DataFrame:
        if semi:
            return self._alone_results(self._joined(one, other, "left_semi", ["left"]), "left")
        made = self._joined(one, other, "inner", ["left", "right"])
        return made.selectExpr(*self._result_columns.of("left", "right"))

    def _first(self, one: Operand, other: Operand) -> DataFrame:
        """Return the left elements of earlier epochs that have a partner in this epoch and had none before."""
        right = self._tables["right"]
        found = self._joined(one, other, "left_semi", ["left"])
        earlier = right.partners_of(one.span, right.before)
        if earlier:
            before = right.operand(earlier)
            columns = self._columns["right"].joined(before.rows, with_row=False) if "right" in self._columns else before.rows
            found = found.join(columns, F.expr(self._frames.met), "left_anti")
        return self._alone_results(found, "left")

    def _alone(self, side: Side) -> Iterator[DataFrame]:
        """Yield the elements of a side that are gone in this epoch and have no partner."""
        table, other = self._tables[side], self._tables[other_side(side)]
        reach, watermark = self._rule.reach(side), self._watermark
        # Those of earlier epochs are read only where one of them is gone.
        reached = self.due[side] <= watermark
        files = [*(table.before if reached else ()), *table.new]
        gone, waiting = _parted(files, watermark - reach)
        gone = [file for file in gone if file in table.new or (file.max_time or 0) > self._context.before.watermark - reach]
        due = min([(file.min_time or 0) + reach for file in waiting], default=MAX_WATERMARK)
        self.due[side] = due if reached else min(due, self.due[side])
        if not gone:
            return
        rows = table.read(gone)
        if any((file.max_time or 0) > watermark - reach for file in gone):
            observation = Observation()
            rows = self._frames.least_waiting(side, rows, observation, watermark)
            self._least[side] = observation, self.due[side]
            # Until it is known: some element may be gone with the next watermark.
            self.due[side] = min(self.due[side], watermark + 1)
        rows = self._frames.gone(side, rows, epoch=self._context.epoch, before=self._context.before.watermark, watermark=watermark)
        operand = table.operand(gone)
        operand = Operand(side, rows, (operand.span[0], min(operand.span[1], watermark - reach)), operand.few)
        partners = other.partners_of(operand.span, [*other.before, *other.new])
        if partners:
            found = self._joined(operand, other.operand(partners), "left_anti", [side])
        else:
            found = self._columns[side].joined(operand.rows, with_row=True)
        yield self._alone_results(found, side)

    def _joined(self, one: Operand, other: Operand, how: str, rows_of: Sequence[Side]) -> DataFrame:
        return self._frames.joined(one, other, how, self._columns, rows_of=rows_of)

    def _alone_results(self, rows: DataFrame, side: Side) -> DataFrame:
        return rows.selectExpr(*self._result_columns.of(side))

    def read_counts(self) -> None:
        """Read what the pass observed, once it ran."""
        for side, (observation, due) in self._least.items():
            least = observation.get["least"]
            self.due[side] = due if least is None else min(due, least + self._rule.reach(side))


def _parted(files: Sequence[StateFile], last: int) -> tuple[list[StateFile], list[StateFile]]:
    """Return the files that have elements of times up to the last, and the others."""
    gone = [file for file in files if file.min_time is not None and file.min_time <= last]
    return gone, [file for file in files if file not in gone]

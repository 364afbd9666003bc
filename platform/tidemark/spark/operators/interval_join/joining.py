"""The results of an interval join in one epoch: pairs, and elements that are gone without a partner."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Literal

import pyarrow.compute as pc
from pyspark.sql import Observation
from pyspark.sql import functions as F

from tidemark.semantics.joins.interval import SIDES, Side, other_side, outer_sides
from tidemark.semantics.watermarks.watermarks import MAX_WATERMARK, MIN_WATERMARK, clamp_watermark
from tidemark.spark.columns.expressions import TIME
from tidemark.spark.columns.state_files import overlapping
from tidemark.spark.operators.base.contract import OperatorContext, Results
from tidemark.spark.operators.base.tables import StateTables
from tidemark.spark.operators.base.touched_times import CORRECTED, touched_metric
from tidemark.spark.operators.interval_join.columns import EPOCH, ResultColumns, SideColumns, side_column, unknown_columns
from tidemark.spark.operators.interval_join.frames import IntervalJoinFrames, Operand, one_task
from tidemark.spark.operators.interval_join.results import results_of
from tidemark.spark.operators.interval_join.state import IntervalElements, span_of
from tidemark.spark.prepared.runtime_literals import runtime_literals
from tidemark.state.log.records import StateFile

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

HASHED_ROWS: Final = 1_000_000
HASHED_BYTES: Final = 32 << 20
"""Up to so many elements of one side, and bytes of their files, are put into hash tables, even where all have one key and are in one."""

HASHED_SHARE: Final = 4
"""Elements that are so many times fewer than the other side's are left to Spark, which may send all of them to every task."""


@dataclass(frozen=True)
class JoinPart:
    """Elements of one side that are joined with those of the other one, by the files that have them.

    Args:
        kind: ``pairs``, ``semi`` for elements with a partner, ``first`` for those that had none before, ``alone`` for those without,
            ``whole`` for pairs and elements without a partner in one.
        side: of ``one``.
        one: the files of the elements that ``semi``, ``first`` and ``alone`` are about.
        other: those of their partners.
        earlier: those of partners that came before, for ``first``.
        alone: the sides whose elements without a partner are in ``whole``.
    """

    kind: Literal["pairs", "semi", "first", "alone", "whole"]
    side: Side
    one: Sequence[StateFile]
    other: Sequence[StateFile]
    earlier: Sequence[StateFile] = ()
    alone: Sequence[Side] = ()

    def files(self, side: Side) -> Sequence[StateFile]:
        """The files of a side's elements, without ``earlier``."""
        return self.one if side == self.side else self.other

    @property
    def hashed(self) -> bool:
        """Whether elements of one side, the only one with some alone, look partners up in hash tables, which Spark never writes to disk."""
        if len(self.alone) != 1:
            return False
        one, other = (sum(file.rows for file in files) for files in (self.one, self.other))
        return one <= HASHED_SHARE * other and other <= HASHED_ROWS and sum(file.bytes for file in self.other) <= HASHED_BYTES

    @property
    def scans(self) -> list[Sequence[StateFile]]:
        """The files that are read, in the order in which they are."""
        return [files for files in (self.one, self.other, self.earlier) if files]


class EpochJoin:
    """The join of an epoch's elements with those in state.

    ``due`` are the least watermarks at which elements of outer sides are gone; after ``read_counts`` they are exact, before it they may be
    less.

    Args:
        frames: of the operator.
        state: the operator's files.
        tables: the elements of both sides.
        columns: of the sides, as far as they are known.
        context: of the epoch.
        watermark: W(n).
        due: after the epoch before.
    """

    def __init__(
        self,
        frames: IntervalJoinFrames,
        state: StateTables,
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
        self._state = state
        self._tables = tables
        self._columns = columns
        self._context = context
        self._watermark = watermark
        self._least: dict[Side, tuple[Observation, int]] = {}

    def results(self) -> Results | None:
        """Return the results with their times and positions; None where there cannot be any.

        The observation that they are made with will have the number of ``results``.
        """
        parts = [*self._pairs(), *(part for side in outer_sides(self._rule.how) for part in self._alone(side))]
        if not parts:
            return None
        whole = self._whole(parts)
        parts = parts if whole is None else [whole]
        shape = [" ".join([part.kind, part.side, str(len(part.scans)), *part.alone]) for part in parts]
        return results_of(
            lambda numbers: [self._frame(part, numbers) for part in parts],
            self._result_columns,
            self._state,
            numbers=self._numbers,
            scans=[files for part in parts for files in part.scans],
            shape=" ".join([*shape, "of", *sorted(self._columns)]),
            corrected=self._corrected if self._may_correct else None,
        )

    @property
    def _may_correct(self) -> bool:
        """Whether elements came that are behind the watermark: their pairs may be, too."""
        new = [file for table in self._tables.values() for file in table.new]
        return bool(overlapping(new, MIN_WATERMARK, self._context.before.watermark))

    def _corrected(self, numbers: Sequence[int]) -> str:
        """Return the aggregate of results that are further behind the watermark than any on-time one."""
        behind = numbers[1] + self._rule.reach(SIDES[0]) - self._rule.result_delay
        return touched_metric(f"{TIME} <= {runtime_literals(behind, varying=TIME)[0]}", TIME, CORRECTED)

    @property
    def _numbers(self) -> tuple[int, ...]:
        """The epoch, and of each side the last times of elements that were gone before it, and of those that are after it."""
        before, reaches = self._context.before.watermark, [self._rule.reach(side) for side in SIDES]
        return self._context.epoch, *(number for reach in reaches for number in (before - reach, self._watermark - reach))

    def _frame(self, part: JoinPart, numbers: Sequence[int]) -> DataFrame:
        """Return the results of a part."""
        one = self._tables[part.side].operand(part.one)
        other = self._tables[other_side(part.side)].operand(part.other) if part.other else None
        if part.kind == "alone":
            return self._alone_results(self._unmatched(part, one, other, numbers), part.side)
        if other is None:
            raise ValueError(f"{part.kind} without partners")
        if part.kind == "whole":
            return self._both(part, one, other, numbers).selectExpr(*self._result_columns.of("left", "right", alone=part.alone))
        if part.kind == "first":
            return self._alone_results(self._first(part, one, other), part.side)
        if part.kind == "semi":
            return self._alone_results(self._joined(one, other, "left_semi", ["left"]), "left")
        made = self._joined(one, other, "inner", ["left", "right"])
        return made.selectExpr(*self._result_columns.of("left", "right", alone=()))

    @property
    def _result_columns(self) -> ResultColumns:
        node = self._frames.node
        for side in SIDES[:1] if node.one_sided else SIDES:
            if side not in self._columns:
                raise unknown_columns(node, side)
        return ResultColumns(node, self._columns)

    def _pairs(self) -> Iterator[JoinPart]:
        """Yield pairs of which at least one element is of this epoch; for a semi join the left elements of those that are the first."""
        left, right = self._tables["left"], self._tables["right"]
        if self._rule.how == "anti":
            return
        semi = self._rule.how == "semi"
        if left.new and (partners := right.partners_of(span_of(left.new), [*right.waiting, *right.new])):
            yield JoinPart("semi" if semi else "pairs", "left", left.new, partners)
        if right.new and (waiting := left.partners_of(span_of(right.new), left.waiting)):
            earlier = right.partners_of(span_of(waiting), right.before) if semi else []
            yield JoinPart("first" if semi else "pairs", "left", waiting, right.new, earlier)

    def _first(self, part: JoinPart, one: Operand, other: Operand) -> DataFrame:
        """Return the left elements of earlier epochs that have a partner in this epoch and had none before."""
        found = self._joined(one, other, "left_semi", ["left"])
        if not part.earlier:
            return found
        before = self._tables["right"].operand(part.earlier)
        columns = self._columns["right"].joined(before.rows, with_row=False)
        if one.few and other.few and before.few:
            return one_task(found, columns, self._frames.met, "left_anti", absent=side_column("right", EPOCH))
        return found.join(columns, F.expr(self._frames.met), "left_anti")

    def _alone(self, side: Side) -> Iterator[JoinPart]:
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
        split = [file for file in gone if (file.max_time or 0) > watermark - reach]
        # No element that waits is gone at a lesser watermark than the next one.
        if split and self.due[side] > watermark + 1:
            self._note_waiting(side, split)
        low, high = span_of(gone)
        yield JoinPart("alone", side, gone, other.partners_of((low, min(high, watermark - reach)), [*other.before, *other.new]))

    def _whole(self, parts: Sequence[JoinPart]) -> JoinPart | None:
        """Return one join that finds the results of all parts, where it costs less than these; None otherwise.

        It reads and shuffles each element once, and is planned once, but it finds pairs of two elements of earlier epochs again.
        """
        if len(parts) == 1 or any(part.kind not in ("pairs", "alone") for part in parts):
            return None
        # Parts of few elements each have plans that are kept.
        if all(self._state.are_few(scan) for part in parts for scan in part.scans):
            return None
        files = {side: list(dict.fromkeys(file for part in parts for file in part.files(side))) for side in SIDES}
        if not all(files.values()):
            return None
        new, old = ({side: self._rows_of(files[side], new=new) for side in SIDES} for new in (True, False))
        if old["left"] * old["right"] > new["left"] * old["right"] + old["left"] * new["right"] + new["left"] * new["right"]:
            return None
        alone = [part.side for part in parts if part.kind == "alone"]
        side: Side = alone[0] if alone else "left"
        one, other = (self._tables[each].operand(files[each]) for each in (side, other_side(side)))
        if len(alone) == len(SIDES) and self._frames.in_buckets(one, other):
            return None
        return JoinPart("whole", side, files[side], files[other_side(side)], alone=alone)

    def _rows_of(self, files: Sequence[StateFile], *, new: bool) -> int:
        return sum(file.rows for file in files if (file.epoch == self._context.epoch) == new)

    def _both(self, part: JoinPart, one: Operand, other: Operand, numbers: Sequence[int]) -> DataFrame:
        """Return pairs of which at least one element is of this epoch, and the elements that are gone without a partner."""
        how = ("inner", "left_outer", "full_outer")[len(part.alone)]
        one, other = (self._needed(each, numbers[0]) for each in (one, other))
        return self._frames.of_epoch(self._frames.joined(one, other, how, self._columns, rows_of=SIDES, hashed=part.hashed), numbers)

    def _needed(self, operand: Operand, epoch: int) -> Operand:
        """Return the elements of this epoch, and those that were needed after the epoch before."""
        rows = self._tables[operand.side].needed(operand.rows, epoch)
        if operand.side in self._least:
            rows = self._frames.least_waiting(operand.side, rows, self._least[operand.side][0], self._watermark)
        return replace(operand, rows=rows)

    def _note_waiting(self, side: Side, split: Sequence[StateFile]) -> None:
        """Lower ``due`` to the least time of the elements that are not gone in files that have both, gone ones and others."""
        table, reach, watermark = self._tables[side], self._rule.reach(side), self._watermark
        if table.are_few(split):
            times = table.times(split)
            least = pc.min(times.filter(pc.greater(times, clamp_watermark(watermark - reach)))).as_py()
            self.due[side] = self.due[side] if least is None else min(self.due[side], least + reach)
            return
        self._least[side] = Observation(), self.due[side]
        # Until it is known: some element may be gone with the next watermark.
        self.due[side] = min(self.due[side], watermark + 1)

    def _unmatched(self, part: JoinPart, one: Operand, other: Operand | None, numbers: Sequence[int]) -> DataFrame:
        """Return the elements of a side that are gone in this epoch and have no partner."""
        side, (epoch, *bounds), rows = part.side, numbers, one.rows
        if side in self._least:
            rows = self._frames.least_waiting(side, rows, self._least[side][0], self._watermark)
        begin = 2 * SIDES.index(side)
        rows = self._frames.gone(rows, bounds[begin : begin + 2], epoch)
        if other is None:
            return self._columns[side].joined(rows, with_row=True)
        span = one.span[0], min(one.span[1], self._watermark - self._rule.reach(side))
        return self._joined(Operand(side, rows, span, one.few), other, "left_anti", [side])

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

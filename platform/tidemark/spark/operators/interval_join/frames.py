"""The DataFrames of an interval join: pairs of an epoch, and rows of elements that are gone without a partner, by native expressions.

Which elements of state a later one met follows from their times, their epochs, and the watermarks that they were judged by. So no marks of
matched elements are kept: a row without a partner is looked for among the elements of the other side once, when it is gone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F

from tidemark.graph.operators.interval_join.node import IntervalJoinNode
from tidemark.semantics.joins.interval import SIDES, IntervalJoin, Side, other_side
from tidemark.semantics.watermarks.shortfalls import least_kept
from tidemark.spark.columns.expressions import START, TIME, quoted, visible_of
from tidemark.spark.frame_steps import FrameSteps
from tidemark.spark.operators.base.late_metrics import SHORTFALL, shortfall_metrics, shortfall_sql
from tidemark.spark.operators.interval_join.columns import EPOCH, SEEN, SideColumns, key_columns, key_values, side_column
from tidemark.spark.prepared.runtime_literals import runtime_literals

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Observation

MANY_BUCKETS: Final = 16
"""From so many intervals in the times of both sides on, elements are also joined by the interval that their time is in."""

LATE_ROW: Final = "__tm_late"
BUCKET: Final = "__tm_bucket"

Span = tuple[int, int]


@dataclass(frozen=True)
class Operand:
    """Elements of one side: their rows as in state, the bounds of their times, and whether they are few."""

    side: Side
    rows: DataFrame
    span: Span
    few: bool


class IntervalJoinFrames:
    """The frames over elements. Nothing runs until a returned frame is written.

    Args:
        node: the operator.
    """

    def __init__(self, node: IntervalJoinNode) -> None:
        self.node = node
        self.rule: IntervalJoin = node.rule

    def numbers(self, side: Side, *, epoch: int, watermark: int) -> tuple[int, int, int, int]:
        """Return the numbers that ``judged`` needs: the epoch, W(n-1), the last late time, and the least one that more lateness keeps."""
        span = self.rule.span(side)
        return epoch, watermark, watermark - span, least_kept(watermark, span)

    def judged(self, side: Side, rows: DataFrame, columns: SideColumns, numbers: Sequence[int]) -> FrameSteps:
        """Return a side's rows of an epoch as in state, with ``LATE_ROW`` and ``SHORTFALL``.

        Args:
            side: which one.
            rows: of the port.
            columns: of the side.
            numbers: as ``numbers`` returns them.
        """
        epoch, watermark, last, kept = numbers
        now, seen, least = runtime_literals(epoch, watermark, kept, varying=TIME)
        own = {name.lower(): name for name in visible_of(rows.columns)}
        values = [f"{quoted(own[name.lower()])} AS {quoted(columns.stored(name))}" for name in columns.names]
        engine = [f"{TIME} AS {START}", f"{now} AS {EPOCH}", f"{seen} AS {SEEN}"]
        is_late = self.is_late(last)
        late = [f"{is_late} AS {LATE_ROW}", f"{shortfall_sql(is_late, TIME, least)} AS {SHORTFALL}"]
        return FrameSteps(rows).select(*key_values(self.node, side), *values, *engine, *late)

    @staticmethod
    def is_late(last: int) -> str:
        """Return SQL of whether a row of the input is late; ``last`` is the last late time."""
        return f"{TIME} <= {runtime_literals(last, varying=TIME)[0]}"

    @staticmethod
    def counted(judged: FrameSteps, observation: Observation, late_times: str) -> FrameSteps:
        """Return the same rows; the observation will have the numbers of all rows and of late ones, the shortfalls and times of these.

        Args:
            judged: the rows, with ``LATE_ROW`` and ``SHORTFALL``.
            observation: as above.
            late_times: the aggregate ``LATE_TIMES``, as SQL.
        """
        metrics = ("count(1) AS judged", f"count_if({LATE_ROW}) AS late", *shortfall_metrics(), late_times)
        return judged.observe(observation, *metrics)

    def kept(self, side: Side, judged: FrameSteps) -> DataFrame:
        """Return the accepted rows that are kept: those with a null in their key only for their outer row."""
        accepted = judged.where(f"NOT {LATE_ROW}").select(f"* EXCEPT ({LATE_ROW}, {SHORTFALL})")
        if not self.rule.keeps_null(side):
            accepted.where(" AND ".join(f"{quoted(key)} IS NOT NULL" for key in key_columns(self.node)))
        return accepted.frame()

    @staticmethod
    def gone(rows: DataFrame, bounds: Sequence[int], epoch: int) -> DataFrame:
        """Return the elements that are gone in this epoch: no partner can come on time any more.

        Args:
            rows: as in state, those of the epoch among them.
            bounds: the last times of elements that were gone before the epoch, and of those that are after it.
            epoch: the current one.
        """
        first, last, now = runtime_literals(*bounds, epoch)
        return rows.where(_is_gone(START, EPOCH, first=first, last=last, now=now))

    @staticmethod
    def of_epoch(joined: DataFrame, numbers: Sequence[int]) -> DataFrame:
        """Return what is a result of this epoch: pairs of which one element is of this epoch, and elements that are gone without a partner.

        Args:
            joined: an outer join of both sides, of the elements that were not gone before the epoch.
            numbers: the epoch, and of each side the bounds as of ``gone``.
        """
        starts, epochs = ([side_column(side, name) for side in SIDES] for name in (START, EPOCH))
        # Of an outer join's rows one side may be missing.
        now, *bounds = runtime_literals(*numbers, varying=f"coalesce({', '.join(epochs)})")
        gone = [_is_gone(starts[at], epochs[at], first=bounds[2 * at], last=bounds[2 * at + 1], now=now) for at in range(len(SIDES))]
        left, right = epochs
        return joined.where(
            f"CASE WHEN {right} IS NULL THEN {gone[0]} WHEN {left} IS NULL THEN {gone[1]} ELSE {now} IN ({left}, {right}) END"
        )

    def least_waiting(self, side: Side, rows: DataFrame, observation: Observation, watermark: int) -> DataFrame:
        """Return the same rows; the observation will have the least time of those that are not gone."""
        last = runtime_literals(watermark - self.rule.reach(side))[0]
        return rows.observe(observation, F.expr(f"min(CASE WHEN {START} > {last} THEN {START} END) AS least"))

    def joined(
        self,
        one: Operand,
        other: Operand,
        how: str,
        columns: Mapping[Side, SideColumns],
        *,
        rows_of: Sequence[Side],
        hashed: bool = False,
    ) -> DataFrame:
        """Return the join of elements of both sides.

        Args:
            one: the elements of which semi and anti joins return some.
            other: those of the other side.
            how: ``inner``, ``left_semi``, ``left_anti`` or ``left_outer``, of ``one``; ``full_outer`` where they are not ``in_buckets``.
            columns: of both sides.
            rows_of: the sides whose columns of the stream are needed.
            hashed: whether each task looks partners up in a hash table of its part of ``other``, and does not sort both sides.
        """
        frames = {each.side: columns[each.side].joined(each.rows, with_row=each.side in rows_of) for each in (one, other)}
        condition = self.met
        if bucket := self._bucket(one, other):
            # Each pair is found in the one interval that the first operand's element is in.
            frames[one.side] = frames[one.side].withColumn(f"{BUCKET}_one", F.expr(f"{side_column(one.side, START)} DIV {bucket}L"))
            low, high = self._partners(other.side)
            both = f"sequence(({low}) DIV {bucket}L, ({high}) DIV {bucket}L)"
            frames[other.side] = frames[other.side].withColumn(f"{BUCKET}_other", F.expr(f"explode({both})"))
            condition = f"{BUCKET}_one = {BUCKET}_other AND {condition}"
        if hashed:
            frames[other.side] = frames[other.side].hint("shuffle_hash")
        made = (
            one_task(frames[one.side], frames[other.side], condition, how, absent=side_column(other.side, EPOCH))
            if (one.few and other.few)
            else frames[one.side].join(frames[other.side], F.expr(condition), how)
        )
        return made.drop(f"{BUCKET}_one", f"{BUCKET}_other")

    def in_buckets(self, one: Operand, other: Operand) -> bool:
        """Return whether elements are also joined by the interval that their time is in."""
        return self._bucket(one, other) is not None

    def _bucket(self, one: Operand, other: Operand) -> int | None:
        """Return the length of intervals by which elements are joined, None where their times are few intervals apart."""
        length = max(self.rule.upper_ms - self.rule.lower_ms, 1)
        span = max(one.span[1], other.span[1]) - min(one.span[0], other.span[0])
        return length if span >= MANY_BUCKETS * length and not (one.few and other.few) else None

    def _partners(self, side: Side) -> tuple[str, str]:
        """Return SQL of the bounds of the times of an element's partners."""
        time, rule = side_column(side, START), self.rule
        low, high = (rule.lower_ms, rule.upper_ms) if side == "left" else (-rule.upper_ms, -rule.lower_ms)
        return f"{time} + ({low}L)", f"{time} + ({high}L)"

    @property
    def met(self) -> str:
        """SQL of whether two elements met: of equal keys, within the interval, and the earlier one was not gone when the later one came.

        It has no numbers of the epoch, so that Spark compiles it once.
        """
        keys = [f"{quoted(side_column('left', key))} = {quoted(side_column('right', key))}" for key in key_columns(self.node)]
        low, high = self._partners("left")
        met = []
        epochs = {side: side_column(side, EPOCH) for side in SIDES}
        for side in SIDES:
            later = other_side(side)
            waits = f"{side_column(side, START)} + ({self.rule.reach(side)}L) > {side_column(later, SEEN)}"
            met.append(f"({epochs[side]} < {epochs[later]} AND {waits})")
        together = f"{epochs['left']} = {epochs['right']}"
        return " AND ".join([*keys, f"{side_column('right', START)} BETWEEN {low} AND {high}", f"({together} OR {' OR '.join(met)})"])


def _is_gone(start: str, epoch: str, *, first: str, last: str, now: str) -> str:
    return f"{start} <= {last} AND ({epoch} = {now} OR {start} > {first})"


def one_task(one: DataFrame, other: DataFrame, condition: str, how: str, *, absent: str) -> DataFrame:
    """Return a join of few rows, which one task has, without a shuffle.

    Spark would move an anti join before the step that puts rows into one task, and shuffle them again; not so an outer one.
    """
    hinted = other.hint("shuffle_hash")
    if how == "left_anti":
        return one.join(hinted, F.expr(condition), "left_outer").where(f"{absent} IS NULL").select(*map(quoted, one.columns))
    return one.join(hinted, F.expr(condition), how)

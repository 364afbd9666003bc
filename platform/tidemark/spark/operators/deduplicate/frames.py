"""The DataFrames of a deduplication: which elements of an epoch are kept, by native Spark expressions.

The elements of a key are one array, sorted by (event time, source position), and one fold over their times finds those that are kept. Of
elements kept before, state has the times by key: each blocks the times around it, and is in the fold at the first of these.

Spark copies the result of a fold at each item. So an array is folded in parts, and the time is linear in the number of elements.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F

from tidemark.graph.operators.deduplicate.node import DeduplicateNode
from tidemark.graph.operators.state_names import key_column
from tidemark.semantics.watermarks.shortfalls import least_kept
from tidemark.spark.columns.expressions import POSITION, START, TIME, column, quoted, visible_of
from tidemark.spark.operators.base.late_metrics import shortfall_metrics_of_times
from tidemark.spark.operators.base.touched_times import corrected_metric_of_times, late_metric_of_times
from tidemark.spark.prepared.runtime_literals import runtime_literals

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, Observation

_ELEMENT: Final = "__tm_element"
_ELEMENTS: Final = "__tm_elements"
_HELD: Final = "__tm_held"
_LATE: Final = "__tm_late"
_KEPT: Final = "__tm_kept"
_SIZE: Final = "__tm_late_count"
_PART: Final = 128
"""Elements of a key that are folded together."""

_NONE: Final = "CAST(array() AS ARRAY<INT>)"
_INSTANT: Final = "'yyyy-MM-dd HH:mm:ss.SSSSSS'"
_CONTENT: Final = f"to_json({{}}.r, map('timestampFormat', {_INSTANT}, 'timestampNTZFormat', {_INSTANT}))"
_ORDER: Final = "CASE {} ELSE 0 END".format(
    " ".join(
        f"WHEN {one} < {other} THEN -1 WHEN {one} > {other} THEN 1"
        for one, other in (("a.t", "b.t"), ("a.p", "b.p"), (_CONTENT.format("a"), _CONTENT.format("b")))
    )
)
"""The order of elements. Those of equal time and position, as a transform makes them of one row, are ordered by their content, so that
another reading of them keeps the same ones."""


class DeduplicateFrames:
    """The frames over an epoch's elements and state. Nothing runs until a returned frame is written.

    Args:
        node: the operator.
    """

    def __init__(self, node: DeduplicateNode) -> None:
        self.keys = [key_column(name) for name, _ in node.keys]
        self._node = node
        self._names = [name for name, _ in node.keys]
        self._within = node.within_ms

    @cached_property
    def key_columns(self) -> list[Column]:
        """The keys of elements, named as in state."""
        return [column(expression).alias(key) for key, (_, expression) in zip(self.keys, self._node.keys, strict=True)]

    @property
    def key_results(self) -> list[str]:
        """The keys of state, named as in the stream."""
        return [f"{quoted(key)} AS {quoted(name)}" for key, name in zip(self.keys, self._names, strict=True)]

    def classified(self, rows: DataFrame, state: DataFrame | None, late_until: int) -> DataFrame:
        """Return a row per key: the sorted elements, the times of late ones, and the indexes of those that are kept.

        Args:
            rows: the epoch's elements.
            state: times of earlier kept elements of these keys, from ``state_rows``; None where there are none.
            late_until: the greatest time that is late.
        """
        names = [*map(quoted, visible_of(rows.columns)), TIME, POSITION]
        element = F.expr(f"struct({TIME} AS t, {POSITION} AS p, struct({', '.join(names)}) AS r)")
        late = F.expr(f"{TIME} <= {runtime_literals(late_until, varying=TIME)[0]}")
        given = rows.select(*self.key_columns, element.alias(_ELEMENT), late.alias(_LATE), F.col(TIME))
        if state is not None:
            held = state.select(*map(quoted, self.keys), F.col(START).alias(_HELD))
            given = given.unionByName(held, allowMissingColumns=True)
        else:
            given = given.withColumn(_HELD, F.lit(None).cast("bigint"))
        grouped = given.groupBy(*map(quoted, self.keys)).agg(
            F.expr(f"collect_list(if({_LATE}, NULL, {_ELEMENT})) AS {_ELEMENTS}"),
            F.expr(f"collect_list({_HELD}) AS {_HELD}"),
            F.expr(f"collect_list(if({_LATE}, {TIME}, NULL)) AS {_LATE}"),
        )
        # No filter leaves out keys that only state has, since it would copy the arrays of the others; but they are not folded.
        in_order = grouped.withColumn(_ELEMENTS, F.expr(f"array_sort({_ELEMENTS}, (a, b) -> {_ORDER})"))
        # Doubled, to be one number with what it is of: of an element odd, of a block even, which is so before an element of its time.
        of_elements = f"transform({_ELEMENTS}, e -> 2 * e.t + 1)"
        of_blocks = f"transform({_HELD}, h -> 2 * (h - {self._within - 1}L))"
        times = f"if(size({_HELD}) = 0, {of_elements}, array_sort(concat({of_blocks}, {of_elements})))"
        return in_order.withColumn(_KEPT, F.expr(f"if(size({_ELEMENTS}) = 0, {_NONE}, {self._kept_indexes(times)})"))

    def _kept_indexes(self, times: str) -> str:
        """Return SQL of the indexes of kept elements, from the sorted times of elements, and of the begins of blocks.

        Spark copies what a fold has found so far at each item. So the times are folded in parts, after a first fold of all that finds
        only the state at the begin of each part: the greatest blocked time (``until``) and the number of elements.
        """
        begins, part = f"sequence(0, size(times) - 1, {_PART})", f"slice(times, begin + 1, {_PART})"
        first = f"named_struct('until', {1 - 2**63}L, 'n', 0)"
        states = f"aggregate({part}, element_at(states, -1), (acc, x) -> {self._step()})"
        states = f"aggregate(begins, array({first}), (states, begin) -> concat(states, array({states})))"
        kept = f"named_struct('until', state.until, 'n', state.n, 'found', {_NONE})"
        kept = f"aggregate({part}, {kept}, (acc, x) -> {self._step('acc.found')}, acc -> acc.found)"
        kept = f"flatten(zip_with(begins, {states}, (begin, state) -> if(begin IS NULL, {_NONE}, {kept})))"
        return _with("times", times, _with("begins", begins, kept))

    def _step(self, found: str = "") -> str:
        """Return SQL of the state ``acc`` after a time ``x``: of a block, of a duplicate, or of an element that is kept."""
        away = 2 * (self._within - 1)
        same, more = (f", 'found', {found}", f", 'found', concat({found}, array(acc.n))") if found else ("", "")
        return (
            f"CASE WHEN x & 1 = 0 THEN named_struct('until', greatest(acc.until, x + {2 * away + 1}L), 'n', acc.n{same})"
            f" WHEN x <= acc.until THEN named_struct('until', acc.until, 'n', acc.n + 1{same})"
            f" ELSE named_struct('until', x + {away}L, 'n', acc.n + 1{more}) END"
        )

    def counted(self, classified: DataFrame, observation: Observation, *, watermark: int) -> DataFrame:
        """Return the same rows; the observation will have the numbers of all, late and kept elements, and the shortfalls of late ones.

        It will have ``LATE_TIMES``, and with allowed lateness ``CORRECTED``: the times of elements that are kept behind the watermark.

        Args:
            classified: from ``classified``.
            observation: of the pass.
            watermark: W(n-1).
        """
        lateness = self._node.allowed_lateness_ms
        least, past = runtime_literals(least_kept(watermark, lateness), watermark, varying=_SIZE)
        behind = f"filter(transform({_KEPT}, i -> {_ELEMENTS}[i].t), time -> time <= {past})"
        touched = [late_metric_of_times(_LATE, least), *([corrected_metric_of_times(behind)] if lateness else [])]
        return classified.withColumn(_SIZE, F.expr(f"CAST(size({_LATE}) AS BIGINT)")).observe(
            observation,
            F.expr(f"coalesce(sum(size({_ELEMENTS})), 0) AS judged"),
            F.expr(f"coalesce(sum({_SIZE}), 0) AS late"),
            F.expr(f"coalesce(sum(size({_KEPT})), 0) AS kept"),
            *map(F.expr, [*shortfall_metrics_of_times(_LATE, least, _SIZE), *touched]),
        )

    def kept(self, classified: DataFrame) -> DataFrame:
        """Return the kept elements, each in one column, with their keys and times as in state."""
        chosen = f"inline(transform({_KEPT}, i -> {_ELEMENTS}[i]))"
        return classified.selectExpr(*map(quoted, self.keys), chosen).selectExpr(
            *map(quoted, self.keys), f"t AS {START}", f"r AS {_ELEMENT}"
        )

    def duplicates(self, classified: DataFrame) -> DataFrame:
        """Return the elements that are neither kept nor late."""
        others = f"array_except(transform({_ELEMENTS}, (e, i) -> i), {_KEPT})"
        return classified.selectExpr(f"inline(transform({others}, i -> {_ELEMENTS}[i]))").select("r.*")

    def state_rows(self, kept: DataFrame) -> DataFrame:
        """Return the state rows of kept elements: keys and times."""
        return kept.select(*map(quoted, self.keys), START)

    @staticmethod
    def elements(kept: DataFrame) -> DataFrame:
        """Return elements with their input columns."""
        return kept.select(f"{_ELEMENT}.*")


def _with(name: str, value: str, expression: str) -> str:
    """Return SQL of an expression in which a name stands for a value that is computed once, also where a lambda has it."""
    return f"element_at(transform(array({value}), {name} -> {expression}), 1)"

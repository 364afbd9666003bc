"""The DataFrames of a deduplication: which elements of an epoch are kept, by native Spark expressions.

The elements of a key are one array, sorted by (event time, source position), and one fold over it finds those that are kept. Of elements
kept before, state has the times by key.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F

from tidemark.graph.operators.deduplicate.node import DeduplicateNode
from tidemark.graph.operators.state_names import key_column
from tidemark.spark.columns.expressions import POSITION, START, TIME, column, quoted, visible_of
from tidemark.spark.operators.base.runtime_literals import runtime_literals

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, Observation

_ELEMENT: Final = "__tm_element"
_ELEMENTS: Final = "__tm_elements"
_HELD: Final = "__tm_held"
_LATE: Final = "__tm_late"
_KEPT: Final = "__tm_kept"
_ORDER: Final = "CASE WHEN a.t < b.t OR (a.t = b.t AND a.p < b.p) THEN -1 WHEN a.t = b.t AND a.p = b.p THEN 0 ELSE 1 END"


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
        """Return a row per key that has elements: the sorted elements, the number of late ones, and the indexes of those that are kept.

        Args:
            rows: the epoch's elements.
            state: times of earlier kept elements of these keys, from ``state_rows``; None where there are none.
            late_until: the greatest time that is late.
        """
        names = [*map(quoted, visible_of(rows.columns)), TIME, POSITION]
        element = F.expr(f"struct({TIME} AS t, {POSITION} AS p, struct({', '.join(names)}) AS r)")
        late = F.expr(f"{TIME} <= {runtime_literals(late_until, varying=TIME)[0]}")
        given = rows.select(*self.key_columns, element.alias(_ELEMENT), late.alias(_LATE))
        if state is not None:
            held = state.select(*map(quoted, self.keys), F.col(START).alias(_HELD))
            given = given.unionByName(held, allowMissingColumns=True)
        else:
            given = given.withColumn(_HELD, F.lit(None).cast("bigint"))
        grouped = given.groupBy(*map(quoted, self.keys)).agg(
            F.expr(f"array_sort(collect_list(if({_LATE}, NULL, {_ELEMENT})), (a, b) -> {_ORDER}) AS {_ELEMENTS}"),
            F.expr(f"collect_list({_HELD}) AS {_HELD}"),
            F.expr(f"count_if({_LATE}) AS {_LATE}"),
        )
        with_elements = grouped.where(f"size({_ELEMENTS}) > 0 OR {_LATE} > 0")
        near = f"(acc.last IS NOT NULL AND e.t - acc.last < {self._within}L) OR exists({_HELD}, h -> abs(h - e.t) < {self._within}L)"
        step = f"named_struct('n', acc.n + 1, 'last', if({near}, acc.last, e.t), 'at', if({near}, acc.at, concat(acc.at, array(acc.n))))"
        start = "named_struct('n', 0, 'last', CAST(NULL AS BIGINT), 'at', CAST(array() AS ARRAY<INT>))"
        return with_elements.withColumn(_KEPT, F.expr(f"aggregate({_ELEMENTS}, {start}, (acc, e) -> {step}, acc -> acc.at)"))

    @staticmethod
    def counted(classified: DataFrame, observation: Observation) -> DataFrame:
        """Return the same rows; the observation will have the numbers of all, late and kept elements."""
        return classified.observe(
            observation,
            F.expr(f"coalesce(sum(size({_ELEMENTS})), 0) AS judged"),
            F.expr(f"coalesce(sum({_LATE}), 0) AS late"),
            F.expr(f"coalesce(sum(size({_KEPT})), 0) AS kept"),
        )

    def kept(self, classified: DataFrame) -> DataFrame:
        """Return the kept elements, each in one column, with their keys and times as in state."""
        chosen = f"inline(transform({_KEPT}, i -> {_ELEMENTS}[i]))"
        return classified.selectExpr(*map(quoted, self.keys), chosen).selectExpr(
            *map(quoted, self.keys), f"t AS {START}", f"r AS {_ELEMENT}"
        )

    def duplicates(self, classified: DataFrame) -> DataFrame:
        """Return the elements that are neither kept nor late."""
        others = f"array_except(sequence(0, size({_ELEMENTS}) - 1), {_KEPT})"
        with_elements = classified.where(f"size({_ELEMENTS}) > 0")
        return with_elements.selectExpr(f"inline(transform({others}, i -> {_ELEMENTS}[i]))").select("r.*")

    def state_rows(self, kept: DataFrame) -> DataFrame:
        """Return the state rows of kept elements: keys and times."""
        return kept.select(*map(quoted, self.keys), START)

    @staticmethod
    def elements(kept: DataFrame) -> DataFrame:
        """Return elements with their input columns."""
        return kept.select(f"{_ELEMENT}.*")

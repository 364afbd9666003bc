"""The DataFrames of count windows: numbered elements, slices of groups, and groups of slices."""

from __future__ import annotations

from math import gcd
from typing import TYPE_CHECKING

from pyspark.sql import Observation
from pyspark.sql import functions as F
from pyspark.sql.types import StructField, StructType

from tidemark.graph.operators.window.node import WindowNode
from tidemark.semantics.watermarks.watermarks import MAX_WATERMARK
from tidemark.semantics.windows.assigners import CountWindows
from tidemark.spark.columns.expressions import POSITION, ROWS, TIME, quoted
from tidemark.spark.operators.base.partials import Partials
from tidemark.spark.operators.keyed.key_table import union_of
from tidemark.spark.prepared.runtime_literals import runtime_literals

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

NEWEST = "__tm_newest"
SLICE = "__tm_slice"
UNTIL = "__tm_until"
"""The number of a key's elements up to the last one of a row."""

_NUMBER, _BEFORE, _REACHED, _END, _FROM, _TO = "__tm_number", "__tm_before", "__tm_reached", "__tm_end", "__tm_from", "__tm_to"


class CountedFrames:
    """The DataFrames of one operator.

    Elements of a key have numbers from 0. The group that is full with ``end`` elements, a multiple of the slide, has the last ``size`` of
    them, or fewer.

    Args:
        node: the operator; its assigner must be CountWindows.
    """

    def __init__(self, node: WindowNode) -> None:
        if not isinstance(node.assigner, CountWindows):
            raise TypeError(f"no step for windows of kind {type(node.assigner).__name__}")
        self.node = node
        self.partials = Partials(node)
        self.size = node.assigner.size
        self.slide = node.assigner.slide or node.assigner.size
        self.width = gcd(self.size, self.slide)
        self.names = [f"__tm_key_{number}" for number in range(len(node.keys))]

    def keyed(self, rows: DataFrame) -> DataFrame:
        """Return rows with their keys, under names that no user column has."""
        keys = zip(self.partials.key_columns, self.names, strict=True)
        return rows.select("*", *(column.alias(name) for column, name in keys))

    def key_types(self, keyed: DataFrame) -> StructType:
        """Return the types of the keys, by their names in state."""
        keys = zip(self.partials.keys, self.names, strict=True)
        return StructType([StructField(key, keyed.schema[name].dataType) for key, name in keys])

    def counts(self, state: DataFrame) -> DataFrame:
        """Return the element counts of keys, from rows of state."""
        keys = zip(self.partials.keys, self.names, strict=True)
        return state.selectExpr(*(f"{quoted(key)} AS {name}" for key, name in keys), UNTIL)

    def numbered(self, keyed: DataFrame, counts: DataFrame | None) -> DataFrame:
        """Return elements with their numbers, by event time and source position, continuing their key's count.

        The counts of keys come before their elements, so that one sort is enough.
        """
        rows = keyed.withColumn(UNTIL, F.lit(None).cast("bigint")) if counts is None else union_of([keyed, counts])
        over = f"({self._by_key(self.names)} ORDER BY {TIME} NULLS FIRST, {POSITION} ROWS UNBOUNDED PRECEDING)"
        number = f"coalesce(max({UNTIL}) OVER {over}, 0L) + count({TIME}) OVER {over} - 1L"
        return rows.withColumn(_NUMBER, F.expr(number)).where(f"{TIME} IS NOT NULL")

    def slices(self, numbered: DataFrame) -> DataFrame:
        """Return elements grouped by key and slice, as rows of state."""
        slice_counts = (f"count(1) AS {ROWS}", f"max({TIME}) AS {NEWEST}", f"max({_NUMBER}) + 1L AS {UNTIL}")
        rows = numbered.withColumn(SLICE, F.expr(f"{_NUMBER} div {self.width}L"))
        grouped = rows.groupBy(*self.names, SLICE).agg(*self.partials.creations, *map(F.expr, slice_counts))
        keys = zip(self.names, self.partials.keys, strict=True)
        return grouped.select(
            *(F.col(name).alias(key) for name, key in keys), SLICE, *map(quoted, self.partials.columns), ROWS, NEWEST, UNTIL
        )

    def taken(self, slices: DataFrame, observation: Observation, *, ended: bool) -> DataFrame:
        """Return the slices that become state, counted: elements, and groups that became ``full``; none after the end of input."""
        # Not a condition that Spark can fold into a constant: it would then drop the counting, too.
        kept = f"{SLICE} <= {runtime_literals(-1 if ended else MAX_WATERMARK, varying=SLICE)[0]}"
        full = f"{UNTIL} div {self.slide}L - ({UNTIL} - {ROWS}) div {self.slide}L"
        counts = (
            f"sum(CASE WHEN {kept} THEN {ROWS} END) AS accepted",
            f"sum(CASE WHEN NOT ({kept}) THEN {ROWS} END) AS late",
            f"count_if({kept}) AS groups",
            f"sum(CASE WHEN {kept} THEN {full} END) AS full",
        )
        return slices.observe(observation, *map(F.expr, counts)).where(kept)

    def groups(self, state: DataFrame, added: DataFrame) -> DataFrame:
        """Return the groups that became full, merged.

        Args:
            state: all rows of state, including those of the epoch.
            added: the rows of the epoch.
        """
        reached = (F.expr(f"min({UNTIL} - {ROWS}) AS {_BEFORE}"), F.expr(f"max({UNTIL}) AS {_REACHED}"))
        names = [f"__tm_of_{number}" for number in range(len(self.names))]
        keys = zip(self.partials.keys, names, strict=True)
        # Without keys this always has one row, of nulls where there is no input.
        spans = added.groupBy(*(F.col(quoted(key)).alias(name) for key, name in keys)).agg(*reached)
        full = spans.where(f"{_REACHED} div {self.slide}L > {_BEFORE} div {self.slide}L")
        same = " AND ".join(f"{quoted(key)} <=> {name}" for key, name in zip(self.partials.keys, names, strict=True))
        of_keys = state.join(full, F.expr(same or "true"), "inner")
        return self.partials.grouped(self._in_groups(of_keys), _END, extra=[_newest()])

    def _in_groups(self, rows: DataFrame) -> DataFrame:
        """Return slices once for each group that contains them and became full between ``_BEFORE`` and ``_REACHED`` elements."""
        first = f"({self._over(f'greatest({SLICE} * {self.width}L, {_BEFORE})')} + 1L) * {self.slide}L"
        last = f"{self._over(f'least({SLICE} * {self.width}L + {self.size}L, {_REACHED})')} * {self.slide}L"
        spread = rows.selectExpr("*", f"{first} AS {_FROM}", f"{last} AS {_TO}").where(f"{_FROM} <= {_TO}")
        return spread.selectExpr("*", f"explode(sequence({_FROM}, {_TO}, {self.slide}L)) AS {_END}")

    def _over(self, elements: str) -> str:
        return f"({elements} div {self.slide}L)"

    def results(self, groups: DataFrame) -> DataFrame:
        """Return the result rows of groups: keys, bounds, which are null, aggregates, pane, and the hidden result time."""
        return groups.selectExpr(
            *self.partials.key_results,
            "CAST(NULL AS TIMESTAMP) AS window_start",
            "CAST(NULL AS TIMESTAMP) AS window_end",
            *self.partials.results,
            "'ON_TIME' AS pane_timing",
            f"CAST({_END} div {self.slide}L - 1L AS INT) AS pane_index",
            f"{NEWEST} AS {TIME}",
            f"struct('{self.node.uid}' AS origin, {_END} AS block, {self.partials.key_hash} AS row) AS {POSITION}",
        )

    def merged(self, state: DataFrame) -> DataFrame:
        """Return rows of state merged to one per key and slice, without slices that no future group contains; a key's last one stays.

        A key may have had more elements than these rows show, and need even fewer slices.
        """
        keys = [quoted(key) for key in self.partials.keys]
        apart = state.repartition(*keys) if keys else state.repartition(1)
        counts = (F.expr(f"sum({ROWS}) AS {ROWS}"), _newest(), F.expr(f"max({UNTIL}) AS {UNTIL}"))
        slices = self.partials.grouped(apart, SLICE, extra=counts)
        reached = slices.withColumn(_REACHED, F.expr(f"max({UNTIL}) OVER ({self._by_key(keys)})"))
        following = f"({_REACHED} div {self.slide}L + 1L) * {self.slide}L"
        needed = f"{SLICE} * {self.width}L >= {following} - {self.size}L"
        return reached.where(f"{needed} OR {UNTIL} = {_REACHED}").drop(_REACHED)

    @staticmethod
    def _by_key(keys: list[str]) -> str:
        return f"PARTITION BY {', '.join(keys)}" if keys else ""


def _newest() -> Column:
    return F.expr(f"max({NEWEST}) AS {NEWEST}")

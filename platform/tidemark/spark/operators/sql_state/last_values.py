"""State machines whose fields depend on the element only: a field before an element is what the element before gave it.

One window over the rows of each key, in order, reads that from the row before. The stored state is the row before the first element.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from tidemark.graph.operators.sql_state.node import SqlStateNode
from tidemark.spark.columns.expressions import TIME, quoted
from tidemark.spark.operators.native_keyed.columns import COUNT, ELEMENT, NOW
from tidemark.spark.operators.sql_state.machine import BEFORE, Machine, updated, with_initial

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from tidemark.spark.operators.native_keyed.times import PassTimes

_PREVIOUS = "__tm_previous"


class LastValues(Machine):
    """A state machine without recursion.

    Args:
        node: its declaration.
    """

    def __init__(self, node: SqlStateNode) -> None:
        super().__init__(node)
        self._columns: list[str] = []

    def payload(self, rows: DataFrame) -> list[Column]:
        """Return what the element gives the fields, and the columns that results read."""
        self._columns = self.columns_read(rows, updates=False)
        given = zip(self.node.fields, self.kept_names, strict=True)
        return [
            F.col(TIME),
            *(F.expr(updated(field)).alias(name) for field, name in given),
            *(F.col(quoted(name)) for name in self._columns),
        ]

    def walk(self, fed: DataFrame, times: PassTimes, *, stored: bool) -> DataFrame:
        """Return a row per element, and per key that only stored rows have."""
        over, previous = self.over(), [f"{_PREVIOUS}_{number}" for number in range(len(self.kept))]
        walked = fed.selectExpr(
            "*",
            f"CAST({ELEMENT} AS INT) AS {COUNT}",
            *self.before_columns(stored=stored),
            f"lag({NOW}) {over} AS {_PREVIOUS}",
            *(f"lag({name}) {over} AS {before}" for name, before in zip(self.kept_names, previous, strict=True)),
        )
        live = times.is_live(_PREVIOUS, NOW)
        values = (
            f"{with_initial(field, before if self.ttl is None else f'if({live}, {before}, NULL)')} AS {quoted(field.name)}"
            for field, before in zip(self.node.fields, previous, strict=True)
        )
        seen = walked.withColumn(BEFORE, F.expr(f"struct({', '.join(values)})"))
        emits = "true" if self.node.emit_when is None else f"coalesce(({self.node.emit_when}), false)"
        return self.with_results(seen, self._columns, elements=ELEMENT, emits=emits)

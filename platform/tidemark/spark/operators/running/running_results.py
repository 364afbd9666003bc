"""Running results: the partial results of each element, merged over all rows of its key so far by a window, and finished.

The stored partial results of a key are the row before its first element. Where state expires, a window covers the rows between two
gaps that are longer than it lives.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F
from pyspark.sql import types as T

from tidemark.graph.model.aggregates import Partial
from tidemark.graph.operators.running.kind import BEST_COLUMN
from tidemark.graph.operators.running.node import Extreme, RunningNode
from tidemark.graph.operators.state_names import partial_column
from tidemark.spark.columns.expressions import POSITION, TIME, quoted, visible_of
from tidemark.spark.columns.schemas import nullable
from tidemark.spark.operators.keyed.columns import DUE, STATE, TIMER
from tidemark.spark.operators.native_keyed.columns import COUNT, ELEMENT, EMITS, HAD, LAST, NOW, RANK, REACHED, kept_name, result_name
from tidemark.spark.operators.native_keyed.program import KeyedProgram
from tidemark.spark.operators.running.lifting import lifted
from tidemark.spark.operators.running.over import over_each_aggregate

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from tidemark.spark.operators.native_keyed.times import PassTimes

_NEXT: Final = "__tm_next"
_PREVIOUS: Final = "__tm_previous"
_LIVED: Final = "__tm_lived"
_SEGMENT: Final = "__tm_segment"
_NTH: Final = "__tm_nth"
_CARRIED: Final = (RANK, TIME, POSITION, ELEMENT, COUNT, LAST, HAD, REACHED, NOW, DUE, TIMER)


class RunningResults(KeyedProgram):
    """What running results have in common.

    Args:
        node: the operator.
        kept: the columns of partial results.
    """

    def __init__(self, node: RunningNode, kept: Sequence[str]) -> None:
        super().__init__(node.keys, node.ttl, kept)
        self.node = node

    @abstractmethod
    def partials_of_rows(self) -> list[str]:
        """Return SQL of the partial results of one row of a pass, under their names in it."""

    @abstractmethod
    def merged(self, over: str) -> list[Column]:
        """Return the partial results of all rows of a window; ``over`` is its SQL."""

    @abstractmethod
    def results(self) -> list[str]:
        """Return SQL of the results, over merged partial results under their names in a pass."""

    def walk(self, fed: DataFrame, times: PassTimes, *, stored: bool) -> DataFrame:
        """Return a row per element, and per key that only stored rows have."""
        over = self.over()
        before = fed.selectExpr(
            *self.key_names,
            *(quoted(name) for name in fed.columns if name not in (*self.key_names, *self.kept_names)),
            f"CAST({ELEMENT} AS INT) AS {COUNT}",
            *self.before_columns(stored=stored),
            f"lead({ELEMENT}) {over} AS {_NEXT}",
            f"row_number() {over} AS {_NTH}",
            *([] if self.ttl is None else [f"lag({NOW}) {over} AS {_PREVIOUS}", f"lag({_lived(stored=stored)}) {over} AS {_LIVED}"]),
            *self.partials_of_rows(),
        )
        segment: tuple[str, ...] = ()
        if self.ttl is not None:
            begins = f"NOT {ELEMENT} OR NOT coalesce({_LIVED}, false) OR NOT {times.is_live(_PREVIOUS, NOW)}"
            before = before.selectExpr("*", f"sum(CAST({begins} AS INT)) {self.over_so_far()} AS {_SEGMENT}")
            segment = (_SEGMENT,)
        elif stored:
            # Of stored rows only the newest counts.
            before = before.where(f"{ELEMENT} OR {_NEXT} IS NULL OR {_NEXT}")
        hidden = [*self.key_names, *_CARRIED]
        walked = before.select(*map(F.col, hidden), *self.merged(self.over_so_far(*segment)))
        emitted = walked.selectExpr(*hidden, *self.kept_names, f"{ELEMENT} AS {EMITS}")
        results = (f"if({EMITS}, {text}, NULL) AS {result_name(number)}" for number, text in enumerate(self.results()))
        return emitted.selectExpr(*hidden, *self.kept_names, EMITS, *results)


def _lived(*, stored: bool) -> str:
    """Return SQL of whether a row has state."""
    return f"{ELEMENT} OR {STATE} IS NOT NULL" if stored else ELEMENT


class RunningAggregates(RunningResults):
    """Aggregates over all elements so far."""

    def __init__(self, node: RunningNode) -> None:
        super().__init__(node, [partial_column(name, part.name) for name, aggregate in node.aggregates for part in aggregate.partials])
        self._types: list[T.DataType] = []
        self._columns: list[str] = []
        self._names: dict[str, dict[str, str]] = {}
        self._has_stored = False
        numbers = iter(range(len(self.kept)))
        for name, aggregate in node.aggregates:
            self._names[name] = {part.name: kept_name(next(numbers)) for part in aggregate.partials}

    @property
    def result_columns(self) -> Sequence[str]:
        """The keys and the aggregates."""
        return [name for name, _ in (*self.node.keys, *self.node.aggregates)]

    def _partials(self) -> list[tuple[str, str, Partial]]:
        """Return the partials with the aggregate that each belongs to, and its name in a pass."""
        found = [(name, part) for name, aggregate in self.node.aggregates for part in aggregate.partials]
        return [(name, self._names[name][part.name], part) for name, part in found]

    @staticmethod
    def _created(part: Partial) -> str:
        return part.create.format(order=f"struct({TIME}, {POSITION})")

    def kept_types(self, rows: DataFrame) -> list[T.DataType]:
        """Return the types that the partials have when they are made of rows."""
        made = rows.groupBy().agg(*(F.expr(self._created(part)).alias(name) for _, name, part in self._partials()))
        return [field.dataType for field in nullable(made.schema)]

    def payload(self, rows: DataFrame) -> list[Column]:
        """Return the partial results that single rows have by an expression; for others the columns of elements."""
        self._types = self.kept_types(rows)
        found: list[Column] = [F.col(TIME)]
        needs_columns = False
        for (_, name, part), kind in zip(self._partials(), self._types, strict=True):
            text = lifted(part.create)
            needs_columns |= text is None
            found += [] if text is None else [F.expr(text).cast(kind).alias(name)]
        self._columns = visible_of(rows.columns) if needs_columns else []
        return [*found, *(F.col(quoted(name)) for name in self._columns)]

    def partials_of_rows(self) -> list[str]:
        """Return partial results as they are; those that only an aggregate makes by a window of one row."""
        alone = f"{self.over()[:-1]} ROWS BETWEEN CURRENT ROW AND CURRENT ROW)"
        found = []
        for _, name, part in self._partials():
            if lifted(part.create) is not None:
                found.append(name)
            else:
                made = over_each_aggregate(self._created(part), alone)
                found.append(f"if({ELEMENT}, {made}, {name}) AS {name}" if self._has_stored else f"{made} AS {name}")
        return found

    def walk(self, fed: DataFrame, times: PassTimes, *, stored: bool) -> DataFrame:
        """Return a row per element, and per key that only stored rows have."""
        self._has_stored = stored
        return super().walk(fed, times, stored=stored)

    def merged(self, over: str) -> list[Column]:
        """Return the merged partials, of the types that they are stored with."""
        found = []
        for (name, column, part), kind in zip(self._partials(), self._types, strict=True):
            names = self._names[name]
            if part.running is not None:
                text = part.running.format(over=f" {over}", **names)
            else:
                text = over_each_aggregate(part.merge.format(**names), over)
            found.append(F.expr(text).cast(kind).alias(column))
        return found

    def results(self) -> list[str]:
        """Return the keys and the aggregates' results."""
        return [*self.key_names, *(aggregate.result.format(**self._names[name]) for name, aggregate in self.node.aggregates)]


class RunningExtreme(RunningResults):
    """The element with the greatest or least value so far."""

    def __init__(self, node: RunningNode, extreme: Extreme) -> None:
        super().__init__(node, [BEST_COLUMN])
        self._extreme = extreme
        self._columns: list[str] = []

    @property
    def result_columns(self) -> Sequence[str]:
        """The columns of the stream."""
        return self._columns

    def _element(self, rows: DataFrame) -> Column:
        self._columns = visible_of(rows.columns)
        columns = ", ".join(map(quoted, self._columns))
        return F.expr(f"struct(({self._extreme.by}) AS by, struct({columns}) AS row)").alias(kept_name(0))

    def kept_types(self, rows: DataFrame) -> list[T.DataType]:
        """Return the type of an element with its value."""
        return [rows.select(self._element(rows)).schema[0].dataType]

    def payload(self, rows: DataFrame) -> list[Column]:
        """Return the element with its value."""
        return [F.col(TIME), self._element(rows)]

    def partials_of_rows(self) -> list[str]:
        """Return the element as it is."""
        return self.kept_names

    def merged(self, over: str) -> list[Column]:
        """Return the element with the greatest or least value; nulls lose, and of equal values the first element wins."""
        best, most = kept_name(0), self._extreme.kind == "max_by"
        order = f"struct({best}.by IS {'NOT ' if most else ''}NULL, {best}.by, {'-' if most else ''}{_NTH})"
        return [F.expr(f"{self._extreme.kind}({best}, {order}) {over}").alias(best)]

    def results(self) -> list[str]:
        """Return the columns of the element."""
        return [f"{kept_name(0)}.row.{quoted(name)}" for name in self._columns]

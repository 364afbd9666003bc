"""State machines whose fields depend on the state: the elements of a key are one sorted array, and one fold processes them in order.

Spark copies the result of a fold at each item. So the fold of many elements is one of folds of parts, several levels deep: each level
collects the rows of its parts, and the time is linear in the number of elements.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F
from pyspark.sql import types as T

from tidemark.graph.expressions.substitution import with_columns_replaced
from tidemark.graph.operators.sql_state.expressions import NEW
from tidemark.graph.operators.sql_state.node import SqlStateNode, StateField
from tidemark.graph.operators.window.reduce import EARLIER, LATER
from tidemark.spark.columns.expressions import POSITION, TIME, quoted
from tidemark.spark.columns.schemas import nullable
from tidemark.spark.operators.keyed.columns import DUE, STATE, TIMER
from tidemark.spark.operators.native_keyed.columns import COUNT, ELEMENT, EMITS, HAD, LAST, NOW, RANK, REACHED, result_name
from tidemark.spark.operators.sql_state.machine import BEFORE, Machine, with_initial

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from tidemark.spark.operators.native_keyed.times import PassTimes

_ELEMENTS: Final = "__tm_elements"
_STORED: Final = "__tm_stored"
_FOLDED: Final = "__tm_folded"
_ROW: Final = "__tm_row"
_STATE: Final = "__tm_fields"
PART: Final = 64
"""Items that are folded together at each level."""

_LEVELS: Final = 4
"""Levels for keys with more than one part: of a million elements the topmost has one item."""

_BY_PLACE: Final = (
    "(a, b) -> CASE WHEN a.rank < b.rank THEN -1 WHEN a.rank > b.rank THEN 1"
    " WHEN a.place < b.place THEN -1 WHEN a.place > b.place THEN 1 ELSE 0 END"
)


class Folded(Machine):
    """A state machine with recursion.

    Args:
        node: its declaration.
    """

    def __init__(self, node: SqlStateNode) -> None:
        super().__init__(node)
        self._columns: list[str] = []
        self._state_type = T.StructType()
        self._sortable = True

    def payload(self, rows: DataFrame) -> list[Column]:
        """Return the columns that updates and results read, in one."""
        node, known = self.node, {name.lower(): name for name in rows.columns}
        if node.reduced:
            self._columns = [known[field.name.lower()] for field in node.fields]
        else:
            self._columns = self.columns_read(rows, updates=True)
        # A struct has at least one field.
        element = F.struct(F.lit(0).alias("__tm_none"), *(F.col(quoted(name)) for name in self._columns)).alias(_ROW)
        self._sortable = not _has_map(rows.select(element).schema[0].dataType)
        fields = zip(node.fields, self.kept_types(rows), strict=True)
        self._state_type = nullable(T.StructType([T.StructField(field.name, kind) for field, kind in fields]))
        return [element]

    def walk(self, fed: DataFrame, times: PassTimes, *, stored: bool) -> DataFrame:
        """Return a row per emitted element, and one per key with its state."""
        grouped = fed.groupBy(*map(quoted, self.key_names)).agg(*self._gathered(stored=stored))
        if not stored:
            grouped = grouped.withColumn(_STORED, self._nothing())
        order = f"sort_array({_ELEMENTS})" if self._sortable else f"array_sort({_ELEMENTS}, {_BY_PLACE})"
        ordered = grouped.withColumn(_ELEMENTS, F.expr(order))
        folded = ordered.selectExpr(*self.key_names, f"size({_ELEMENTS}) AS {COUNT}", _STORED, f"{self._fold(times)} AS {_FOLDED}")
        # A null after the emitted elements is the key's last row.
        rows = f"explode(concat({_FOLDED}.rows, array(NULL))) AS {_ROW}"
        exploded = folded.selectExpr(*self.key_names, COUNT, _STORED, f"{_FOLDED}.state AS {_STATE}", f"{_FOLDED}.now AS {NOW}", rows)
        carried = self._carried(exploded)
        if self.node.reduced:
            names = [*self.key_names, *(f"{BEFORE}.{quoted(field.name)}" for field in self.node.fields)]
            results = (f"{name} AS {result_name(number)}" for number, name in enumerate(names))
            return carried.selectExpr("*", f"NOT {LAST} AS {EMITS}", *results).drop(BEFORE)
        return self.with_results(carried, self._columns, elements=f"NOT {LAST}", emits="true")

    def _gathered(self, *, stored: bool) -> list[Column]:
        """Return the elements of a key, and its newest stored row."""
        item = f"struct({RANK} AS rank, {POSITION} AS place, {NOW} AS now, {_ROW} AS e)"
        gathered = [F.expr(f"collect_list(if({ELEMENT}, {item}, NULL)) AS {_ELEMENTS}")]
        if not stored:
            return gathered
        values = ", ".join(f"{name} AS {quoted(field.name)}" for field, name in zip(self.node.fields, self.kept_names, strict=True))
        state = f"if({STATE} IS NOT NULL, struct({values}), NULL) AS state"
        held = f"struct({state}, {NOW} AS now, {REACHED} AS reached, {DUE} AS due, {TIMER} AS timer)"
        return [*gathered, F.expr(f"max_by(if({ELEMENT}, NULL, {held}), if({ELEMENT}, NULL, {RANK})) AS {_STORED}")]

    def _nothing(self) -> Column:
        """Return what a key has that nothing is stored of."""
        no_time = F.lit(None).cast("bigint")
        state = F.lit(None).cast(self._state_type).alias("state")
        return F.struct(state, no_time.alias("now"), F.expr("false").alias("reached"), no_time.alias("due"), no_time.alias("timer"))

    def _fold(self, times: PassTimes) -> str:
        """Return SQL of the state after all elements, its time, and the emitted elements."""
        begin = (_ELEMENTS, f"{_STORED}.state", f"{_STORED}.now", times)
        return f"if(size({_ELEMENTS}) <= {PART}, {self._level(0, *begin)}, {self._level(_LEVELS - 1, *begin)})"

    def _level(self, level: int, items: str, state: str, now: str, times: PassTimes) -> str:
        acc, item = f"acc{level}", f"x{level}"
        start = f"named_struct('state', {state}, 'now', {now}, 'rows', {self._no_rows()})"
        if level == 0:
            return f"aggregate({items}, {start}, ({acc}, x) -> {self._step(acc, times)})"
        size = PART**level
        part = f"slice({items}, {item} + 1, {size})"
        inner = self._level(level - 1, part, f"{acc}.state", f"{acc}.now", times)
        joined = f"named_struct('state', r{level}.state, 'now', r{level}.now, 'rows', concat({acc}.rows, r{level}.rows))"
        step = f"element_at(transform(array({inner}), r{level} -> {joined}), 1)"
        begins = f"sequence(0, size({items}) - 1, {size})"
        return f"aggregate({begins}, {start}, ({acc}, {item}) -> {step})"

    def _no_rows(self) -> str:
        """Return SQL of no emitted elements, with their type."""
        return f"transform(slice({_ELEMENTS}, 1, 0), x -> {self._row(f'{_STORED}.state')})"

    @staticmethod
    def _row(state: str) -> str:
        return f"named_struct('rank', x.rank, 'place', x.place, 'e', x.e, 's', {state})"

    def _step(self, acc: str, times: PassTimes) -> str:
        """Return SQL of what follows from a state ``acc`` and an element ``x``."""
        node, live = self.node, times.is_live(f"{acc}.now", "x.now")
        if node.reduced:
            present = f"{acc}.state IS NOT NULL" + ("" if self.ttl is None else f" AND {live}")
            after = self._struct(
                [self._merged(field, column, acc, present) for field, column in zip(node.fields, self._columns, strict=True)]
            )
            return f"named_struct('state', {after}, 'now', x.now, 'rows', concat({acc}.rows, array({self._row(after)})))"
        before = {field.name.lower(): self._before(field, acc, live) for field in node.fields}
        values = {field.name.lower(): self._value(field, before) for field in node.fields}
        after = self._struct(list(values.values()))
        row = self._row(self._struct(list(before.values())))
        rows = f"concat({acc}.rows, array({row}))"
        if node.emit_when is not None:
            new = self._struct([with_initial(field, values[field.name.lower()]) for field in node.fields])
            rows = f"if(coalesce(({self._placed(node.emit_when, {**before, NEW: new})}), false), {rows}, {acc}.rows)"
        return f"named_struct('state', {after}, 'now', x.now, 'rows', {rows})"

    def _before(self, field: StateField, acc: str, live: str) -> str:
        stored = f"{acc}.state.{quoted(field.name)}"
        return with_initial(field, stored if self.ttl is None else f"if({live}, {stored}, NULL)")

    def _value(self, field: StateField, before: dict[str, str]) -> str:
        return f"CAST(({self._placed(field.update, before)}) AS {field.type})"

    def _merged(self, field: StateField, column: str, acc: str, present: str) -> str:
        merge = f"\n{with_columns_replaced(field.update, {EARLIER: f'{acc}.state', LATER: 'x.e'}.get)}\n"
        kind = self._state_type[field.name].dataType
        # Other types are those of the column already: nothing widens them.
        cast = merge if isinstance(kind, T.StructType | T.ArrayType | T.MapType) else f"CAST(({merge}) AS {kind.simpleString()})"
        return f"if({present}, {cast}, x.e.{quoted(column)})"

    def _placed(self, text: str, known: dict[str, str]) -> str:
        """Return an expression over the element and the fields, as SQL over ``x`` and ``acc``; in a line of its own, as errors show it."""
        placed = with_columns_replaced(text, lambda name: known.get(name.lower(), f"x.e.{quoted(name)}"))
        return f"\n{placed}\n"

    def _struct(self, values: list[str]) -> str:
        named = zip(self.node.fields, values, strict=True)
        return f"struct({', '.join(f'{value} AS {quoted(field.name)}' for field, value in named)})"

    def _carried(self, rows: DataFrame) -> DataFrame:
        """Return emitted elements with the fields before them, of ``reduce`` after them; and the last row of each key."""
        last = f"{_ROW} IS NULL"
        columns = () if self.node.reduced else self._columns
        return rows.selectExpr(
            *self.key_names,
            f"coalesce({_ROW}.rank, 0L) AS {RANK}",
            f"{_ROW}.rank AS {TIME}",
            f"{_ROW}.place AS {POSITION}",
            f"{COUNT} > 0 AS {ELEMENT}",
            f"if({last}, {COUNT}, 0) AS {COUNT}",
            f"{last} AS {LAST}",
            f"{_STORED}.state IS NOT NULL AS {HAD}",
            f"coalesce({_STORED}.reached, false) AS {REACHED}",
            NOW,
            f"{_STORED}.due AS {DUE}",
            f"{_STORED}.timer AS {TIMER}",
            *(f"{_STATE}.{quoted(field.name)} AS {name}" for field, name in zip(self.node.fields, self.kept_names, strict=True)),
            *(f"{_ROW}.e.{quoted(name)} AS {quoted(name)}" for name in columns),
            f"{_ROW}.s AS {BEFORE}",
        )


def _has_map(kind: T.DataType) -> bool:
    """Return whether values of a type have no order."""
    if isinstance(kind, T.StructType):
        return any(_has_map(field.dataType) for field in kind)
    if isinstance(kind, T.ArrayType):
        return _has_map(kind.elementType)
    return isinstance(kind, T.MapType | T.VariantType)

"""The step of a tumbling-window operator: absorb rows into partial aggregates, fire the windows that the watermark passed.

State is one row per (key, window start, staging): partial columns made by native aggregates. A pass over the input groups it
once, late rows too: whether a group is late is decided behind the shuffle, by its window alone. So the pass's code is the
same in every epoch and compiled once, and one observation gives exact counts, since there a re-run task is not counted
twice. Where the aggregates are plain ones, rows that dropped out before the window are grouped too, by what became of them:
then the source is tallied behind the shuffle as well, which costs less than an observation of every row.
Firing reads only the files whose windows are concerned.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as F

from tidemark.graph.aggregates import Aggregate
from tidemark.graph.nodes import WindowNode
from tidemark.semantics.assigners import Tumbling
from tidemark.semantics.watermarks import MAX_WATERMARK, MIN_WATERMARK
from tidemark.spark.expressions import POSITION, ROWS, START, TIME, VERDICT, column, is_name, quoted
from tidemark.spark.tallies import ALIVE, DEAD, Tally

if TYPE_CHECKING:
    from pyspark.sql import Column

ON_TIME = "__tm_on_time"
LATE_PANES = "__tm_late_panes"
LATEST = "__tm_latest"
_TOUCHED = "__tm_touched"
_FIRST_START = DEAD + 10**6
_PLAIN = frozenset({"count", "sum", "avg", "min", "max", "stddev", "stddev_pop", "variance", "variance_pop"})
"""Kinds of aggregates that make nothing of nulls and cannot fail on them."""

MAX_LATE_WINDOWS = 100


@dataclass(frozen=True)
class Absorbed:
    """Exact counts of one pass.

    ``groups`` were staged, ``refired_groups`` of them for windows that have fired already; ``late_windows`` are the starts of
    windows that late rows would have belonged to.
    """

    accepted: int
    late: int
    groups: int
    refired_groups: int
    late_windows: tuple[int, ...]


@dataclass(frozen=True)
class Fired:
    """Panes that one firing emitted, and the starts of windows that fired again."""

    on_time: int
    late: int
    refired: tuple[int, ...]


class WindowStep:
    """The DataFrames of one operator. Pure description: nothing runs until what it returns is written.

    Args:
        node: the operator; its assigner must be Tumbling.
    """

    def __init__(self, node: WindowNode) -> None:
        if not isinstance(node.assigner, Tumbling):
            raise TypeError(f"no step for windows of kind {type(node.assigner).__name__}")
        self.node = node
        self._size = node.assigner.size_ms
        self._offset = node.assigner.offset_ms
        self._lateness = node.allowed_lateness_ms
        self._keys = [f"key_{name}" for name, _ in node.keys]
        self._partials = {
            name: {partial.name: f"{name}__{partial.name}" for partial in aggregate.partials} for name, aggregate in node.aggregates
        }

    @property
    def size(self) -> int:
        """The windows' size in milliseconds."""
        return self._size

    def last_expired(self, watermark: int) -> int:
        """Return the start of the last window whose elements are late, and whose state is gone, at a watermark."""
        return self._last_start(watermark - self._lateness)

    def last_due(self, watermark: int) -> int:
        """Return the start of the last window whose end a watermark has passed."""
        return self._last_start(watermark)

    def _last_start(self, watermark: int) -> int:
        latest = watermark - self._size + 1
        return max(_FIRST_START, min(MAX_WATERMARK, latest - (latest - self._offset) % self._size))

    @cached_property
    def start(self) -> str:
        """The start of the window that a row's time lies in."""
        return f"{TIME} - pmod({TIME} - {self._offset}L, {self._size}L)"

    def late(self, expired: int) -> Column:
        """Return which rows lie in windows up to the last expired one."""
        return F.expr(f"{self.start} <= {_parameters(expired, varying=TIME)[0]}")

    @cached_property
    def plain(self) -> bool:
        """Whether rows that dropped out before the window can be grouped beside the others."""
        keys = all(is_name(expression) for _, expression in self.node.keys)
        # One column under two spellings would be selected twice.
        names = self._columns_read
        told_apart = len({name.strip("`").lower() for name in names}) == len(names)
        return keys and told_apart and all(_is_plain(aggregate) for _, aggregate in self.node.aggregates)

    @property
    def _columns_read(self) -> set[str]:
        arguments = (argument for _, aggregate in self.node.aggregates for argument in aggregate.arguments)
        return {str(expression).strip() for expression in (*(key for _, key in self.node.keys), *arguments)}

    def absorb(self, rows: DataFrame, expired: int, due: int, observation: Observation, tally: Tally | None = None) -> DataFrame:
        """Return the state rows that an epoch's input adds.

        Args:
            rows: living rows; with ``tally``, which asks that the step be ``plain``, all rows with their verdicts.
            expired: start of the last window that takes nothing any more.
            due: start of the last window that has fired.
            observation: will hold the counts, to be read by ``absorbed`` after the rows were written.
            tally: of the rows; its counts come with the observation.
        """
        grouped = self._grouped(rows) if tally is None else self._grouped_with_dead(rows)
        last, fired_last = _parameters(expired, due)
        late, kept, fired = f"{START} BETWEEN {_FIRST_START}L AND {last}", f"{START} > {last}", f"{START} <= {fired_last}"
        groups = grouped.observe(
            observation,
            F.expr(f"sum(CASE WHEN {kept} THEN {ROWS} END) AS accepted"),
            F.expr(f"sum(CASE WHEN {late} THEN {ROWS} END) AS late"),
            F.expr(f"count_if({kept}) AS groups"),
            F.expr(f"count_if({fired} AND {kept}) AS refired"),
            F.expr(f"collect_set(CASE WHEN {late} THEN {START} END) AS late_windows"),
            *(tally.of_groups(LATEST, observation) if tally else ()),
        )
        panes = (f"if({fired}, 0, 1) AS {ON_TIME}", f"if({fired}, 1, 0) AS {LATE_PANES}")
        state = [quoted(name) for name in grouped.columns if name not in (ROWS, LATEST)]
        return groups.where(kept).selectExpr(*state, *panes)

    def _grouped(self, rows: DataFrame) -> DataFrame:
        keyed = rows.withColumn(START, F.expr(self.start))
        return keyed.groupBy(*self._key_columns, START).agg(*self._creations, F.expr(f"count(1) AS {ROWS}"))

    def _grouped_with_dead(self, rows: DataFrame) -> DataFrame:
        alive = f"{VERDICT} = {ALIVE}"
        judged = rows.selectExpr(
            *(f"if({alive}, {name}, NULL) AS {name}" for name in sorted(self._columns_read)),
            f"if({alive}, {self.start}, {DEAD}L + {VERDICT}) AS {START}",
            TIME,
        )
        counts = (F.expr(f"count(1) AS {ROWS}"), F.expr(f"max({TIME}) AS {LATEST}"))
        return judged.groupBy(*self._key_columns, START).agg(*self._creations, *counts)

    def absorbed(self, observation: Observation) -> Absorbed:
        """Read the counts of a pass that was written."""
        found = observation.get
        return Absorbed(
            accepted=found["accepted"] or 0,
            late=found["late"] or 0,
            groups=found["groups"],
            refired_groups=found["refired"],
            late_windows=tuple(sorted(found["late_windows"] or ())[-MAX_LATE_WINDOWS:]),
        )

    def merge(self, state: DataFrame, *, extra: Sequence[Column] = ()) -> DataFrame:
        """Return state rows merged to one per key and window; for firing and for compaction."""
        # Spark widens the sum of a decimal; a state column keeps the type it was created with.
        types = {field.name: field.dataType for field in state.schema}
        merged = [
            F.expr(_filled(partial.merge, columns)).cast(types[columns[partial.name]]).alias(columns[partial.name])
            for name, aggregate in self.node.aggregates
            for columns in [self._partials[name]]
            for partial in aggregate.partials
        ]
        panes = (F.expr(f"max({ON_TIME}) AS {ON_TIME}"), F.expr(f"CAST(sum({LATE_PANES}) AS INT) AS {LATE_PANES}"))
        return state.groupBy(*map(quoted, self._keys), START).agg(*merged, *panes, *extra)

    @staticmethod
    def between(state: DataFrame, low: int, high: int) -> DataFrame:
        """Return the state rows of windows that start in [low, high]."""
        first, last = _parameters(low, high)
        return state.where(f"{START} BETWEEN {first} AND {last}")

    @staticmethod
    def outside(state: DataFrame, low: int, high: int) -> DataFrame:
        """Return the state rows of windows that do not start in [low, high]."""
        first, last = _parameters(low, high)
        return state.where(f"{START} NOT BETWEEN {first} AND {last}")

    def touched(self, state: DataFrame, added: DataFrame, expired: int, due: int) -> DataFrame:
        """Return, merged, the windows after the expired ones that have fired up to ``due`` and got accepted late rows in this epoch."""
        marked = (self.between(rows, expired + 1, due).withColumn(_TOUCHED, F.lit(flag)) for rows, flag in ((state, 0), (added, 1)))
        merged = self.merge(reduce(DataFrame.unionByName, marked), extra=[F.expr(f"max({_TOUCHED}) AS {_TOUCHED}")])
        return merged.where(f"{_TOUCHED} = 1").drop(_TOUCHED)

    def results(self, merged: DataFrame, due: int, observation: Observation) -> DataFrame:
        """Return the result rows of merged state: keys, bounds, aggregates, pane, and the hidden time ``end - 1``.

        ``due`` is the start of the last window that had fired before.
        """
        late = f"{START} <= {_parameters(due)[0]}"
        rows = merged.selectExpr(
            *(f"{quoted(key)} AS {quoted(name)}" for key, (name, _) in zip(self._keys, self.node.keys, strict=True)),
            f"timestamp_millis({START}) AS window_start",
            f"timestamp_millis({START} + {self._size}L) AS window_end",
            *(f"{_filled(aggregate.result, self._partials[name])} AS {quoted(name)}" for name, aggregate in self.node.aggregates),
            f"if({late}, 'LATE', 'ON_TIME') AS pane_timing",
            f"CAST(if({late}, {ON_TIME} + {LATE_PANES} - 1, 0) AS INT) AS pane_index",
            f"{START} + {self._size - 1}L AS {TIME}",
            f"struct('{self.node.uid}' AS origin, {START} AS block, {self._key_hash} AS row) AS {POSITION}",
        )
        return rows.observe(
            observation,
            F.expr("count_if(pane_timing = 'ON_TIME') AS on_time"),
            F.expr("count_if(pane_timing = 'LATE') AS late"),
            F.expr("collect_set(CASE WHEN pane_timing = 'LATE' THEN unix_millis(window_start) END) AS refired"),
        )

    @staticmethod
    def fired(observation: Observation) -> Fired:
        """Read the counts of results that were written."""
        found = observation.get
        return Fired(found["on_time"], found["late"], tuple(sorted(found["refired"] or ())[-MAX_LATE_WINDOWS:]))

    @cached_property
    def _key_columns(self) -> list[Column]:
        return [column(expression).alias(key) for key, (_, expression) in zip(self._keys, self.node.keys, strict=True)]

    @property
    def _key_hash(self) -> str:
        """What orders the results of one window, as a source's rows are ordered by their positions."""
        return f"xxhash64({', '.join(map(quoted, self._keys))})" if self._keys else "0L"

    @cached_property
    def _creations(self) -> list[Column]:
        order = f"struct({TIME}, {POSITION})"
        return [
            F.expr(partial.create.format(order=order)).alias(self._partials[name][partial.name])
            for name, aggregate in self.node.aggregates
            for partial in aggregate.partials
        ]


def _parameters(*values: int, varying: str = START) -> list[str]:
    """Return numbers that differ from epoch to epoch as expressions that leave the code made for a plan the same.

    Spark writes a number into the code that it compiles, so that each epoch would be compiled, and warmed up, anew; an array it
    passes in. The index, always the item's number, is written with a BIGINT column so that Spark does not work it out beforehand.
    """
    array = ", ".join(_sql(max(MIN_WATERMARK, min(MAX_WATERMARK, value))) for value in values)
    return [f"get(array({array}), CAST(pmod({varying}, 1) AS INT) + {number})" for number in range(len(values))]


def _sql(value: int) -> str:
    """Return a BIGINT literal; the least one has no direct form, since the minus sign stands before a number that is too great."""
    return f"{value}L" if value > MIN_WATERMARK else f"({value + 1}L - 1L)"


def _filled(template: str, columns: dict[str, str]) -> str:
    return template.format(**{name: quoted(found) for name, found in columns.items()})


def _is_plain(aggregate: Aggregate) -> bool:
    return aggregate.kind in _PLAIN and all(map(is_name, aggregate.arguments))

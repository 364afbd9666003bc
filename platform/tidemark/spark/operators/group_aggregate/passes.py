"""The passes of an epoch over groups: what rows add to each, the groups before and after, and the changes of results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql import types as T

from tidemark.graph.operators.state_names import partial_column
from tidemark.spark.columns.changes import ADDS, AFTER, BEFORE, SIDE, as_changes, changed, comparable, sides_of
from tidemark.spark.columns.expressions import CHANGE, POSITION, TIME, key_hash, quoted
from tidemark.spark.columns.schemas import ddl_of
from tidemark.spark.operators.changelog.contents import HASH, STORED, lookup_hash
from tidemark.spark.operators.group_aggregate.columns import DELTA, EMITS, FOUND, INPUT, KNOWN, ROWS, WEIGHT
from tidemark.spark.operators.group_aggregate.layout import GroupLayout
from tidemark.spark.operators.keyed.key_table import union_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_VALUE = "__tm_value"
_IS_STORED = "__tm_is_stored"
_SIDES = ("__tm_had", "__tm_has")
_HAD, _HAS = f"coalesce({STORED}.{ROWS} > 0, false)", f"{ROWS} > 0"
"""SQL of whether a group had a row of results before the epoch, and has one after it."""
COUNTED_FOUND = f"{FOUND}_counted"
KEPT_FOUND = f"{FOUND}_kept"


class GroupPasses:
    """The frames of an epoch. Nothing runs until a returned frame is written.

    Args:
        layout: of the state.
        schema: all columns of state that users' columns make, as ``GroupLayout.schema`` returns them.
        uid: of the operator.
    """

    def __init__(self, layout: GroupLayout, schema: T.StructType, uid: str) -> None:
        self.layout = layout
        self._schema = schema
        self._uid = uid
        self._keys = list(map(quoted, layout.keys))

    def delta(self, rows: DataFrame) -> DataFrame:
        """Return what rows of input add to their groups: keys, the columns of groups, and the number of rows of input."""
        layout = self.layout
        if layout.merged:
            counts = (F.expr(text) for text in (f"count(1) AS {ROWS}", f"max({TIME}) AS {TIME}", f"count(1) AS {INPUT}"))
            return rows.groupBy(*layout.partials.key_columns).agg(*layout.partials.creations, *counts)
        weighted = self.weighted(rows)
        signed = layout.signed_over(rows)
        names = {column: f"{_VALUE}_{number}" for number, column in enumerate(signed)}
        value = "if({} = 0, NULL, {})".format if KNOWN in rows.columns else "{1}".format
        prepared = weighted.select(
            *layout.named_keys(), WEIGHT, TIME, *(F.expr(value(WEIGHT, sums.value)).alias(names[column]) for column, sums in signed.items())
        )
        prepared = _with_steps(prepared, [sums.steps(names[column]) for column, sums in signed.items()])
        sums = [F.expr(sums.create(names[column], WEIGHT)).alias(column) for column, sums in signed.items()]
        counts = (F.expr(text) for text in (f"sum({WEIGHT}) AS {ROWS}", f"max({TIME}) AS {TIME}", f"count(1) AS {INPUT}"))
        return prepared.groupBy(*self._keys).agg(*sums, *counts)

    def weighted(self, rows: DataFrame) -> DataFrame:
        """Return rows of input with the keys of their groups, and their weights: 0 of a row that is taken back where ``KNOWN`` is false."""
        taken = f"if({KNOWN}, -1L, 0L)" if KNOWN in rows.columns else "-1L"
        weight = F.expr(f"if({ADDS}, 1L, {taken})") if CHANGE in rows.columns else F.lit(1).cast("bigint")
        return rows.select("*", *self.layout.with_keys(), weight.alias(WEIGHT))

    def groups(self, delta: DataFrame, stored: DataFrame | None, found: Sequence[DataFrame] = (), *, others: bool = False) -> DataFrame:
        """Return the groups that input changes: keys, their columns after the epoch, ``STORED``, and what was found.

        Args:
            delta: what rows of input add.
            stored: the groups before the epoch, with all columns of their table; None where there are none.
            found: results of counted values and kept rows, by keys, in columns of their own.
            others: also return the stored groups that input does not change, whose aggregates have to be merged; their ``INPUT`` is 0.
        """
        names = [*self.layout.group_columns, ROWS, TIME]
        struct = f"struct({', '.join(map(quoted, names))})"
        if self.layout.merged:
            return self._merged(delta, stored, others=others)
        parts = [delta.selectExpr(*self._keys, f"{struct} AS {DELTA}", INPUT)]
        if stored is not None:
            parts.append(stored.selectExpr(*self._keys, f"{struct} AS {STORED}"))
        together = union_of([*parts, *found])
        if stored is None:
            together = together.selectExpr("*", f"CAST(NULL AS {self._struct_type()}) AS {STORED}")
        columns = [name for name in together.columns if name not in (*self.layout.keys, INPUT)]
        picked = (F.expr(f"any_value({name}, true)").alias(name) for name in columns)
        grouped = together.groupBy(*self._keys).agg(F.expr(f"sum({INPUT})").alias(INPUT), *picked).where(f"{INPUT} > 0")
        signed = self.layout.signed_stored(self._schema)
        kinds = {column: self._schema[column].dataType.simpleString() for column in signed}
        after = [
            f"CAST({sums.merged(f'{STORED}.{quoted(column)}', f'{DELTA}.{quoted(column)}')} AS {kinds[column]}) AS {quoted(column)}"
            for column, sums in signed.items()
        ]
        return grouped.selectExpr(
            *self._keys,
            *after,
            # Rows may be taken back that came before state expired, and are in it no more.
            f"greatest(coalesce({STORED}.{ROWS}, 0L) + {DELTA}.{ROWS}, 0L) AS {ROWS}",
            f"greatest({STORED}.{TIME}, {DELTA}.{TIME}) AS {TIME}",
            STORED,
            INPUT,
            *(name for name in columns if name not in (STORED, DELTA)),
        )

    def _struct_type(self) -> str:
        fields = self.layout.groups(self._schema).fields[len(self._keys) :][: len(self.layout.group_columns) + 2]
        return ddl_of(T.StructType(fields))

    def _merged(self, delta: DataFrame, stored: DataFrame | None, *, others: bool) -> DataFrame:
        layout = self.layout
        if stored is None:
            return delta.selectExpr("*", f"CAST(NULL AS {self._struct_type()}) AS {STORED}")
        names = [*map(quoted, layout.group_columns), ROWS, TIME]
        marked = [
            stored.selectExpr(*self._keys, *names, f"0L AS {INPUT}", f"true AS {_IS_STORED}"),
            delta.selectExpr(*self._keys, *names, INPUT, f"false AS {_IS_STORED}"),
        ]
        # Column by column, since Spark sorts the rows where an aggregate has a struct.
        one = (f"any_value(if({_IS_STORED}, {name}, NULL), true)" for name in names)
        before = [F.expr(value).alias(f"{STORED}_{number}") for number, value in enumerate(one)]
        extra = [
            F.expr(f"sum({ROWS}) AS {ROWS}"),
            F.expr(f"max({TIME}) AS {TIME}"),
            F.expr(f"sum({INPUT}) AS {INPUT}"),
            F.expr(f"bool_or({_IS_STORED}) AS {_IS_STORED}"),
            *before,
        ]
        whole = ", ".join(f"{STORED}_{number} AS {name}" for number, name in enumerate(names))
        grouped = layout.partials.grouped(union_of(marked), extra=extra)
        if others:
            # To merge one row may change it, as where a mean is divided again.
            after = [f"if({INPUT} > 0, {name}, {STORED}_{number}) AS {name}" for number, name in enumerate(names)]
        else:
            after, grouped = names, grouped.where(f"{INPUT} > 0")
        return grouped.selectExpr(*self._keys, *after, INPUT, f"if({_IS_STORED}, struct({whole}), NULL) AS {STORED}")

    def with_results(self, groups: DataFrame) -> DataFrame:
        """Return groups with their rows of results before and after the epoch, null where there is none, and the hashes of their keys.

        Args:
            groups: as ``groups`` returns them.
        """
        names = [*self._keys, *map(quoted, self.layout.group_columns), ROWS, TIME, INPUT]
        was = f"{STORED} IS NOT NULL AND {STORED}.{ROWS} <> 0 AS __tm_was"
        return groups.selectExpr(*names, was, *self._rows(), f"{lookup_hash(self.layout.keys)} AS {HASH}")

    def with_numbers(self, groups: DataFrame) -> DataFrame:
        """Return groups with ``STORED``, the hashes of their keys, and the number of rows of changes that each makes (``EMITS``).

        The rows of results are not made: tens of bytes for a group, which would be copied twice.

        Args:
            groups: as ``groups`` returns them.
        """
        names = [*self._keys, *map(quoted, self.layout.group_columns), ROWS, TIME, INPUT, STORED]
        was = f"{STORED} IS NOT NULL AND {STORED}.{ROWS} <> 0 AS __tm_was"
        return groups.selectExpr(*names, was, f"{self._emits(groups)} AS {EMITS}", f"{lookup_hash(self.layout.keys)} AS {HASH}")

    def _emits(self, groups: DataFrame) -> str:
        """Return SQL of how many rows of changes a group makes: none without input."""
        before, after = (self.results(state, side) for side, state in enumerate((f"{STORED}.", "")))
        kinds = groups.selectExpr(*(f"{text} AS {quoted(name)}" for name, text in after.items())).schema
        pairs = ((comparable(f"({text})", kinds[name].dataType) for text in (before[name], after[name])) for name in before)
        same = " AND ".join(" <=> ".join(pair) for pair in pairs) or "true"
        return f"CASE WHEN {INPUT} = 0 OR ({_HAD} AND {_HAS} AND {same}) THEN 0 ELSE CAST({_HAD} AS INT) + CAST({_HAS} AS INT) END"

    def changes_of(self, groups: DataFrame) -> DataFrame:
        """Return the changes of results, as ``changes`` does, of groups with ``STORED`` and the number of their changes.

        Column by column: of rows as structs Spark would copy all columns, and also make those that nobody reads.

        Args:
            groups: as ``with_numbers`` returns them.
        """
        layout = self.layout
        states, there = (f"{STORED}.", ""), (_HAD, _HAS)
        values = [[*self.results(state, side).values(), f"{state}{TIME}"] for side, state in enumerate(states)]
        # A result may fail where there are no rows.
        made = [
            f"if({there[side]}, {text}, NULL) AS {_SIDES[side]}_{number}" for side in (0, 1) for number, text in enumerate(values[side])
        ]
        flat = groups.where(f"{EMITS} > 0").selectExpr(*self._keys, *made, *(f"{there[side]} AS {_SIDES[side]}" for side in (0, 1)))
        sides, change = sides_of(*_SIDES)
        *results, time = (f"if({SIDE} = 0, {_SIDES[0]}_{number}, {_SIDES[1]}_{number})" for number in range(len(values[0])))
        return flat.selectExpr("*", f"{sides} AS {SIDE}").selectExpr(
            *layout.visible_keys(),
            *(f"{text} AS {quoted(name)}" for text, (name, _) in zip(results, layout.node.aggregates, strict=True)),
            f"{time} AS {TIME}",
            f"{self._position(time)} AS {POSITION}",
            f"{change} AS {CHANGE}",
        )

    def _rows(self) -> tuple[str, str]:
        before = f"if({STORED}.{ROWS} > 0, {self._row(f'{STORED}.', 0)}, NULL) AS {BEFORE}"
        return before, f"if({ROWS} > 0, {self._row('', 1)}, NULL) AS {AFTER}"

    def _row(self, state: str, side: int) -> str:
        """Return SQL of a row of results, as a struct."""
        time = f"{state}{TIME}"
        results = (f"{text} AS {quoted(name)}" for name, text in self.results(state, side).items())
        return f"struct({', '.join([*self.layout.visible_keys(), *results, f'{time} AS {TIME}', f'{self._position(time)} AS {POSITION}'])})"

    def _position(self, time: str) -> str:
        return f"named_struct('origin', '{self._uid}', 'block', {time}, 'row', {key_hash(self.layout.keys)})"

    def results(self, state: str, side: int) -> Mapping[str, str]:
        """Return SQL of results by name; ``state`` stands before the columns of groups."""
        layout = self.layout
        signed = layout.signed_stored(self._schema)
        found = {}
        for name, aggregate in layout.node.aggregates:
            if name in layout.counted_sql:
                value = f"{COUNTED_FOUND}_{side}.{quoted(layout.value_column(name))}"
                found[name] = layout.counted_sql[name].result.format(found=value)
            elif layout.sums_column(name) in signed:
                column = layout.sums_column(name)
                found[name] = signed[column].result(f"{state}{quoted(column)}")
            else:
                prefix = state if layout.merged else f"{KEPT_FOUND}_{side}."
                columns = {part.name: f"{prefix}{quoted(partial_column(name, part.name))}" for part in aggregate.partials}
                found[name] = aggregate.result.format(**columns)
        return found

    def overflows(self) -> Mapping[str, str]:
        """Return SQL of whether the value of an aggregate does not fit its type, by name, where the engine has to find that out."""
        signed, found = self.layout.signed_stored(self._schema), {}
        for name, _ in self.layout.signed:
            column = self.layout.sums_column(name)
            test = signed[column].overflows(quoted(column))
            if test is not None:
                found[name] = test
        return found

    @staticmethod
    def changes(pairs: DataFrame) -> DataFrame:
        """Return the changes of results."""
        return as_changes(changed(pairs.select(BEFORE, AFTER)))


def _with_steps(rows: DataFrame, steps: Sequence[Sequence[Mapping[str, str]]]) -> DataFrame:
    """Return rows with columns that are made in steps, each over those before it."""
    for number in range(max(map(len, steps), default=0)):
        made = {name: text for each in steps if number < len(each) for name, text in each[number].items()}
        rows = rows.select("*", *(F.expr(text).alias(name) for name, text in made.items()))
    return rows

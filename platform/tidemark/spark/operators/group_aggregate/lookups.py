"""The tables beside that of groups: values with the number of their rows, and the partial results of single rows.

Of both, only what belongs to groups that an epoch changes is read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql import types as T

from tidemark.spark.columns.changes import ADDS
from tidemark.spark.columns.expressions import quoted
from tidemark.spark.columns.schemas import ddl_of
from tidemark.spark.operators.changelog.contents import HASH, lookup_hash
from tidemark.spark.operators.group_aggregate.columns import NUMBER, SIDE, WEIGHT
from tidemark.spark.operators.group_aggregate.layout import GroupLayout
from tidemark.spark.operators.group_aggregate.passes import COUNTED_FOUND, KEPT_FOUND
from tidemark.spark.operators.keyed.key_table import union_of

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

NUMBER_BEFORE = "__tm_number_before"
ROW_BEFORE = "__tm_row_before"
ROW_AFTER = "__tm_row_after"


class CountedValues:
    """The frames of counted values.

    Args:
        layout: of the state.
        schema: all columns of state that users' columns make.
    """

    def __init__(self, layout: GroupLayout, schema: T.StructType) -> None:
        self._layout = layout
        self._schema = schema
        self._keys = list(map(quoted, layout.keys))
        self._columns = list(map(quoted, layout.values))

    def merged(self, weighted: DataFrame, stored: DataFrame | None) -> DataFrame:
        """Return the values of groups with the numbers of their rows before and after an epoch.

        Args:
            weighted: rows of input with keys and weights.
            stored: the values before the epoch, of the groups that the input changes.
        """
        names = [*self._keys, *self._columns]
        structs = [self._only(column) for column in self._layout.values]
        exploded = weighted.select(*self._layout.named_keys(), WEIGHT, F.explode(F.array(*structs)).alias("__tm_item"))
        delta = exploded.select(*map(F.col, self._keys), WEIGHT, "__tm_item.*").where(self._some)
        parts = [delta.selectExpr(*names, f"0L AS {NUMBER_BEFORE}", WEIGHT)]
        if stored is not None:
            parts.append(stored.selectExpr(*names, f"{NUMBER} AS {NUMBER_BEFORE}", f"0L AS {WEIGHT}"))
        grouped = (
            union_of(parts).groupBy(*names).agg(F.expr(f"sum({NUMBER_BEFORE}) AS {NUMBER_BEFORE}"), F.expr(f"sum({WEIGHT}) AS {WEIGHT}"))
        )
        return grouped.selectExpr(
            *names, NUMBER_BEFORE, f"{NUMBER_BEFORE} + {WEIGHT} AS {NUMBER}", f"{lookup_hash(self._layout.keys)} AS {HASH}"
        )

    @property
    def _some(self) -> str:
        return " OR ".join(f"{column} IS NOT NULL" for column in self._columns)

    def _only(self, wanted: str) -> Column:
        """Return a struct of all columns, of which one has its value, and the others are null."""
        values = {self._layout.value_column(name): sql.value for name, sql in self._layout.counted_sql.items()}
        kinds = {column: self._schema[column].dataType for column in values}
        fields = (
            (F.expr(values[column]) if column == wanted else F.lit(None)).cast(kinds[column]).alias(column)
            for column in self._layout.values
        )
        return F.struct(*fields)

    def found(self, merged: DataFrame) -> DataFrame:
        """Return the results of groups before and after the epoch, as structs."""
        sides = f"explode(array(named_struct('side', 0, 'number', {NUMBER_BEFORE}), named_struct('side', 1, 'number', {NUMBER})))"
        present = merged.select(*map(F.col, self._keys), *map(F.col, self._columns), F.expr(sides).alias("__tm_each"))
        rows = present.selectExpr(*self._keys, *self._columns, f"__tm_each.side AS {SIDE}", f"__tm_each.number AS {NUMBER}")
        over = {self._layout.value_column(name): sql.over_values for name, sql in self._layout.counted_sql.items()}
        results = (F.expr(text.format(value=quoted(column), number=NUMBER)).alias(column) for column, text in over.items())
        grouped = rows.where(f"{NUMBER} > 0").groupBy(*self._keys, SIDE).agg(*results)
        return _by_side(grouped, self._keys, self._columns, COUNTED_FOUND)

    def present(self, stored: DataFrame) -> DataFrame:
        """Return stored values as ``merged`` does, where nothing changes."""
        return stored.selectExpr(*self._keys, *self._columns, f"{NUMBER} AS {NUMBER_BEFORE}", NUMBER)


class KeptRows:
    """The frames of the partial results of single rows.

    Args:
        layout: of the state.
    """

    def __init__(self, layout: GroupLayout) -> None:
        self._layout = layout
        self._keys = list(map(quoted, layout.keys))
        self._row_keys = list(map(quoted, layout.row_keys))
        self._columns = list(map(quoted, layout.partials.columns))

    def merged(self, weighted: DataFrame, stored: DataFrame | None) -> DataFrame:
        """Return the rows of groups before and after an epoch, as structs of their partial results.

        Args:
            weighted: rows of input with keys and weights.
            stored: the rows before the epoch, of the groups that the input changes.
        """
        layout, identity = self._layout, [*self._keys, *self._row_keys]
        keys = [*layout.named_keys(), *layout.named_row_keys()]
        struct = f"struct({', '.join(self._columns)})"
        new = weighted.where(ADDS).groupBy(*keys).agg(*layout.partials.creations)
        parts = [
            new.selectExpr(*identity, f"{struct} AS {ROW_AFTER}", "true AS __tm_touched"),
            weighted.where(f"NOT ({ADDS})").select(*keys, F.lit(True).alias("__tm_touched")),
        ]
        if stored is not None:
            parts.append(stored.selectExpr(*identity, f"{struct} AS {ROW_BEFORE}", "false AS __tm_touched"))
        together = union_of(parts)
        if stored is None:
            kind = ddl_of(new.selectExpr(f"{struct} AS s").schema[0].dataType)
            together = together.selectExpr("*", f"CAST(NULL AS {kind}) AS {ROW_BEFORE}")
        picked = (F.expr(f"any_value({name}, true)").alias(name) for name in (ROW_BEFORE, ROW_AFTER))
        grouped = together.groupBy(*identity).agg(F.expr("max(__tm_touched)").alias("__tm_touched"), *picked)
        return grouped.selectExpr(
            *identity,
            ROW_BEFORE,
            f"if(__tm_touched, {ROW_AFTER}, {ROW_BEFORE}) AS {ROW_AFTER}",
            "__tm_touched",
            f"{lookup_hash(layout.keys)} AS {HASH}",
        )

    def found(self, merged: DataFrame) -> DataFrame:
        """Return the merged partial results of groups before and after the epoch, as structs."""
        sides = f"explode(array(named_struct('side', 0, 'row', {ROW_BEFORE}), named_struct('side', 1, 'row', {ROW_AFTER})))"
        present = merged.select(*map(F.col, self._keys), F.expr(sides).alias("__tm_each")).where("__tm_each.row IS NOT NULL")
        rows = present.selectExpr(*self._keys, f"__tm_each.side AS {SIDE}", "__tm_each.row.*")
        return _by_side(self._layout.partials.grouped(rows, SIDE), self._keys, self._columns, KEPT_FOUND)

    def present(self, stored: DataFrame) -> DataFrame:
        """Return stored rows as ``merged`` does, where nothing changes."""
        struct = f"struct({', '.join(self._columns)})"
        return stored.selectExpr(*self._keys, *self._row_keys, f"{struct} AS {ROW_BEFORE}", f"{struct} AS {ROW_AFTER}")

    def state_rows(self, merged: DataFrame) -> DataFrame:
        """Return the rows that changed, with their partial results; null where they are gone."""
        fields = (f"{ROW_AFTER}.{column} AS {column}" for column in self._columns)
        return merged.where("__tm_touched").selectExpr(*self._keys, *self._row_keys, *fields, f"{ROW_AFTER} IS NULL AS __tm_is_gone", HASH)


def _by_side(grouped: DataFrame, keys: list[str], columns: list[str], prefix: str) -> DataFrame:
    """Return one row per group, with a struct for each side."""
    struct = f"struct({', '.join(columns)})"
    sides = (F.expr(f"any_value(if({SIDE} = {side}, {struct}, NULL), true)").alias(f"{prefix}_{side}") for side in (0, 1))
    return grouped.groupBy(*keys).agg(*sides)

"""The rows of a changelog in the engine: their kinds, the net change of each key, and the history that a sink appends."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F
from pyspark.sql import types as T

from tidemark.graph.checks.output_columns import EPOCH, OPERATION
from tidemark.semantics.changelog.row_kinds import NAMES, RowKind
from tidemark.spark.columns.expressions import AS_JSON, CHANGE, quoted, visible_of
from tidemark.spark.columns.schemas import has_fixed_width, may_be_normalized

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

CHANGE_TYPE: Final = T.ByteType()
"""The type of the hidden column with the kind of a changelog's row; only rows of changelogs have it."""

BEFORE: Final = "__tm_before"
AFTER: Final = "__tm_after"
"""The rows of a key before and after an epoch, as structs; null where there is none."""

COUNT: Final = "__tm_count"
"""The number of rows that a pair was made of."""

ADDS: Final = f"{CHANGE} IN ({int(RowKind.INSERT)}, {int(RowKind.UPDATE_AFTER)})"
"""SQL of whether a row is there after the change."""

SIDE: Final = "__tm_changed"

WEIGHT: Final = f"if({ADDS}, 1, -1)"
"""SQL of the number by which a row changes a count."""


def paired(rows: DataFrame, keys: Sequence[str]) -> DataFrame:
    """Return a row for each key that has changes: the key, ``BEFORE`` and ``AFTER``, with all other columns of the rows, and ``COUNT``.

    Args:
        rows: of a changelog in one epoch, with at most one row of a key that is gone and one that is new.
        keys: the columns of its key.
    """
    names = [name for name in rows.columns if name != CHANGE]
    kinds = {field.name: field.dataType for field in rows.schema}
    if all(has_fixed_width(kinds[name]) for name in names if name not in keys):
        return _paired_values(rows, keys, names)
    whole = f"struct({', '.join(map(quoted, names))})"
    return rows.groupBy(*map(quoted, keys)).agg(
        F.expr(f"any_value(if({ADDS}, NULL, {whole}), true)").alias(BEFORE),
        F.expr(f"any_value(if({ADDS}, {whole}, NULL), true)").alias(AFTER),
        F.count(F.lit(1)).alias(COUNT),
    )


def _paired_values(rows: DataFrame, keys: Sequence[str], names: Sequence[str]) -> DataFrame:
    """Return the same, column by column: Spark hashes rows by their key where it would sort them to keep a struct."""
    values = [name for name in names if name not in keys or may_be_normalized(rows.schema[name].dataType)]
    sides = {BEFORE: f"NOT ({ADDS})", AFTER: ADDS}
    found = [
        F.expr(f"any_value(if({there}, {quoted(name)}, NULL), true)").alias(f"{side}_{number}")
        for side, there in sides.items()
        for number, name in enumerate(values)
    ]
    present = [F.expr(f"bool_or({there})").alias(side) for side, there in sides.items()]
    grouped = rows.groupBy(*map(quoted, keys)).agg(*found, *present, F.count(F.lit(1)).alias(COUNT))
    numbers = {name: number for number, name in enumerate(values)}

    def whole(side: str) -> str:
        fields = (f"{side}_{numbers[name]} AS {quoted(name)}" if name in numbers else quoted(name) for name in names)
        return f"if({side}, struct({', '.join(fields)}), NULL) AS {side}"

    return grouped.selectExpr(*map(quoted, keys), whole(BEFORE), whole(AFTER), COUNT)


def changed(pairs: DataFrame) -> DataFrame:
    """Return the pairs whose rows differ in a column that users see."""
    return pairs.where(differ(pairs))


def differ(pairs: DataFrame) -> str:
    """Return SQL of whether the rows of a pair differ in a column that users see, or only one is there."""
    return f"NOT ({same(pairs, BEFORE, AFTER)})"


def same(pairs: DataFrame, before: str, after: str) -> str:
    """Return SQL of whether two structs of a frame are equal, or both null, without regard to the engine's columns."""
    kind = pairs.schema[after].dataType
    if not isinstance(kind, T.StructType):
        raise TypeError(kind.simpleString())
    tests = [f"({before} IS NULL) = ({after} IS NULL)"]
    for field in kind:
        if visible_of([field.name]):
            values = [comparable(f"{struct}.{quoted(field.name)}", field.dataType) for struct in (before, after)]
            tests.append(f"{values[0]} <=> {values[1]}")
    return " AND ".join(tests)


def comparable(value: str, kind: T.DataType) -> str:
    """Return SQL of a value that Spark can compare: of maps, the text."""
    return f"to_json(struct({value}), {AS_JSON})" if "map<" in kind.simpleString() or "variant" in kind.simpleString() else value


def as_changes(pairs: DataFrame) -> DataFrame:
    """Return the rows of a changelog: for each pair one or two, with their kinds; nothing where both are null."""
    kind = pairs.schema[AFTER].dataType
    if not isinstance(kind, T.StructType):
        raise TypeError(kind.simpleString())
    sides, change = sides_of(f"{BEFORE} IS NOT NULL", f"{AFTER} IS NOT NULL")
    rows = pairs.select(BEFORE, AFTER, F.expr(sides).alias(SIDE))
    fields = (F.expr(f"if({SIDE} = 0, {BEFORE}.{quoted(name)}, {AFTER}.{quoted(name)})").alias(name) for name in kind.names)
    return rows.select(*fields, F.expr(change).alias(CHANGE))


def sides_of(had: str, has: str) -> tuple[str, str]:
    """Return SQL of the sides of a pair that are rows of changes, a row for each: 0 before and 1 after; and of the kind of a ``SIDE``.

    Args:
        had: SQL of whether there is a row before.
        has: SQL of whether there is one after.
    """
    gone = f"if({has}, {int(RowKind.UPDATE_BEFORE)}Y, {int(RowKind.DELETE)}Y)"
    new = f"if({had}, {int(RowKind.UPDATE_AFTER)}Y, {int(RowKind.INSERT)}Y)"
    # Numbers, not the rows themselves: Spark would copy each row into an array, and read columns that nothing needs.
    alone = f"WHEN NOT ({had}) THEN if({has}, array(1), array()) WHEN NOT ({has}) THEN array(0)"
    return f"explode(CASE {alone} ELSE array(0, 1) END)", f"if({SIDE} = 0, {gone}, {new})"


def net_changes(rows: DataFrame, keys: Sequence[str]) -> DataFrame:
    """Return the net changes of an epoch: at most one for each key, and none that changes nothing that users see."""
    return as_changes(changed(paired(rows, keys)))


def history(rows: DataFrame, epoch: Column) -> DataFrame:
    """Return what an appending sink writes of net changes: inserts, the row after an update, the row that was deleted.

    Args:
        rows: net changes.
        epoch: the current one, as BIGINT.
    """
    before = int(RowKind.UPDATE_BEFORE)
    names = f"CASE {CHANGE} WHEN {int(RowKind.INSERT)} THEN 'insert' WHEN {int(RowKind.DELETE)} THEN 'delete' ELSE 'update' END"
    kept = rows.where(f"{CHANGE} <> {before}")
    columns = [
        *(F.col(quoted(name)) for name in visible_of(rows.columns)),
        F.expr(names).alias(OPERATION),
        epoch.alias(EPOCH),
    ]
    return kept.select(*columns)


def kind_names() -> str:
    """Return SQL of the name of a row's kind."""
    cases = " ".join(f"WHEN {int(kind)} THEN '{name}'" for name, kind in NAMES.items())
    return f"CASE {CHANGE} {cases} END"

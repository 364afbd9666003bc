"""Which rows of an epoch are outdated or incomplete, and the values that rows leave unchanged, by window expressions over each key.

An incomplete row changes nothing: it also makes no other row outdated, in its epoch as in later ones, which never see it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F
from pyspark.sql import types as T

from tidemark.spark.columns.expressions import quoted
from tidemark.spark.columns.schemas import ddl_of

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

STORED: Final = "__tm_stored"
"""The row of the state: the row, its sequence, whether it deletes, whether it has expired."""

GIVEN: Final = "__tm_given"
"""A row of the input: the row, its sequence, whether it deletes, and the numbers of columns that it lacks."""

ORDER: Final = "__tm_order"
OUTDATED_ROW: Final = "__tm_is_outdated"
INCOMPLETE_ROW: Final = "__tm_is_incomplete"

_LIFE: Final = "__tm_life"
_WHOLE: Final = "__tm_whole"
_FLAGGED: Final = "__tm_flagged"
_MARKS: Final = "__tm_marks"
_NUMBER: Final = "__tm_number"

_LIVE: Final = f"{STORED} IS NOT NULL AND NOT {STORED}.expired AND NOT {STORED}.deleted"
_USED: Final = f"{GIVEN} IS NOT NULL AND NOT {OUTDATED_ROW} AND NOT {GIVEN}.deleted"


def with_outdated(fed: DataFrame, keys: Sequence[str], *, may_lack: bool) -> DataFrame:
    """Mark the rows with a lesser sequence than a row of their key that came before, and was not incomplete.

    Args:
        fed: rows of the input and of the state.
        keys: the columns of the key.
        may_lack: whether rows may leave columns unchanged.
    """
    known = f"if({STORED} IS NULL OR {STORED}.expired, NULL, struct({STORED}.sequence))"
    sequence = f"if({GIVEN} IS NULL, {known}, struct({GIVEN}.sequence))"
    greatest = f"max({sequence}) OVER ({_in_order(keys)} ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)"
    compared = fed.withColumn("__tm_greatest", F.expr(greatest))
    marked = f"{GIVEN} IS NOT NULL AND __tm_greatest IS NOT NULL AND struct({GIVEN}.sequence) < __tm_greatest"
    found = compared.withColumn(OUTDATED_ROW, F.expr(f"coalesce({marked}, false)")).drop("__tm_greatest")
    return _without_incomplete(found, keys) if may_lack else found


def _without_incomplete(fed: DataFrame, keys: Sequence[str]) -> DataFrame:
    """Mark outdated rows again, without the sequences of incomplete ones; only keys with incomplete rows can change.

    Up to a key's first incomplete row all marks are right, so a key without one has right ones. The rows of the others are gone through
    one by one: whether a row is incomplete follows from those before it, and what is outdated from these.
    """
    whole_frame = f"{_in_order(keys)} ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING"
    flagged = _with_incomplete(fed, keys).withColumn(_FLAGGED, F.expr(f"max({INCOMPLETE_ROW}) OVER ({whole_frame})"))
    event = (
        f"struct({GIVEN} IS NULL AS stored, if({GIVEN} IS NULL, {_LIVE}, NOT {GIVEN}.deleted) AS alive, "
        f"if({GIVEN} IS NULL, NOT coalesce({STORED}.expired, true), true) AS known, "
        f"if({GIVEN} IS NULL, struct({STORED}.sequence AS value), struct({GIVEN}.sequence AS value)) AS sequence, "
        f"coalesce(NOT {GIVEN}.deleted AND size({GIVEN}.lacks) > 0, false) AS lacks)"
    )
    numbered = flagged.withColumns(
        {
            _NUMBER: F.expr(f"row_number() OVER ({_in_order(keys)})"),
            _MARKS: F.expr(f"collect_list(if({_FLAGGED}, {event}, NULL)) OVER ({whole_frame})"),
        }
    )
    kind = f"STRUCT<value: {ddl_of(_sequence_type(fed))}>"
    outdated = "a.greatest IS NOT NULL AND e.sequence < a.greatest"
    unused = f"(coalesce({outdated}, false) OR (e.lacks AND NOT a.alive))"
    step = (
        f"struct(CASE WHEN e.stored OR NOT {unused} THEN e.alive ELSE a.alive END AS alive, "
        f"CASE WHEN e.stored THEN if(e.known, e.sequence, NULL) WHEN NOT {unused} THEN e.sequence ELSE a.greatest END AS greatest, "
        f"concat(a.marks, array(NOT e.stored AND coalesce({outdated}, false))) AS marks)"
    )
    start = f"struct(false AS alive, CAST(NULL AS {kind}) AS greatest, CAST(array() AS ARRAY<BOOLEAN>) AS marks)"
    marks = f"aggregate({_MARKS}, {start}, (a, e) -> {step}, a -> a.marks)"
    again = F.expr(f"if({_FLAGGED}, coalesce(try_element_at({marks}, {_NUMBER}), false), {OUTDATED_ROW})")
    return numbered.withColumn(OUTDATED_ROW, again).drop(INCOMPLETE_ROW, _FLAGGED, _NUMBER, _MARKS, _LIFE, _WHOLE)


def _with_incomplete(fed: DataFrame, keys: Sequence[str]) -> DataFrame:
    """Mark the rows that are incomplete.

    From the stored row, the first row, or a deletion on, a key has a life. A row is incomplete if it lacks a column and no row with all
    columns came before it in that life, so that all values are known.
    """
    deletes = f"{GIVEN} IS NOT NULL AND NOT {OUTDATED_ROW} AND {GIVEN}.deleted"
    lives = fed.withColumn(_LIFE, F.expr(f"sum(if({deletes}, 1, 0)) OVER ({_in_order(keys)} {_SO_FAR})"))
    whole = f"max(coalesce(({_LIVE}) OR ({_USED} AND size({GIVEN}.lacks) = 0), false)) {_within_life(keys)}"
    known = lives.withColumn(_WHOLE, F.expr(whole))
    return known.withColumn(INCOMPLETE_ROW, F.expr(f"coalesce({_USED} AND size({GIVEN}.lacks) > 0 AND NOT {_WHOLE}, false)"))


def with_unchanged(fed: DataFrame, keys: Sequence[str], names: Sequence[str]) -> DataFrame:
    """Return rows with the values that they leave unchanged, and mark those that are incomplete.

    In a life of a key, each of its columns is that of the last row with a value of it.
    """
    lacks = [f"array_contains({GIVEN}.lacks, {number})" for number in range(len(names))]
    marked = _with_incomplete(fed, keys)
    last: dict[str, Column] = {
        f"__tm_last_{number}": F.expr(
            f"last_value(CASE WHEN {_LIVE} THEN struct({STORED}.row.{quoted(name)} AS value) "
            f"WHEN {_USED} AND NOT {lacks[number]} THEN struct({GIVEN}.row.{quoted(name)} AS value) END, true) {_within_life(keys)}"
        )
        for number, name in enumerate(names)
    }
    known = marked.withColumns(last)
    # Fields that are replaced one after the other would make an expression that doubles with each.
    numbers = {name.lower(): number for number, name in enumerate(names)}
    values = {}
    for name in row_fields(fed):
        value, number = f"{GIVEN}.row.{quoted(name)}", numbers.get(name.lower())
        values[name] = value if number is None else f"if({lacks[number]}, __tm_last_{number}.value, {value})"
    row = ", ".join(f"{value} AS {quoted(name)}" for name, value in values.items())
    filled = F.expr(f"struct(struct({row}) AS row, {GIVEN}.sequence AS sequence, {GIVEN}.deleted AS deleted, {GIVEN}.lacks AS lacks)")
    used = F.expr(f"coalesce({_USED} AND NOT {INCOMPLETE_ROW}, false)")
    return known.withColumn(GIVEN, F.when(used, filled).otherwise(F.col(GIVEN))).drop(_LIFE, _WHOLE, *last)


_SO_FAR: Final = "ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW"


def _in_order(keys: Sequence[str]) -> str:
    """Return SQL of the rows of a key in their order, the stored one first."""
    return f"PARTITION BY {', '.join(keys)} ORDER BY {STORED} IS NULL, {ORDER}"


def _within_life(keys: Sequence[str]) -> str:
    return f"OVER (PARTITION BY {', '.join(keys)}, {_LIFE} ORDER BY {STORED} IS NULL, {ORDER} {_SO_FAR})"


def row_fields(frame: DataFrame) -> list[str]:
    """Return the names of the columns of given rows."""
    row = _given_type(frame)["row"].dataType
    if not isinstance(row, T.StructType):
        raise TypeError(row.simpleString())
    return row.names


def _sequence_type(frame: DataFrame) -> T.DataType:
    return _given_type(frame)["sequence"].dataType


def _given_type(frame: DataFrame) -> T.StructType:
    found = frame.schema[GIVEN].dataType
    if not isinstance(found, T.StructType):
        raise TypeError(found.simpleString())
    return found

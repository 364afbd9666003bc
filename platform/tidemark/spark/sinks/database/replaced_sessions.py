"""The sessions that an upsert's newest rows replace: their rows have other keys, and are deleted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F

from tidemark.graph.checks.upsert_keys import END, START
from tidemark.spark.sinks.delta.delta_changes import DELETED
from tidemark.spark.sinks.delta.delta_upsert import Newest

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_BOUNDS: Final = "__tm_bounds"


def with_replaced_sessions(newest: Newest) -> DataFrame:
    """Return the newest rows of an upsert, and apart the keys of the sessions that they replace: with other bounds, to be deleted."""
    rows = newest.rows
    entries = newest.upsert.replaced_by(rows.schema)
    if entries is None:
        return rows.withColumn(DELETED, F.lit(False))
    has_end = END in newest.upsert.keys
    own = f"named_struct('s', {START}, 'e', {END if has_end else START}, 'd', false)"
    other = f"NOT (x.{START} <=> {START}{f' AND x.{END} <=> {END}' if has_end else ''})"
    replaced = (
        f"transform(filter({entries}, x -> {other}), x -> named_struct('s', x.{START}, 'e', x.{END if has_end else START}, 'd', true))"
    )
    exploded = rows.withColumn(_BOUNDS, F.explode(F.expr(f"concat(array({own}), coalesce({replaced}, array()))")))
    changed = exploded.withColumn(START, F.col(f"{_BOUNDS}.s")).withColumn(DELETED, F.col(f"{_BOUNDS}.d"))
    if has_end:
        changed = changed.withColumn(END, F.col(f"{_BOUNDS}.e"))
    return changed.drop(_BOUNDS)

"""The groups that are stored, with their results."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql import types as T

from tidemark.semantics.keyed_process.declarations import StateTtl
from tidemark.spark.columns.expressions import quoted
from tidemark.spark.operators.base.contract import OperatorContext
from tidemark.spark.operators.group_aggregate.columns import ROWS
from tidemark.spark.operators.group_aggregate.layout import GroupLayout
from tidemark.spark.operators.group_aggregate.lookups import CountedValues, KeptRows
from tidemark.spark.operators.group_aggregate.passes import GroupPasses
from tidemark.spark.operators.group_aggregate.state import GroupState, effective_due
from tidemark.spark.operators.keyed.key_table import union_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def live_groups(layout: GroupLayout, schema: T.StructType, state: GroupState, expired: str) -> DataFrame:
    """Return keys and results of the groups that have rows.

    Args:
        layout: of the state.
        schema: its columns.
        state: the tables.
        expired: SQL of whether a group has expired.
    """
    names = [*map(quoted, layout.group_columns), ROWS]
    keys = list(map(quoted, layout.keys))
    struct = f"struct({', '.join(names)})"
    parts = [state.groups.current().where(f"NOT ({expired}) AND {ROWS} > 0").selectExpr(*keys, f"{struct} AS __tm_group")]
    if state.values is not None:
        values = CountedValues(layout, schema)
        parts.append(values.found(values.present(state.values.current())))
    if state.kept is not None:
        kept = KeptRows(layout)
        parts.append(kept.found(kept.present(state.kept.current())))
    together = union_of(parts)
    picked = (F.expr(f"any_value({name}, true)").alias(name) for name in together.columns if name not in layout.keys)
    groups = together.groupBy(*keys).agg(*picked).where("__tm_group IS NOT NULL")
    results = GroupPasses(layout, schema, "").results("__tm_group.", 1)
    return groups.selectExpr(*layout.visible_keys(), *(f"{text} AS {quoted(name)}" for name, text in results.items()))


def expired_at(ttl: StateTtl | None, context: OperatorContext, first: int) -> str:
    """Return SQL of whether a group has expired before an epoch; ``first`` is the first time that there was, as of ``effective_due``."""
    if ttl is None:
        return "false"
    clock = context.before.watermark if ttl.domain == "event" else context.processing_time
    return f"coalesce({effective_due(ttl, first)} <= {clock}L, false)"

"""The state of a process function as tables: a row per key, and a row per timer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as F
from pyspark.sql import types as T

from tidemark.graph.operators.keyed_process.node import KeyedProcessNode
from tidemark.graph.operators.keyed_process.state_columns import renewed_column
from tidemark.semantics.watermarks.watermarks import MIN_WATERMARK
from tidemark.spark.columns.expressions import quoted
from tidemark.spark.columns.schemas import no_rows
from tidemark.spark.operators.base.contract import OperatorContext
from tidemark.spark.operators.keyed.columns import EPOCH, STATE
from tidemark.spark.operators.keyed_process.columns import EVENT_TIMERS, PROCESSING_TIMERS
from tidemark.spark.operators.keyed_process.layout import keys_of_node, state_fields
from tidemark.spark.prepared.runtime_literals import literal

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_TIMERS = T.StructType().add("domain", "string").add("due", "timestamp").add("name", "string")

# From year 1 to 9999, as Python's: a timer may wait for the end of time.
_DUE = "CASE WHEN timer.time BETWEEN -62135596800000L AND 253402300799999L THEN timestamp_millis(timer.time) END"


def stored_keys(rows: DataFrame | None, node: KeyedProcessNode, columns: Mapping[str, str], context: OperatorContext) -> DataFrame:
    """Return a row per key: its values, those of each state, and the time of its next timer of either domain.

    Args:
        rows: all versions of keys; None where nothing was ever written, so that the types of keys are not known.
        node: the operator.
        columns: names of states by the columns of their values.
        context: of the epoch.
    """
    if rows is None:
        types = {field.name: field.dataType for field in state_fields(node)}
        fields = [T.StructField(name, T.StringType()) for name, _ in node.keys]
        fields += [T.StructField(name, types[stored]) for stored, name in columns.items()]
        return no_rows(context.spark, T.StructType(fields))
    states = [_live(stored, name, node, context) for stored, name in columns.items()]
    return _newest(rows, node).select(*_keys(node), *states)


def stored_timers(rows: DataFrame | None, node: KeyedProcessNode, context: OperatorContext) -> DataFrame:
    """Return a row per timer: its key, domain, the time when it is due, and its name. The time is null where no timestamp has it."""
    if rows is None:
        return no_rows(context.spark, T.StructType([*(T.StructField(name, T.StringType()) for name, _ in node.keys), *_TIMERS]))
    newest = _newest(rows, node)
    found = []
    for domain, stored in (("event", EVENT_TIMERS), ("processing", PROCESSING_TIMERS)):
        timers = newest.select(*_keys(node), F.explode(stored).alias("timer"))
        names = [quoted(name) for name, _ in node.keys]
        found.append(timers.selectExpr(*names, f"'{domain}' AS domain", f"{_DUE} AS due", "timer.name AS name"))
    return found[0].union(found[1])


def _newest(rows: DataFrame, node: KeyedProcessNode) -> DataFrame:
    keys = [F.col(quoted(key)) for key in keys_of_node(node).values()]
    newest = Window.partitionBy(*keys).orderBy(F.col(EPOCH).desc())
    numbered = rows.withColumn("__tm_nth", F.row_number().over(newest))
    return numbered.where(f"__tm_nth = 1 AND {STATE} IS NOT NULL").drop("__tm_nth")


def _keys(node: KeyedProcessNode) -> list[Column]:
    return [F.col(quoted(stored)).alias(name) for name, stored in keys_of_node(node).items()]


def _live(stored: str, name: str, node: KeyedProcessNode, context: OperatorContext) -> Column:
    """Return the values of a state that have not expired, null where there are none."""
    descriptor = dict(node.states)[name]
    value, ttl = quoted(stored), descriptor.ttl
    if ttl is None:
        return F.col(value).alias(name)
    now = context.before.watermark if ttl.domain == "event" else context.processing_time
    renewed, since, none = quoted(renewed_column(name)), now - ttl.ms, literal(MIN_WATERMARK)
    if descriptor.kind == "list":
        live = f"filter({value}, (item, nth) -> coalesce(nullif({renewed}[nth], {none}), {now}) > {since})"
    elif descriptor.kind == "map":
        live = f"map_filter({value}, (key, item) -> coalesce(nullif({renewed}[key], {none}), {now}) > {since})"
    else:
        live = f"if(coalesce(nullif({renewed}, {none}), {now}) > {since}, {value}, NULL)"
    if descriptor.kind in ("list", "map"):
        # As where a task has dropped the last entry.
        live = f"if(size({live}) > 0, {live}, NULL)"
    return F.expr(live).alias(name)

"""Runs aggregates through a window operator's own step: partials per key and epoch, stored, merged in any tree, stored, merged, result."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import Observation
from pyspark.sql import functions as F

from tidemark.graph.model.aggregates import Aggregate
from tidemark.graph.operators.window.node import WindowNode
from tidemark.semantics.watermarks.watermarks import MIN_WATERMARK
from tidemark.semantics.windows.assigners import Tumbling
from tidemark.spark.columns.expressions import POSITION, TIME
from tidemark.spark.operators.aligned.pre_aggregation import Thresholds
from tidemark.spark.operators.aligned.tumbling import TumblingRuntime

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, Row

ALL_TIMES = Tumbling(2 * 10**12, -(10**12))
"""One window that every row of these tests lies in."""

NODE = "key_node"
"""The state's column of a second key beside the case: which partial a row belongs to."""


def run(rows: DataFrame, aggregates: Mapping[str, Aggregate], folder: Path, *, seed: int, rounds: int = 2) -> DataFrame:
    """Return one row per case, a column per aggregate.

    Args:
        rows: with ``case``, ``epoch``, and the time ``at`` and position ``pos`` that order them.
        aggregates: by result column.
        folder: where partials are stored between the steps; new.
        seed: decides which partials are merged in each round.
        rounds: compactions before the final merge.
    """
    for aggregate in aggregates.values():
        for function in aggregate.functions:
            rows.sparkSession.udf.register(function.name, function.function, function.returns)
    runtime = step_of(aggregates)
    state = _stored(created(rows, runtime), folder / "0")
    for number in range(1, rounds + 1):
        # Some stay alone, which merges one partial with nothing; the others meet in two groups.
        meets = f"pmod(hash({NODE}, {seed}), 2)"
        node = F.expr(f"CASE WHEN pmod(hash(key_case, {NODE}, {seed + number}), 3) = 0 THEN {NODE} + 1000 ELSE {meets} END")
        state = _stored(_merged(runtime, state, node), folder / str(number))
    final = _merged(runtime, state, F.lit(0))
    return runtime.results(final, MIN_WATERMARK, Observation()).select("case", *aggregates)


def step_of(aggregates: Mapping[str, Aggregate]) -> TumblingRuntime:
    """Return the step of an operator with these aggregates, keyed by the case and by what tells partials apart."""
    keys = (("case", "case"), ("node", "epoch"))
    return TumblingRuntime(WindowNode(inputs=(), uid="rig", keys=keys, assigner=ALL_TIMES, aggregates=tuple(aggregates.items())))


def created(rows: DataFrame, runtime: TumblingRuntime) -> DataFrame:
    """Return the partials that a step makes of rows, when nothing is late; nothing runs yet."""
    timed = rows.withColumns({TIME: F.col("at").cast("bigint"), POSITION: F.col("pos")})
    return runtime.pre_aggregate(timed, Thresholds(MIN_WATERMARK, MIN_WATERMARK), Observation())


def results(frame: DataFrame) -> dict[int, Row]:
    """Return rows by case."""
    return {row["case"]: row for row in frame.collect()}


def _merged(runtime: TumblingRuntime, state: DataFrame, node: Column) -> DataFrame:
    """Return the partials that are given the same node, merged."""
    return runtime.merge(state.withColumn(NODE, node.cast(state.schema[NODE].dataType)))


def _stored(state: DataFrame, folder: Path) -> DataFrame:
    state.write.parquet(str(folder))
    return state.sparkSession.read.schema(state.schema).parquet(str(folder))

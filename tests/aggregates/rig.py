"""Runs aggregates as a window operator does: partials per key and epoch, stored, merged in any tree, stored again, merged, result."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from tests.aggregates.streams import ORDER
from tidemark.graph.aggregates import Aggregate

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, Row


def run(rows: DataFrame, aggregates: Mapping[str, Aggregate], folder: Path, *, seed: int, rounds: int = 2) -> DataFrame:
    """Return one row per case, a column per aggregate.

    Args:
        rows: with ``case`` and ``epoch``.
        aggregates: by result column.
        folder: where partials are stored between the steps; new.
        seed: decides which partials are merged in each round.
        rounds: compactions before the final merge.
    """
    for aggregate in aggregates.values():
        for function in aggregate.functions:
            rows.sparkSession.udf.register(function.name, function.function, function.returns)
    state = _stored(rows.groupBy("case", F.col("epoch").alias("node")).agg(*_creations(aggregates)), folder / "0")
    for number in range(1, rounds + 1):
        # Some stay alone, which merges one partial with nothing; the others meet in two groups.
        node = F.expr(f"CASE WHEN pmod(hash(case, node, {seed + number}), 3) = 0 THEN node + 1000 ELSE pmod(hash(node, {seed}), 2) END")
        merged = state.withColumn("node", node).groupBy("case", "node").agg(*_merges(aggregates, state))
        state = _stored(merged, folder / str(number))
    final = state.groupBy("case").agg(*_merges(aggregates, state))
    results = [F.expr(_filled(aggregate.result, name, aggregate)).alias(name) for name, aggregate in aggregates.items()]
    return final.select("case", *results)


def results(frame: DataFrame) -> dict[int, Row]:
    """Return rows by case."""
    return {row["case"]: row for row in frame.collect()}


def _creations(aggregates: Mapping[str, Aggregate]) -> list[Column]:
    return [
        F.expr(partial.create.format(order=ORDER)).alias(f"{name}__{partial.name}")
        for name, aggregate in aggregates.items()
        for partial in aggregate.partials
    ]


def _merges(aggregates: Mapping[str, Aggregate], state: DataFrame) -> list[Column]:
    return [
        F.expr(_filled(partial.merge, name, aggregate))
        .cast(state.schema[f"{name}__{partial.name}"].dataType)
        .alias(f"{name}__{partial.name}")
        for name, aggregate in aggregates.items()
        for partial in aggregate.partials
    ]


def _filled(template: str, name: str, aggregate: Aggregate) -> str:
    return template.format(**{partial.name: f"`{name}__{partial.name}`" for partial in aggregate.partials})


def _stored(state: DataFrame, folder: Path) -> DataFrame:
    state.write.parquet(str(folder))
    return state.sparkSession.read.parquet(str(folder))

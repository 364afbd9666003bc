"""Names that SQL has to have in quotes, of aggregates and of the fields of structs that a result has null."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import tidemark as tm
from tests.engine.lab import Lab, elements

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

GIVEN = [(1, "a", 1), (2, "b", 2)], [(3, "a", 5)]


def named(name: str, aggregate: Any) -> dict[str, Any]:
    return {name: aggregate}


def test_aggregates_of_a_key(spark: SparkSession, tmp_path: Path) -> None:
    rows = elements(*GIVEN, schema="t BIGINT, k STRING, v INT")
    added = rows.key_by("k").aggregate(**named("the sum", tm.sum("v"))).uid("added")
    newest = rows.latest(by=["k"]).uid("newest")
    listed = newest.key_by(all="1").aggregate(**named("all values", tm.collect_list("v"))).uid("listed")
    ran = Lab(spark, tmp_path).run({"added": added, "listed": listed})
    assert ran.of("added", "epoch", "k", "the sum") == [(0, "a", 1), (0, "b", 2), (1, "a", 6)]
    assert [(epoch, sorted(values)) for epoch, values in ran.of("listed", "epoch", "all values")] == [(0, [1, 2]), (1, [2, 5])]


def test_a_struct_of_the_side_that_an_outer_row_lacks(spark: SparkSession, tmp_path: Path) -> None:
    left = elements(*GIVEN, schema="t BIGINT, k STRING, v INT")
    right = left.filter("k = 'b'").select("k", u="t", pair="named_struct('the value', v)")
    joined = left.join(right, on="k", how="left", within=("0 ms", "1 ms")).uid("joined")
    ran = Lab(spark, tmp_path).run({"joined": joined})
    assert ran.of("joined", "k", "v", "pair") == [("a", 1, None), ("a", 5, None), ("b", 2, {"the value": 2})]

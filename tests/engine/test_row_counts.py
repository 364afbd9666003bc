"""Counts that a kept plan observed, and the exact ones that replace them where Spark ran a task twice."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import tidemark as tm
from tidemark.graph.model.nodes import SourceNode
from tidemark.spark.columns.expressions import ROW_STATUS, SPLIT, TIME
from tidemark.spark.columns.row_counts import MALFORMED, PASSING, RowCounter

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

TIMES = tm.ascending(timestamp="t", split_by="site")


@pytest.mark.parametrize(("known", "unknown"), [((), 4), (("north", "south"), 1)])
def test_a_recount_has_the_splits_that_were_observed(spark: SparkSession, known: tuple[str, ...], unknown: int) -> None:
    source = tm.source("rows", tm.files("landing", format="parquet", schema="site STRING, t BIGINT"), watermarks=TIMES).node
    assert isinstance(source, SourceNode)
    found = [("north", PASSING, 900), ("south", PASSING, 100), ("south", PASSING, 70), ("south", MALFORMED, None), ("west", PASSING, 5)]
    rows = spark.createDataFrame(found, f"{SPLIT} STRING, {ROW_STATUS} INT, {TIME} BIGINT")
    observed = RowCounter([MALFORMED], source, known)
    observed.attach(rows).collect()
    counter = RowCounter([MALFORMED], source, known)
    counter.set_counts(observed.observation.get)
    assert counter.counts() == observed.counts()
    assert counter.recount(rows) == observed.counts()
    assert observed.counts().unknown_splits == unknown

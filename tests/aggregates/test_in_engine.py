"""Aggregates in a job of three epochs: partials stored and merged by the engine, Python functions registered by it."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import tidemark as tm
from tests.engine.lab import MINUTE, Lab, elements

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tidemark.graph.model.aggregates import Aggregate

pytestmark = pytest.mark.spark


def longest(limit: int) -> Aggregate:
    """Return an aggregate that lists words of at most so many letters, the longest first."""
    return tm.python_aggregate(
        list[str],
        lambda words, word: [*words, word] if word and len(word) <= limit else words,
        lambda left, right: [*left, *right],
        lambda words: sorted(words, key=lambda word: (-len(word), word)),
        arguments=["word"],
        state="ARRAY<STRING>",
        returns="ARRAY<STRING>",
    )


def test_partials_of_several_epochs_make_one_result(spark: SparkSession, tmp_path: Path) -> None:
    stream = elements(
        [("k", 5, "ccc", Decimal("1.10")), ("k", 2, "bb", Decimal("2.20"))],
        [("k", 1, "aaaa", None), ("k", 5, "d", Decimal("2.20"))],
        [("k", 9, None, Decimal("4.05")), ("k", MINUTE, "next", Decimal("9.99"))],
        schema="key STRING, t BIGINT, word STRING, price DECIMAL(10, 2)",
        watermarks=tm.bounded_out_of_orderness("1 hour", timestamp="t"),
    )
    windowed = (
        stream.key_by("key")
        .window(tm.tumbling("1 minute"))
        .aggregate(
            total=tm.sum("price"),
            mean=tm.avg("price"),
            first=tm.first("word"),
            last=tm.last("word", ignore_nulls=True),
            words=tm.collect_list("word"),
            dearest=tm.top_k("word", 2, by="price"),
            middle=tm.approx_percentile("price", [0.5]),
            short=longest(3),
            any_length=longest(9),
        )
        .uid("words")
    )
    ran = Lab(spark, tmp_path).run({"words": windowed})
    row = next(row for row in ran.rows["words"] if row["window_start"].minute == 0)
    assert (row["total"], row["mean"]) == (Decimal("9.55"), Decimal("2.387500"))
    assert str(row["mean"]) == "2.387500", "of Spark's own type, DECIMAL(14, 6)"
    assert (row["first"], row["last"]) == ("aaaa", "d")
    # Of equal times the element that was read first comes first.
    assert row["words"] == ["aaaa", "bb", "ccc", "d"]
    assert row["dearest"] == [None, "d"]
    assert row["middle"] == [pytest.approx(2.2, rel=0.01)]
    assert row["short"] == ["ccc", "bb", "d"]
    assert row["any_length"] == ["aaaa", "ccc", "bb", "d"]

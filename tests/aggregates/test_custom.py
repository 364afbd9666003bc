"""Aggregates of the user's own, in SQL and in Python, run over epochs and merges."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import tidemark as tm
from tests.aggregates.rig import results, run
from tests.aggregates.streams import Row, frame, random_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def add_word(state: dict[str, object], word: str | None, number: int | None) -> dict[str, object]:
    """Count words, and keep the sum of the numbers that came with each."""
    words: Mapping[str, dict[str, int]] = state["words"]  # type: ignore[assignment]
    if word is None:
        return {**state, "nulls": int(str(state["nulls"])) + 1}
    before = words.get(word, {"n": 0, "total": 0})
    return {**state, "words": {**words, word: {"n": before["n"] + 1, "total": before["total"] + (number or 0)}}}


def merge_words(left: dict[str, object], right: dict[str, object]) -> dict[str, object]:
    """Add up the counts of both."""
    ours: Mapping[str, dict[str, int]] = left["words"]  # type: ignore[assignment]
    theirs: Mapping[str, dict[str, int]] = right["words"]  # type: ignore[assignment]
    none = {"n": 0, "total": 0}
    words = {word: {field: ours.get(word, none)[field] + theirs.get(word, none)[field] for field in none} for word in {**ours, **theirs}}
    return {"nulls": int(str(left["nulls"])) + int(str(right["nulls"])), "words": words}


def show_words(state: dict[str, object]) -> str:
    """Return a state as text."""
    words: Mapping[str, dict[str, int]] = state["words"]  # type: ignore[assignment]
    return f"{state['nulls']} {sorted((word, n['n'], n['total']) for word, n in words.items())}"


def listed(items: list[int | None], item: int | None) -> list[int | None]:
    """Append."""
    return [*items, item]


def no_words() -> dict[str, object]:
    """Return the state of nothing."""
    return {"nulls": 0, "words": {}}


WORDS = tm.python_aggregate(
    no_words,
    add_word,
    merge_words,
    show_words,
    arguments=["s", "by"],
    state="nulls BIGINT, words MAP<STRING, STRUCT<n: BIGINT, total: BIGINT>>",
    returns="STRING",
)
LISTED = tm.python_aggregate(
    list[int | None],
    listed,
    lambda left, right: [*left, *right],
    lambda items: items,
    arguments=["i"],
    state="ARRAY<INT>",
    returns="ARRAY<INT>",
)
WEIGHTED = tm.sql_aggregate(
    partials={
        "weight": ("sum(by)", "sum({weight}) -- of all"),
        "total": ("sum(by * near)", "sum({total})"),
        "newest": ("max_by(named_struct('order', {order}, 's', s), {order})", "max_by({newest}, {newest}.order)"),
    },
    result="named_struct('mean', {total} / nullif({weight}, 0), 'newest', {newest}.s)",
)


def streams(rows: list[Row]) -> dict[int, list[Row]]:
    """Return rows by stream, in order of event time and position."""
    found: dict[int, list[Row]] = {}
    for row in sorted(rows, key=lambda row: (row.case, row.at, row.pos)):
        found.setdefault(row.case, []).append(row)
    return found


def meant_words(stream: list[Row]) -> str:
    words = {word: [row.by or 0 for row in stream if row.s == word] for word in {row.s for row in stream} - {None}}
    return f"{sum(row.s is None for row in stream)} {sorted((word, len(found), sum(found)) for word, found in words.items())}"


@pytest.mark.parametrize("arrow", ["false", "true"])
def test_python_state_of_structs_and_maps(spark: SparkSession, tmp_path: Path, arrow: str) -> None:
    rows = random_rows(12, seed=3)
    before = spark.conf.get("spark.sql.execution.pythonUDF.arrow.enabled")
    spark.conf.set("spark.sql.execution.pythonUDF.arrow.enabled", arrow)
    try:
        got = results(run(frame(spark, rows, seed=4, most_epochs=5), {"words": WORDS}, tmp_path, seed=4))
    finally:
        spark.conf.set("spark.sql.execution.pythonUDF.arrow.enabled", str(before))
    assert {case: row["words"] for case, row in got.items()} == {case: meant_words(stream) for case, stream in streams(rows).items()}


def test_python_sees_an_epoch_in_order_and_sql_the_order(spark: SparkSession, tmp_path: Path) -> None:
    rows = random_rows(12, seed=5)
    got = results(run(frame(spark, rows, seed=6, most_epochs=1), {"listed": LISTED, "weighted": WEIGHTED}, tmp_path, seed=6, rounds=0))
    for case, stream in streams(rows).items():
        assert got[case]["listed"] == [row.i for row in stream]
        assert got[case]["weighted"]["newest"] == stream[-1].s
        weight = sum(row.by for row in stream if row.by is not None)
        pairs = [(row.by, row.near) for row in stream if row.by is not None and row.near is not None]
        mean = sum(by * near for by, near in pairs) / weight if weight and pairs else None
        assert got[case]["weighted"]["mean"] == (None if mean is None else pytest.approx(mean, rel=1e-12))

"""Rows that a filter rejects, read by operators while nothing reads those that pass: every row is counted all the same."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import tidemark as tm
from tests.engine.lab import Lab, elements
from tidemark.state.log.progress import FilterProgress

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

FEW = tm.OutputTag("few")
SCHEMA = "k STRING, t BIGINT, v BIGINT"
EPOCHS: list[list[tuple[object, ...]]] = [
    [("a", 1, 1), ("b", 5, 20), ("a", 7, 30), ("b", 12, 40)],
    [("a", 13, 2), ("b", 25, 50), ("c", None, 1)],
]

OPERATORS: dict[str, Callable[[tm.KeyedStream], tm.Stream]] = {
    "tumbling": lambda keyed: keyed.window(tm.tumbling("10 ms")).aggregate(v=tm.sum("v")),
    "sliding": lambda keyed: keyed.window(tm.sliding("10 ms", "10 ms")).aggregate(v=tm.sum("v")),
    "session": lambda keyed: keyed.window(tm.session("3 ms")).aggregate(v=tm.sum("v")),
    "count": lambda keyed: keyed.window(tm.count_window(1)).aggregate(v=tm.sum("v")),
    "process": lambda keyed: keyed.window(tm.tumbling("10 ms")).process(
        lambda rows, _: [{"v": row["v"]} for row in rows], returns="v BIGINT"
    ),
    "deduplicate": lambda keyed: keyed.deduplicate(within="3 ms"),
}


@pytest.fixture
def lab(spark: SparkSession, tmp_path: Path) -> Lab:
    return Lab(spark, tmp_path)


def test_a_filter_whose_rejected_rows_alone_are_read_is_counted(lab: Lab) -> None:
    streams = {}
    for kind, operator in OPERATORS.items():
        few = tm.OutputTag(f"few-{kind}")
        kept = elements(*EPOCHS, schema=SCHEMA, name=kind).filter("v < 45").uid(f"less-{kind}").filter("v > 10", rejects_to=few)
        streams[kind] = operator(kept.side_output(few).key_by("k")).uid(f"w-{kind}")
    ran = lab.run(streams)
    for kind in OPERATORS:
        assert ran.of(kind, "v") == [1, 2], kind
        assert [(epoch.filters[f"less-{kind}"], epoch.filters[f"few-{kind}"]) for epoch in ran.epochs[:2]] == [
            (FilterProgress(4, 4, 0), FilterProgress(4, 3, 1, f"few-{kind}")),
            (FilterProgress(2, 1, 1), FilterProgress(1, 0, 1, f"few-{kind}")),
        ], kind
        assert [epoch.sources[kind].rows_malformed for epoch in ran.epochs[:2]] == [0, 1], kind
    assert ran.epochs[1].watermark == 24


def test_a_union_of_rejected_rows_alone_is_counted(lab: Lab) -> None:
    kept = elements(*EPOCHS, schema=SCHEMA).filter("v > 10", rejects_to=FEW)
    other = elements([("d", 3, 7)], schema=SCHEMA, name="f")
    ran = lab.run({"rows": kept.side_output(FEW).union(other)}, end_of_input=False)
    assert ran.of("rows", "v") == [1, 2, 7]
    assert [epoch.filters["few"] for epoch in ran.epochs[:2]] == [FilterProgress(4, 3, 1, "few"), FilterProgress(2, 1, 1, "few")]

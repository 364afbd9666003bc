"""Watermarks that are made by expressions over elements: they see the source's own columns, whatever follows it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import tidemark as tm
from tests.engine.lab import Lab, elements
from tidemark.semantics.watermarks.watermarks import SplitStats

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

HOUR = 3_600_000
SCHEMA = "k STRING, t BIGINT, mark BIGINT, v INT"
EPOCHS = [
    [("a", 1, None, 1), ("b", 2, 7, -1)],
    [("a", HOUR, HOUR + 5, -1), ("a", 5, None, 2)],
    [("b", HOUR + 6, None, 3), ("b", HOUR + 1, 9, 4)],
]


@dataclass(frozen=True)
class LeastOfEpoch:
    """The least mark of an epoch's elements, less the bound."""

    bound_ms: int = 2

    @property
    def metrics(self) -> Mapping[str, str]:
        return {"least": "min(mark)"}

    def watermark(self, stats: SplitStats) -> int | None:
        least = stats.metrics["least"]
        return None if least is None else least - self.bound_ms


@pytest.mark.parametrize("by_user", [False, True])
def test_marks_behind_select_with_columns_and_filter(spark: SparkSession, tmp_path: Path, *, by_user: bool) -> None:
    strategy = tm.watermark_strategy(LeastOfEpoch(), timestamp="t") if by_user else tm.punctuated("mark", timestamp="t")
    rejected = tm.OutputTag("rejected")

    def panes(name: str, stream: tm.Stream) -> tm.Stream:
        return stream.window_all(tm.tumbling("1 hour")).aggregate(n=tm.count()).uid(name)

    sources = [elements(*EPOCHS, schema=SCHEMA, name=name, watermarks=strategy) for name in ("chosen", "renewed", "filtered", "shared")]
    chosen, renewed, filtered, shared = sources
    passed = filtered.filter("v > 0", rejects_to=rejected)
    kept = passed.with_columns(mark="mark + 1000000000 * v").select("k", "mark")
    streams = {
        "chosen": panes("c", chosen.select("k")),
        "renewed": panes("r", renewed.with_columns(mark="CAST(0 AS BIGINT)")),
        "filtered": panes("f", kept),
        "rejected": passed.side_output(rejected),
        "shared": panes("s", shared.with_columns(mark="-mark")),
        "as_it_is": shared,
    }
    ran = Lab(spark, tmp_path).run(streams, end_of_input=False)
    marks = [5, HOUR + 3, HOUR + 3] if by_user else [7, HOUR + 5, HOUR + 5]
    for source in ("chosen", "renewed", "filtered", "shared"):
        assert [epoch.sources[source].watermark for epoch in ran.epochs] == marks, source
    assert ran.of("chosen", "n") == ran.of("renewed", "n") == ran.of("shared", "n") == [3]
    assert ran.of("filtered", "n") == [2]

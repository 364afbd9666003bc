"""Changelogs without a key, which have one row at most: in top_n, as elements, and in tables."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from deltalake import DeltaTable

import tidemark as tm
from tidemark.state.log.progress import EpochProgress
from tidemark.testing import ManualClock

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COUNTS = [2, 1, None, 3]
"""How many rows there are after each epoch; without any there is no result."""

GIVEN = [[("insert", 1), ("insert", 2)], [("delete", 1)], [("delete", 2)], [("insert", 3), ("insert", 4), ("insert", 5)]]


@pytest.mark.spark
def test_each_operator_and_sink_knows_the_one_row(spark: SparkSession, tmp_path: Path) -> None:
    epochs = [[(t, *each) for t, each in enumerate(found, 10 * epoch)] for epoch, found in enumerate(GIVEN)]
    given = tm.from_elements(epochs=epochs, schema="t BIGINT, op STRING, id INT")
    log = tm.source("rows", given, watermarks=tm.ascending(timestamp="t")).as_changelog(["id"], operation="op")
    one = log.aggregate_all(n=tm.count()).uid("one")
    ranked = one.top_n(1, order="n", rank="rank").uid("ranked")
    outputs = {
        "ranked": tm.delta(ranked, str(tmp_path / "ranked")),
        "best": tm.delta(one.top_n(1, order="n DESC").uid("best"), str(tmp_path / "best"), mode="upsert"),
        "elements": tm.delta(one.as_elements(), str(tmp_path / "elements")),
        "upsert": tm.delta(one, str(tmp_path / "upsert"), mode="upsert"),
        "versions": tm.delta(one, str(tmp_path / "versions"), mode="scd2"),
    }
    job = tm.Job("one-row", outputs, store=str(tmp_path / "store"), parallelism=2)
    clock = ManualClock(1_700_000_000_000)

    def after(epoch: EpochProgress) -> None:
        count = COUNTS[epoch.epoch]
        there = [] if count is None else [count]
        for name in ("best", "upsert"):
            assert DeltaTable(str(tmp_path / name)).to_pyarrow_table()["n"].to_pylist() == there
        clock.advance(1_000)

    assert len(tm.run(job, spark=spark, clock=clock, on_epoch=after, handle_signals=False).epochs) == len(COUNTS)
    found = {name: DeltaTable(str(tmp_path / name)).to_pyarrow_table().to_pylist() for name in outputs}
    history = sorted((row["epoch"], row["operation"], row["n"], row["rank"]) for row in found["ranked"])
    assert history == [(0, "insert", 2, 1), (1, "update", 1, 1), (2, "delete", 1, 1), (3, "insert", 3, 1)]
    kinds = sorted((row["operation"], row["n"]) for row in found["elements"])
    assert kinds == [("delete", 1), ("insert", 2), ("insert", 3), ("update_after", 1), ("update_before", 2)]
    versions = sorted((row["valid_from"], row["n"], row["valid_to"]) for row in found["versions"])
    assert [n for _, n, _ in versions] == [2, 1, 3]
    assert [end for *_, end in versions][:1] == [versions[1][0]]
    assert [end is None for *_, end in versions] == [False, False, True]

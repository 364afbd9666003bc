"""Running aggregates of few rows, by passes whose plans are kept between epochs: the same tables, versions and counts as without them."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tidemark as tm
from tests.engine.prepared_runs import NEVER, run_noted, versions
from tests.seeds import PROFILE, only_long
from tidemark.spark.state_api.state_processor import savepoint

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

EPOCHS = 4 if PROFILE == "long" else 3
"""Plans that are made at once run in the first epoch, and over what is stored."""


@dataclass(frozen=True)
class Ran:
    """The content of each version of the tables, the counts of each epoch, what state has at the end, and the prepared passes that ran."""

    tables: dict[str, list[list[str]]]
    counts: list[Any]
    groups: list[str]
    passes: list[str]


def land(folder: Path) -> None:
    """Write a file for each epoch: keys that come once, again, and never again, with nulls, NaN and negative zeros."""
    folder.mkdir()
    dice = Random(3)
    values = [1.5, -0.0, 0.0, float("nan"), None, -7.25]
    for epoch in range(EPOCHS):
        keys = [None, "", *dice.choices(["a", "b", "ä", f"only {epoch}"], k=10)]
        columns = {
            "k": keys,
            "t": [epoch * 1_000 + dice.randrange(5_000) for _ in keys],
            "v": pa.array(dice.choices(values, k=len(keys)), pa.float64()),
            "n": pa.array(dice.choices([1, 2, None], k=len(keys)), pa.int32()),
        }
        pq.write_table(pa.table(columns), folder / f"{epoch}.parquet")
        os.utime(folder / f"{epoch}.parquet", (1_600_000_000 + epoch,) * 2)


def run(spark: SparkSession, folder: Path, name: str, monkeypatch: pytest.MonkeyPatch, *, after: int) -> Ran:
    """Run a job of a running aggregate over the landed files, with plans made after so many epochs."""
    spec = tm.files(str(folder / "landing"), format="parquet", schema="k STRING, t BIGINT, v DOUBLE, n INT", max_files_per_epoch=1)
    rows = tm.source("rows", spec, watermarks=tm.bounded_out_of_orderness("1 minute", timestamp="t")).filter("n IS NULL OR n < 9")
    groups = rows.key_by("k").aggregate(
        count=tm.count(), total=tm.sum("n"), mean=tm.avg("v"), most=tm.max("v"), last=tm.last("n"), kinds=tm.collect_set("n")
    )
    shown = groups.uid("groups").filter("count > 1 OR k IS NULL").with_columns(twice="total * 2")
    outputs = {"newest": tm.delta(shown, str(folder / name / "newest"), mode="upsert")}
    job = tm.Job(name, outputs=outputs, store=str(folder / "store"))
    done, passes = run_noted(spark, job, monkeypatch, after=after)
    counts = [
        (operator.keys, operator.rows_accepted, epoch.filters, [output.rows for output in epoch.outputs.values()])
        for epoch in done.epochs
        for operator in epoch.operators.values()
    ]
    tables = {output: versions(folder / name / output) for output in outputs}
    state = savepoint(name, store=str(folder / "store")).tables("groups", spark)["groups"]
    return Ran(tables, counts, sorted(map(str, state.collect())), passes)


def test_tables_counts_and_state_are_those_of_data_frames(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    land(tmp_path / "landing")
    made = run(spark, tmp_path, "made", monkeypatch, after=NEVER)
    prepared = run(spark, tmp_path, "prepared", monkeypatch, after=0)
    require_same(made, prepared)
    assert len(made.tables["newest"]) > EPOCHS // 2
    assert set(prepared.passes) == {"groups groups", "groups groups stored", "output newest changes"}


@only_long
def test_so_they_are_by_plans_that_are_made_later(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    land(tmp_path / "landing")
    made = run(spark, tmp_path, "made", monkeypatch, after=NEVER)
    later = run(spark, tmp_path, "later", monkeypatch, after=2)
    require_same(made, later)
    assert set(later.passes) == {"groups groups stored", "output newest changes"}


def require_same(made: Ran, prepared: Ran) -> None:
    assert prepared.tables == made.tables
    assert prepared.counts == made.counts
    assert prepared.groups == made.groups
    assert made.passes == []

"""Joins of elements of few rows, by passes whose plans are kept between epochs: the same tables, counts and state as without them."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tidemark as tm
from tests.engine.prepared_runs import NEVER, counted, run_noted, state_rows, versions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

MINUTE = 60_000
EPOCHS = {"left": 6, "right": 5}
"""Of the right there are fewer, so that the last epoch has rows of one input only."""

HOWS = ["inner", "left", "right", "full", "semi", "anti"]

Join = Callable[[tm.Stream, tm.Stream], tm.Stream]


@dataclass(frozen=True)
class Ran:
    """The content of each version of the tables, the counts of each epoch, the state's files before the end, and the passes that ran."""

    tables: dict[str, list[list[str]]]
    counts: list[set[str]]
    state: list[Any]
    passes: list[str]


def land(folder: Path) -> None:
    """Write a file for each epoch and input: rows on time, behind the watermark, and late; with null keys and NaN."""
    for seed, (side, epochs) in enumerate(EPOCHS.items()):
        drawn = Random(seed)
        (folder / side).mkdir(parents=True)
        for epoch in range(epochs):
            keys = [*drawn.choices(["a", "b", "ä", f"only {epoch}", None], k=14), "a"]
            times = [max(0, epoch * MINUTE + drawn.randrange(-4 * MINUTE, MINUTE)) for _ in keys]
            values = drawn.choices([1.5, -0.0, float("nan"), None], k=len(keys))
            numbers = drawn.choices([1, 1, 2, None], k=len(keys))
            columns: dict[str, pa.Array] = {"id": pa.array([100 * epoch + number for number in range(len(keys))], pa.int64())}
            columns |= {"k": pa.array(keys, pa.string()), "n": pa.array(numbers, pa.int32())}
            columns |= {"t": pa.array(times, pa.int64()), "v": pa.array(values, pa.float64())}
            file = folder / side / f"{epoch}.parquet"
            pq.write_table(pa.table(columns), file)
            os.utime(file, (1_600_000_000 + epoch,) * 2)


def elements(folder: Path, side: str) -> tm.Stream:
    spec = tm.files(str(folder / side), format="parquet", schema="id BIGINT, k STRING, n INT, t BIGINT, v DOUBLE", max_files_per_epoch=1)
    rows = tm.source(side, spec, watermarks=tm.bounded_out_of_orderness("1 minute", timestamp="t"))
    return rows.filter("v IS NULL OR v <> 9")


def run(
    spark: SparkSession, folder: Path, name: str, join: Join, monkeypatch: pytest.MonkeyPatch, *, after: int, mode: Any = "append"
) -> Ran:
    """Run a job of a join over the landed files, with plans made after so many epochs, then again to the end of input."""
    joined = join(elements(folder, "left").select("id", "k", "n", x="v"), elements(folder, "right").select("k", "n", y="v")).uid("joined")
    shown = joined.filter("k IS NULL OR k <> 'none'").with_columns(twice="x * 2")
    streams = {"pairs": shown, "late_left": joined.side_output(LATE_LEFT), "late_right": joined.side_output(LATE_RIGHT)}
    modes = {"pairs": mode}
    outputs = {each: tm.delta(stream, str(folder / name / each), mode=modes.get(each, "append")) for each, stream in streams.items()}
    job = tm.Job(name, outputs=outputs, store=str(folder / "store"))
    first, passes = run_noted(spark, job, monkeypatch, after=after, end_of_input=False)
    state = state_rows(name, "joined", folder / "store")
    last, more = run_noted(spark, job, monkeypatch, after=after)
    tables = {output: versions(folder / name / output) for output in outputs}
    return Ran(tables, [counted(done.epochs) for done in (first, last)], state, [*passes, *more])


LATE_LEFT, LATE_RIGHT = tm.OutputTag("left"), tm.OutputTag("right")
LATE: dict[str, Any] = {"on": ["k", "n"], "late_left_to": LATE_LEFT, "late_right_to": LATE_RIGHT}


def require_same(spark: SparkSession, folder: Path, join: Join, monkeypatch: pytest.MonkeyPatch, *, mode: str = "append") -> Ran:
    """Require that prepared passes make what DataFrames make; return that."""
    land(folder)
    made = run(spark, folder, "made", join, monkeypatch, after=NEVER, mode=mode)
    prepared = run(spark, folder, "prepared", join, monkeypatch, after=0, mode=mode)
    assert prepared.tables == made.tables
    assert prepared.counts == made.counts
    assert prepared.state == made.state
    assert made.passes == []
    assert len({part for part, _, rows in made.state if rows}) == len(EPOCHS)
    assert all(len(table) > 1 for table in made.tables.values())
    assert len(made.tables["pairs"]) > EPOCHS["right"] // 2
    for side, epochs in EPOCHS.items():
        assert prepared.passes.count(f"elements joined {side}") == epochs
    assert sum(name.startswith("output pairs ") for name in prepared.passes) >= len(made.tables["pairs"]) - 1
    return prepared


def require_expired(ran: Ran) -> None:
    """Require that elements of the first epoch were dropped before the end of input."""
    assert min(epoch for _, epoch, _ in ran.state) > 0


@pytest.mark.parametrize("how", HOWS)
def test_interval_joins(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: Any) -> None:
    def join(left: tm.Stream, right: tm.Stream) -> tm.Stream:
        return left.join(right, how=how, within=("-40 seconds", "50 seconds"), **LATE)

    require_expired(require_same(spark, tmp_path, join, monkeypatch))


@pytest.mark.parametrize("how", ["full", "semi"])
def test_interval_joins_of_more_rows_than_one_task_reads(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: Any
) -> None:
    def join(left: tm.Stream, right: tm.Stream) -> tm.Stream:
        return left.join(right, how=how, within=("-40 seconds", "50 seconds"), **LATE)

    land(tmp_path)
    few = run(spark, tmp_path, "few", join, monkeypatch, after=0)
    monkeypatch.setattr("tidemark.spark.operators.base.tables.FEW_ROWS", 0)
    many = run(spark, tmp_path, "many", join, monkeypatch, after=0)
    assert many.tables == few.tables
    # Several tasks write several files of results.
    one, other = ([{text for text in run if " files: " not in text} for run in ran.counts] for ran in (many, few))
    assert one == other
    assert many.state == few.state
    # Input is few rows of files all the same.
    assert set(many.passes) == {"elements joined left", "elements joined right"}


@pytest.mark.parametrize("how", ["full", "semi"])
def test_interval_joins_whose_right_partners_are_all_later(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: Any
) -> None:
    def join(left: tm.Stream, right: tm.Stream) -> tm.Stream:
        return left.join(right, how=how, within=("5 seconds", "2 minutes"), **LATE)

    require_expired(require_same(spark, tmp_path, join, monkeypatch))


@pytest.mark.parametrize("how", HOWS)
def test_window_joins(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: Any) -> None:
    def join(left: tm.Stream, right: tm.Stream) -> tm.Stream:
        return left.window_join(right, how=how, window=tm.tumbling("30 seconds"), allowed_lateness="1 minute", **LATE)

    require_expired(require_same(spark, tmp_path, join, monkeypatch))


def test_window_joins_of_overlapping_windows(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def join(left: tm.Stream, right: tm.Stream) -> tm.Stream:
        return left.window_join(right, how="full", window=tm.sliding("1 minute", "20 seconds"), **LATE)

    require_expired(require_same(spark, tmp_path, join, monkeypatch))


@pytest.mark.parametrize("how", ["inner", "left"])
def test_temporal_joins(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: Any) -> None:
    def join(left: tm.Stream, right: tm.Stream) -> tm.Stream:
        return left.join_asof(right, how=how, **LATE)

    ran = require_same(spark, tmp_path, join, monkeypatch)
    assert sum(name.startswith("answers joined ") for name in ran.passes) >= EPOCHS["left"]


@pytest.mark.parametrize("how", ["inner", "left"])
def test_temporal_joins_that_correct_answers(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: Any) -> None:
    def join(left: tm.Stream, right: tm.Stream) -> tm.Stream:
        return left.join_asof(right, how=how, allowed_lateness="2 minutes", key=["id"], **LATE)

    ran = require_same(spark, tmp_path, join, monkeypatch, mode="upsert")
    assert sum(name.startswith("answers joined ") for name in ran.passes) >= EPOCHS["left"]

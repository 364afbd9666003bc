"""Joins of elements of few rows, by passes whose plans are kept between epochs: the same tables, counts and state as without them."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tidemark as tm
from tests.engine.prepared_runs import NEVER, counted, run_noted, state_rows, versions
from tests.seeds import PROFILE, some
from tidemark.state.log.progress import EpochProgress

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

MINUTE = 60_000
BEHIND = 8 * MINUTE
"""How far behind elements are at most."""

MORE_EPOCHS = {"left": 6, "right": 5}
"""So many that versions are late that may be corrected for two minutes."""

EPOCHS = MORE_EPOCHS if PROFILE == "long" else {"left": 3, "right": 2}
"""Of the right there are fewer, so that the last epoch has rows of one input only."""

HOWS: tuple[Any, ...] = ("inner", "left", "right", "full", "semi", "anti")

OF_INTERVALS: tuple[Any, ...] = ("full", "semi") if PROFILE != "long" else HOWS
"""A full join has the passes of the others: the pairs, and the rows of each side that are alone."""

OF_WINDOWS: tuple[Any, ...] = ("right", "semi") if PROFILE != "long" else HOWS
"""One in which the right leads, and one that shows the left only; the overlapping ones are full, with the rows of both that are alone."""

Late = Mapping[str, Any]
"""The keys of a join, and where its late elements go."""

Join = Callable[[tm.Stream, tm.Stream, Late], tm.Stream]


@dataclass(frozen=True)
class Ran:
    """What a job of joins left.

    ``tables`` is the content of each version of the tables, by output; ``counts`` are those of each epoch; ``state`` are the files of each
    join before the end; ``passes`` are the prepared passes that ran.
    """

    tables: dict[str, list[list[str]]]
    counts: set[str]
    state: dict[str, list[Any]]
    passes: list[str]


def land(folder: Path, epochs: Mapping[str, int]) -> None:
    """Write a file for each epoch and input, unless that is done: rows on time, behind the watermark, and late; null keys and NaN."""
    if folder.exists():
        return
    # Of few epochs each goes on farther with event time.
    pace = (2 if epochs == MORE_EPOCHS else 4) * MINUTE
    for seed, (side, count) in enumerate(epochs.items()):
        drawn = Random(seed)
        (folder / side).mkdir(parents=True)
        for epoch in range(count):
            keys = [*drawn.choices(["a", "b", "ä", f"only {epoch}", None], k=14), "a"]
            times = [BEHIND + epoch * pace + drawn.randrange(-BEHIND, MINUTE) for _ in keys]
            values = drawn.choices([1.5, -0.0, float("nan"), None], k=len(keys))
            numbers = drawn.choices([1, 1, 2, None], k=len(keys))
            columns: dict[str, pa.Array] = {"id": pa.array([100 * epoch + number for number in range(len(keys))], pa.int64())}
            columns |= {"k": pa.array(keys, pa.string()), "n": pa.array(numbers, pa.int32())}
            columns |= {"t": pa.array(times, pa.int64()), "v": pa.array(values, pa.float64())}
            file = folder / side / f"{epoch}.parquet"
            pq.write_table(pa.table(columns), file)
            os.utime(file, (1_600_000_000 + epoch,) * 2)


def source_name(join: str, side: str) -> str:
    return f"{join}_{side}".replace("-", "_")


def elements(folder: Path, side: str, name: str) -> tm.Stream:
    """Return the rows of a side as a source of its own: what several joins read is cached, and not prepared."""
    spec = tm.files(str(folder / side), format="parquet", schema="id BIGINT, k STRING, n INT, t BIGINT, v DOUBLE", max_files_per_epoch=1)
    rows = tm.source(source_name(name, side), spec, watermarks=tm.bounded_out_of_orderness("1 minute", timestamp="t"))
    return rows.filter("v IS NULL OR v <> 9")


def outputs_of(folder: Path, joins: Mapping[str, Join], upserted: Collection[str]) -> dict[str, tm.Output]:
    """Return the outputs of a job: of each join its pairs, and the late elements of both inputs."""
    outputs = {}
    for name, join in joins.items():
        left = elements(folder.parent / "landed", "left", name).select("id", "k", "n", x="v")
        right = elements(folder.parent / "landed", "right", name).select("k", "n", y="v")
        tags = {side: tm.OutputTag(f"{name}-{side}") for side in EPOCHS}
        joined = join(left, right, {"on": ["k", "n"], **{f"late_{side}_to": tag for side, tag in tags.items()}}).uid(name)
        shown = joined.filter("k IS NULL OR k <> 'none'").with_columns(twice="x * 2")
        outputs[name] = tm.delta(shown, str(folder / name), mode="upsert" if name in upserted else "append")
        outputs |= {tag.name: tm.delta(joined.side_output(tag), str(folder / tag.name)) for tag in tags.values()}
    return outputs


def run(
    spark: SparkSession,
    folder: Path,
    joins: Mapping[str, Join],
    monkeypatch: pytest.MonkeyPatch,
    *,
    after: int,
    upserted: Collection[str] = (),
    epochs: Mapping[str, int] = EPOCHS,
) -> Ran:
    """Run a job of joins over the landed files to the end of input, with plans made after so many epochs."""
    # State names the files of elements, so they are the same ones in each run.
    land(folder.parent / "landed", epochs)
    outputs = outputs_of(folder, joins, upserted)
    job = tm.Job("joins", outputs=outputs, store=str(folder / "store"))
    state: dict[str, list[Any]] = {}

    def before_the_end(epoch: EpochProgress) -> None:
        if epoch.epoch == max(epochs.values()) - 1:
            state.update(state_rows("joins", joins, folder / "store"))

    done, passes = run_noted(spark, job, monkeypatch, after=after, on_epoch=before_the_end)
    return Ran({output: versions(folder / output) for output in outputs}, counted(done.epochs), state, passes)


def require_same(spark: SparkSession, folder: Path, joins: Mapping[str, Join], monkeypatch: pytest.MonkeyPatch, **settings: Any) -> Ran:
    """Require that prepared passes make what DataFrames make; return that. Settings are those of ``run``."""
    made = run(spark, folder / "made", joins, monkeypatch, after=NEVER, **settings)
    prepared = run(spark, folder / "prepared", joins, monkeypatch, after=0, **settings)
    assert prepared.tables == made.tables
    assert prepared.counts == made.counts
    assert prepared.state == made.state
    assert made.passes == []
    assert [output for output, table in made.tables.items() if len(table) < 2] == []
    epochs = settings.get("epochs", EPOCHS)
    for name in joins:
        assert len({part for part, _, rows in made.state[name] if rows}) == len(epochs), name
        assert len(made.tables[name]) > epochs["right"] // 2, name
        for side, count in epochs.items():
            assert prepared.passes.count(f"elements {name} {side}") == count, (name, side)
        assert sum(each.startswith(f"output {name} ") for each in prepared.passes) >= len(made.tables[name]) - 1, name
    return prepared


def require_expired(ran: Ran) -> None:
    """Require that elements of the first epoch were dropped before the end of input."""
    for name, files in ran.state.items():
        assert min(epoch for _, epoch, _ in files) > 0, name


def within(how: Any, lower: str, upper: str) -> Join:
    return lambda left, right, late: left.join(right, how=how, within=(lower, upper), **late)


def in_windows(how: Any, window: Any, **settings: Any) -> Join:
    return lambda left, right, late: left.window_join(right, how=how, window=window, **settings, **late)


def as_of(how: Any, **settings: Any) -> Join:
    return lambda left, right, late: left.join_asof(right, how=how, **settings, **late)


def test_interval_joins(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    joins = {how: within(how, "-40 seconds", "50 seconds") for how in OF_INTERVALS}
    # The right partners of these are all later.
    later = {"full": "2 minutes", "semi": "2 minutes"} if PROFILE == "long" else {"semi": "50 seconds"}
    joins |= {f"{how}-later": within(how, "5 seconds", upper) for how, upper in later.items()}
    few = require_same(spark, tmp_path, joins, monkeypatch)
    require_expired(few)
    require_same_of_more_rows_than_one_task_reads(few, spark, tmp_path / "many", {how: joins[how] for how in ("full", "semi")}, monkeypatch)


def require_same_of_more_rows_than_one_task_reads(
    few: Ran, spark: SparkSession, folder: Path, joins: Mapping[str, Join], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Require that several tasks make of some of the joins what one makes of few rows."""
    monkeypatch.setattr("tidemark.spark.operators.base.tables.FEW_ROWS", 0)
    many = run(spark, folder, joins, monkeypatch, after=0)
    assert many.tables == {output: table for output, table in few.tables.items() if output in many.tables}
    # Several tasks write several files of results.
    assert counts_of(many.counts, joins) == counts_of(few.counts, joins) != set()
    assert many.state == {name: few.state[name] for name in joins}
    # Input is few rows of files all the same.
    assert set(many.passes) == {f"elements {name} {side}" for name in joins for side in EPOCHS}


def counts_of(counts: set[str], names: Iterable[str]) -> set[str]:
    """Return the counts of these joins with their sources and outputs, without those of files."""
    known = [
        name for join in names for name in (join, *(f"{join}-{side}" for side in EPOCHS), *(source_name(join, side) for side in EPOCHS))
    ]
    named = re.compile(rf"\d+ (sources|operators|outputs) ({'|'.join(map(re.escape, known))}) ")
    return {text for text in counts if named.match(text) and " files: " not in text}


def test_window_joins(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    joins = {how: in_windows(how, tm.tumbling("30 seconds"), allowed_lateness="1 minute") for how in OF_WINDOWS}
    joins["overlapping"] = in_windows("full", tm.sliding("1 minute", "20 seconds"))
    require_expired(require_same(spark, tmp_path, joins, monkeypatch))


def test_temporal_joins(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hows: tuple[Any, ...] = ("inner", "left")
    joins = {how: as_of(how) for how in some(hows, 2)}
    corrected = {f"{how}-corrected": as_of(how, allowed_lateness="2 minutes", key=["id"]) for how in some(hows, 2, first=1)}
    ran = require_same(spark, tmp_path, joins | corrected, monkeypatch, upserted=corrected, epochs=MORE_EPOCHS)
    for name in joins | corrected:
        assert sum(each.startswith(f"answers {name} ") for each in ran.passes) >= MORE_EPOCHS["left"], name

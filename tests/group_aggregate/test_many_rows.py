"""Running aggregates of epochs of many rows: by plans that are kept, and by DataFrames."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tidemark as tm
from tests.engine.prepared_runs import NEVER, run_noted, versions
from tidemark.errors import EngineError
from tidemark.spark.state_api.state_processor import savepoint

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

EPOCHS = 4


@dataclass(frozen=True)
class Ran:
    """What a run made: each version of the history, the counts of each epoch, and the groups at its end.

    ``passes`` are the prepared ones that ran.
    """

    history: list[list[str]]
    counts: list[Any]
    groups: list[str]
    passes: list[str]


def land(folder: Path) -> None:
    """Write a file for each epoch: most keys come in most epochs, few in one, with nulls, NaN and negative zeros."""
    folder.mkdir()
    dice = Random(11)
    values = [1.5, -0.0, 0.0, float("nan"), None, -7.25]
    for epoch in range(EPOCHS):
        some = ["a"] if epoch == EPOCHS - 2 else [None, "", "b", "ä", f"only {epoch}"]
        keys = [*some, *dice.choices(some, k=9)]
        columns = {
            "k": pa.array(keys, pa.string()),
            "t": [epoch * 1_000 + dice.randrange(5_000) for _ in keys],
            "v": pa.array(dice.choices(values, k=len(keys)), pa.float64()),
            "n": pa.array(dice.choices([1, 2, None, 9], k=len(keys)), pa.int32()),
        }
        pq.write_table(pa.table(columns), folder / f"{epoch}.parquet")
        os.utime(folder / f"{epoch}.parquet", (1_600_000_000 + epoch,) * 2)


def land_lines(folder: Path) -> None:
    """Write two files of CSV for each epoch: of two sites, whose times are far apart, with a line that cannot be read."""
    folder.mkdir()
    dice = Random(12)
    for number in range(2 * EPOCHS):
        lines = [f"{dice.choice('abc')},{site},{at + number},{dice.choice(['', '1.5', '-0.0', '7.25'])},{dice.choice('129')}"
                 for site, at in [("north", 900_000), ("south", 1_000)] * 6]  # fmt: skip
        file = folder / f"{number:02}.csv"
        file.write_text("\n".join([*lines, "a,north,no time,1.0,1"]) + "\n", encoding="utf-8")
        os.utime(file, (1_600_000_000 + number,) * 2)


ROWS = tm.files("landing", format="parquet", schema="k STRING, t BIGINT, v DOUBLE, n INT", max_files_per_epoch=1)
LINES = tm.files("landing", format="csv", schema="k STRING, site STRING, t BIGINT, v DOUBLE, n INT", max_files_per_epoch=2)


def run(spark: SparkSession, folder: Path, name: str, monkeypatch: pytest.MonkeyPatch, *, after: int, read: Any = ROWS) -> Ran:
    """Run a job of a running aggregate over the landed files, with plans made after so many epochs."""
    spec = replace(read, path=str(folder / "landing"))
    times = tm.bounded_out_of_orderness("1 minute", timestamp="t", split_by="site" if read is LINES else None)
    rows = tm.source("rows", spec, watermarks=times).filter("n IS NULL OR n < 9")
    groups = rows.key_by("k").aggregate(count=tm.count(), total=tm.sum("n"), mean=tm.avg("v"), most=tm.max("v")).uid("groups")
    outputs = {"history": tm.delta(groups, str(folder / name / "history"))}
    job = tm.Job(name, outputs=outputs, store=str(folder / "store"), parallelism=2)
    done, passes = run_noted(spark, job, monkeypatch, after=after)
    operators = [epoch.operators["groups"] for epoch in done.epochs]
    counts = [
        (operator.keys, operator.rows_accepted, operator.watermark, epoch.filters, epoch.sources)
        for operator, epoch in zip(operators, done.epochs, strict=True)
    ]
    state = savepoint(name, store=str(folder / "store")).tables("groups", spark)["groups"]
    return Ran(versions(folder / name / "history"), counts, sorted(map(str, state.collect())), passes)


@pytest.fixture(scope="module")
def landed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder with the files of ``land``."""
    folder = tmp_path_factory.mktemp("many")
    land(folder / "landing")
    return folder


@pytest.fixture(scope="module")
def plain(spark: SparkSession, landed: Path) -> Ran:
    """Return what DataFrames make of the files, where no number of rows is few."""
    with pytest.MonkeyPatch.context() as patch:
        consider_all_many(patch)
        found = run(spark, landed, "plain", patch, after=NEVER)
    assert found.passes == []
    return found


def test_history_counts_and_state_are_the_same(spark: SparkSession, landed: Path, plain: Ran, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidemark.spark.columns.few_rows.FEW_ROWS", -1)
    kept = run(spark, landed, "kept", monkeypatch, after=1)
    assert kept.history == plain.history
    assert kept.counts == plain.counts
    assert kept.groups == plain.groups
    assert len(plain.history) >= EPOCHS
    assert set(kept.passes) == {"groups groups of many rows one task stored", "output history changes"}


def test_several_tasks_read_lines_of_several_splits(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    land_lines(tmp_path / "landing")
    monkeypatch.setattr("tidemark.spark.columns.few_rows.FEW_ROWS", -1)
    monkeypatch.setattr("tidemark.spark.sources.epoch_input.EpochInput.has_few_bytes", lambda *_: False)
    kept = run(spark, tmp_path, "kept", monkeypatch, after=1, read=LINES)
    plain = run(spark, tmp_path, "plain", monkeypatch, after=NEVER, read=LINES)
    assert (kept.history, kept.counts, kept.groups) == (plain.history, plain.counts, plain.groups)
    assert "groups groups of many rows strict splits ('north', 'south') stored" in kept.passes


def consider_all_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have no number of rows or groups be few."""
    monkeypatch.setattr("tidemark.spark.columns.few_rows.FEW_ROWS", -1)
    for module in ("base.tables", "base.staged_rows", "group_aggregate.prepared_groups"):
        monkeypatch.setattr(f"tidemark.spark.operators.{module}.FEW_ROWS", -1)


def test_many_groups_are_written_by_kept_plans(spark: SparkSession, landed: Path, plain: Ran, monkeypatch: pytest.MonkeyPatch) -> None:
    consider_all_many(monkeypatch)
    kept = run(spark, landed, "many", monkeypatch, after=1)
    assert kept.history == plain.history
    assert kept.counts == plain.counts
    assert kept.groups == plain.groups
    # An epoch that changes most groups writes all; the one behind the epoch that changes only one of them does not.
    ways = {name.removeprefix("groups of groups").removesuffix(" one task") for name in kept.passes if name.startswith("groups")}
    assert ways == {" once again", " once"}, kept.passes
    assert "output history many changes of state" in kept.passes


def test_groups_without_input_stay_as_they_are(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where all groups are written again, also in an epoch that fails and is repeated.

    A mean that is divided again has other digits; results may be maps, and may fail for no rows.
    """
    consider_all_many(monkeypatch)
    epochs = [[(key, n) for key in "abcd" for n in (1, 0, 0)], *[[(key, 1 + epoch) for key in "abc"] for epoch in range(4)]]
    rows = [[{"k": key, "t": epoch, "v": Decimal(n)} for key, n in given] for epoch, given in enumerate(epochs)]
    given = tm.from_elements(epochs=rows, schema="k STRING, t BIGINT, v DECIMAL(38,18)")
    stream = tm.source("rows", given, watermarks=tm.ascending(timestamp="t"))
    total = {"s": ("sum(v)", "sum({s})")}
    groups = stream.key_by("k").aggregate(
        mean=tm.avg("v"),
        counted=tm.sql_aggregate({"n": ("count(1)", "sum({n})")}, "map('n', {n})"),
        total=tm.sql_aggregate(total, "if({s} IS NULL, raise_error('no rows'), {s})"),
    )
    outputs = {"history": tm.parquet(groups.uid("groups"), str(tmp_path / "history"))}
    job = tm.Job("job", outputs=outputs, store=str(tmp_path / "store"), parallelism=2)
    staged: list[str] = []

    def failing(name: str) -> None:
        staged.extend([name] if name == "output-staged" else [])
        if len(staged) == 3:
            raise OSError("the driver is gone")

    with monkeypatch.context() as patch:
        patch.setattr("tidemark.spark.epoch.epoch.crash_point", failing)
        with pytest.raises(EngineError, match="the driver is gone"):
            tm.run(job, spark=spark)
    _, passes = run_noted(spark, job, monkeypatch, after=1)
    assert any(" again" in name for name in passes)
    found = spark.read.parquet(str(tmp_path / "history")).orderBy("epoch", "k").collect()
    assert [(row.epoch, row.k) for row in found] == [
        (epoch, key) for epoch, given in enumerate(epochs) for key in sorted({key for key, _ in given})
    ]
    assert [row.operation for row in found if row.k == "d"] == ["insert"]
    assert [row.counted["n"] for row in found if row.k == "a"] == [3, 4, 5, 6, 7]

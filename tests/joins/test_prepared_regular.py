"""Regular joins of few rows, by passes whose plans are kept between epochs: the same tables, counts and state as without them."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tidemark as tm
from tests.engine.prepared_runs import NEVER, counted, run_noted, state_rows, versions
from tests.joins.changelog_programs import Row, random_program
from tests.seeds import PROFILE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

EPOCHS = {"left": 5, "right": 4} if PROFILE == "long" else {"left": 4, "right": 3}
"""Of the right there are fewer, and the left has an epoch without changes, so that each input has an epoch in which it alone changes."""

HOWS = ("full", "semi") if PROFILE != "long" else ("inner", "left", "full", "semi", "anti")
"""A full join has the passes of those that show less of it."""

SEEDS = {"left": 17, "right": 13}

SCHEMA = "op STRING, id INT, k STRING, v DOUBLE, t BIGINT"


@dataclass(frozen=True)
class Ran:
    """The content of each version of the tables, the counts of each epoch, the joins' files of state, and the prepared passes that ran."""

    tables: dict[str, list[list[str]]]
    counts: set[str]
    state: dict[str, list[Any]]
    passes: list[str]


def land(folder: Path) -> None:
    """Write a file of changes for each epoch and input: with null keys, keys with many partners, NaN, and an epoch without changes."""
    for side, epochs in EPOCHS.items():
        drawn = Random(SEEDS[side])

        def row(drawn: Random = drawn) -> Row:
            values = [1.5, -0.0, float("nan"), None]
            return {"id": drawn.randrange(9), "k": drawn.choice(["a", "b", "ä", None]), "v": drawn.choice(values)}

        def other(was: Row, row: Callable[[], Row] = row) -> Row:
            return {**row(), "id": was["id"]}

        program = random_program(drawn, ["id"], row, other, epochs=epochs, steps=16)
        (folder / side).mkdir(parents=True)
        for epoch, changes in enumerate(program.epochs):
            columns = {name: [change[name] for _, change in changes] for name in ("id", "k", "v")}
            types = {"id": pa.int32(), "k": pa.string(), "v": pa.float64()}
            made = {name: pa.array(values, types[name]) for name, values in columns.items()}
            made |= {"op": pa.array([operation for operation, _ in changes], pa.string())}
            made |= {"t": pa.array([epoch * 1_000 + number for number in range(len(changes))], pa.int64())}
            file = folder / side / f"{epoch}.parquet"
            pq.write_table(pa.table(made), file)
            os.utime(file, (1_600_000_000 + epoch,) * 2)


def changelog(folder: Path, side: str, name: str, **names: str) -> tm.Stream:
    """Return the changes of a side, of a source of their own: what several joins read is cached, and not prepared."""
    spec = tm.files(str(folder / side), format="parquet", schema=SCHEMA, max_files_per_epoch=1)
    rows = tm.source(f"{name}_{side}", spec, watermarks=tm.bounded_out_of_orderness("1 minute", timestamp="t"))
    return rows.select("op", "k", **names).as_changelog(key=[next(iter(names))], operation="op").select("k", *names)


def outputs_of(folder: Path, name: str, hows: Collection[Any]) -> dict[str, tm.Output]:
    """Return an output for each way to join the landed changes, which is its uid, too."""
    joins = {}
    for how in hows:
        left, right = changelog(folder, "left", how, id="id", x="v"), changelog(folder, "right", how, rid="id", y="v")
        joins[how] = left.join(right, on="k", how=how).uid(how)
    shown = {how: join.filter("coalesce(x, 0) <> 9").with_columns(twice="x * 2") for how, join in joins.items()}
    return {how: tm.delta(stream, str(folder / name / how), mode="upsert") for how, stream in shown.items()}


def run(spark: SparkSession, folder: Path, name: str, hows: Collection[str], monkeypatch: pytest.MonkeyPatch, *, after: int) -> Ran:
    """Run a job over the landed files, with plans made after so many epochs."""
    job = tm.Job(name, outputs=outputs_of(folder, name, hows), store=str(folder / "store"))
    done, passes = run_noted(spark, job, monkeypatch, after=after)
    state = state_rows(name, hows, folder / "store")
    return Ran({how: versions(folder / name / how) for how in hows}, counted(done.epochs), state, passes)


@pytest.fixture(scope="module")
def landed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of the files."""
    folder = tmp_path_factory.mktemp("joins")
    land(folder)
    return folder


@pytest.fixture(scope="module")
def made(spark: SparkSession, landed: Path) -> Ran:
    """Return what DataFrames make of the files."""
    with pytest.MonkeyPatch.context() as patch:
        found = run(spark, landed, "made", HOWS, patch, after=NEVER)
    assert all(len(table) > EPOCHS["right"] // 2 for table in found.tables.values())
    assert found.passes == []
    return found


def test_tables_counts_and_state_are_those_of_data_frames(
    spark: SparkSession, landed: Path, made: Ran, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepared = run(spark, landed, "prepared", HOWS, monkeypatch, after=0)
    assert prepared.tables == made.tables
    assert prepared.counts == made.counts
    assert prepared.state == made.state
    for how in HOWS:
        kinds = [name.split()[0] for name in prepared.passes if name.split()[1] == how]
        assert set(kinds) == {"changes", "versions", "output"}, how
        assert kinds.count("changes") == kinds.count("versions") == EPOCHS["left"], how


def test_so_are_those_of_changes_that_are_compared_apart(
    spark: SparkSession, landed: Path, made: Ran, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidemark.spark.operators.regular_join.runtime.MOST_COMPARED", 0)
    apart = run(spark, landed, "apart", ["full"], monkeypatch, after=0)
    assert apart.tables["full"] == made.tables["full"]
    assert of_full(apart.counts) == of_full(made.counts) != set()
    assert apart.state["full"] == made.state["full"]
    assert {name for name in apart.passes if name.startswith("output")} == {
        "output full results left right",
        "output full results left",
        "output full results right",
    }


def of_full(counts: set[str]) -> set[str]:
    """Return the counts of the full join, its sources and its output."""
    return {text for text in counts if re.match(r"\d+ (sources|operators|outputs) full(_left|_right)? ", text)}

"""Regular joins of few rows, by passes whose plans are kept between epochs: the same tables, counts and state as without them."""

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
from tests.joins.changelog_programs import Row, random_program

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

EPOCHS = {"left": 5, "right": 4}
"""Of the right there are fewer, and the left has an epoch without changes, so that each input has an epoch in which it alone changes."""

SEEDS = {"left": 17, "right": 13}

SCHEMA = "op STRING, id INT, k STRING, v DOUBLE, t BIGINT"


@dataclass(frozen=True)
class Ran:
    """The content of each version of the table, the counts of each epoch, the state's files, and the prepared passes that ran."""

    table: list[list[str]]
    counts: set[str]
    state: list[Any]
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


def changelog(folder: Path, side: str, **names: str) -> tm.Stream:
    spec = tm.files(str(folder / side), format="parquet", schema=SCHEMA, max_files_per_epoch=1)
    rows = tm.source(side, spec, watermarks=tm.bounded_out_of_orderness("1 minute", timestamp="t"))
    return rows.select("op", "k", **names).as_changelog(key=[next(iter(names))], operation="op").select("k", *names)


def joined(folder: Path, how: Any) -> tm.Stream:
    left, right = changelog(folder, "left", id="id", x="v"), changelog(folder, "right", rid="id", y="v")
    return left.join(right, on="k", how=how).uid("pairs").filter("coalesce(x, 0) <> 9").with_columns(twice="x * 2")


def run(spark: SparkSession, folder: Path, name: str, stream: tm.Stream, monkeypatch: pytest.MonkeyPatch, *, after: int) -> Ran:
    """Run a job over the landed files, with plans made after so many epochs."""
    outputs = {"pairs": tm.delta(stream, str(folder / name / "pairs"), mode="upsert")}
    job = tm.Job(name, outputs=outputs, store=str(folder / "store"))
    done, passes = run_noted(spark, job, monkeypatch, after=after)
    state = state_rows(name, "pairs", folder / "store")
    return Ran(versions(folder / name / "pairs"), counted(done.epochs), state, passes)


def require_same(spark: SparkSession, folder: Path, how: str, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Require that prepared passes make what DataFrames make; return the passes that ran."""
    land(folder)
    made = run(spark, folder, "made", joined(folder, how), monkeypatch, after=NEVER)
    prepared = run(spark, folder, "prepared", joined(folder, how), monkeypatch, after=0)
    assert prepared.table == made.table
    assert prepared.counts == made.counts
    assert prepared.state == made.state
    assert len(made.table) > EPOCHS["right"] // 2
    assert made.passes == []
    return prepared.passes


@pytest.mark.parametrize("how", ["inner", "left", "full", "semi", "anti"])
def test_tables_counts_and_state_are_those_of_data_frames(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    kinds = [name.split()[0] for name in require_same(spark, tmp_path, how, monkeypatch)]
    assert set(kinds) == {"changes", "versions", "output"}
    assert kinds.count("changes") == kinds.count("versions") == EPOCHS["left"]


def test_so_are_those_of_changes_that_are_compared_apart(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidemark.spark.operators.regular_join.runtime.MOST_COMPARED", 0)
    passes = require_same(spark, tmp_path, "full", monkeypatch)
    assert {name for name in passes if name.startswith("output")} == {
        "output pairs results left right",
        "output pairs results left",
        "output pairs results right",
    }

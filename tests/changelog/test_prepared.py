"""The newest and the best rows, of few rows, by passes whose plans are kept between epochs: the same tables, versions, counts and state."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tidemark as tm
from tests.engine.prepared_runs import NEVER, run_noted, versions
from tidemark.spark.state_api.state_processor import savepoint

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

EPOCHS = 5
"""Plans that are made after two of them run in three."""
Declare = Callable[[tm.Stream], tm.Stream]
Sides = Mapping[str, tm.OutputTag]


@dataclass(frozen=True)
class Ran:
    """The content of each version of the table, the counts of each epoch, what state has at the end, and the prepared passes that ran.

    ``sides`` is the content of each version of the tables of side outputs.
    """

    table: list[list[str]]
    counts: list[Any]
    state: list[str]
    passes: list[str]
    sides: dict[str, list[list[str]]]


def land(folder: Path) -> None:
    """Write a file for each epoch: keys that come once, again and again, are deleted, and are null; equal and missing sequences."""
    folder.mkdir()
    dice = Random(5)
    for epoch in range(EPOCHS):
        keys = [None, "", *dice.choices(["a", "b", "ä", f"only {epoch}"], k=10)]
        columns = {
            "k": keys,
            "t": [epoch * 1_000 + dice.randrange(5_000) for _ in keys],
            "v": pa.array(dice.choices([1.5, -0.0, 0.0, float("nan"), None, -7.25], k=len(keys)), pa.float64()),
            "version": pa.array(dice.choices([epoch, epoch - 1, epoch - 2, None], k=len(keys)), pa.int32()),
            "gone": dice.choices([True, False, False, None], k=len(keys)),
        }
        pq.write_table(pa.table(columns), folder / f"{epoch}.parquet")
        os.utime(folder / f"{epoch}.parquet", (1_600_000_000 + epoch,) * 2)


def run(
    spark: SparkSession,
    folder: Path,
    name: str,
    declare: Declare,
    monkeypatch: pytest.MonkeyPatch,
    *,
    after: int,
    sides: Sides | None = None,
) -> Ran:
    """Run a job over the landed files, with plans made after so many epochs; the outputs of ``sides`` are written, too."""
    schema = "k STRING, t BIGINT, v DOUBLE, version INT, gone BOOLEAN"
    spec = tm.files(str(folder / "landing"), format="parquet", schema=schema, max_files_per_epoch=1)
    rows = tm.source("rows", spec, watermarks=tm.bounded_out_of_orderness("1 minute", timestamp="t")).filter("v IS NULL OR v < 9")
    shown = declare(rows)
    outputs = {"shown": tm.delta(shown, str(folder / name), mode="upsert")}
    taken = {side: shown.side_output(tag) for side, tag in (sides or {}).items()}
    outputs |= {side: tm.delta(stream, str(folder / f"{name}-{side}")) for side, stream in taken.items()}
    job = tm.Job(name, outputs=outputs, store=str(folder / "store"))
    done, passes = run_noted(spark, job, monkeypatch, after=after)
    counts = [
        (
            operator.keys,
            operator.rows_accepted,
            dict(operator.counters),
            epoch.filters,
            {key: output.rows for key, output in epoch.outputs.items()},
        )
        for epoch in done.epochs
        for operator in epoch.operators.values()
    ]
    state = savepoint(name, store=str(folder / "store")).tables("op", spark)["rows"]
    late = {side: versions(folder / f"{name}-{side}") for side in taken}
    return Ran(versions(folder / name), counts, sorted(map(str, state.collect())), passes, late)


@pytest.mark.parametrize(
    "declare",
    [
        pytest.param(lambda rows: rows.latest(by=["k"]).uid("op").with_columns(twice="v * 2"), id="latest"),
        pytest.param(
            lambda rows: rows.latest(by=["k"], sequence="version", deleted="gone", unchanged={"v": "v = -7.25"}).uid("op"),
            id="latest by a sequence",
        ),
        pytest.param(lambda rows: rows.top_n(2, by=["k"], order="v DESC", rank="place").uid("op"), id="top_n with places"),
        pytest.param(
            lambda rows: rows.with_columns(id="concat_ws(' ', t, v, version)").top_n(3, order="version DESC, t", key=["id"]).uid("op"),
            id="top_n of one group",
        ),
    ],
)
def test_tables_counts_and_state_are_those_of_data_frames(
    declare: Declare, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    land(tmp_path / "landing")
    made = run(spark, tmp_path, "made", declare, monkeypatch, after=NEVER)
    prepared = run(spark, tmp_path, "prepared", declare, monkeypatch, after=0)
    later = run(spark, tmp_path, "later", declare, monkeypatch, after=2)
    assert prepared.table == later.table == made.table
    assert prepared.counts == later.counts == made.counts
    assert prepared.state == later.state == made.state
    assert len(made.table) > EPOCHS // 2
    assert made.passes == []
    assert set(prepared.passes) == {"pairs op", "pairs op stored", "output shown changes"}
    assert set(later.passes) == {"pairs op stored", "output shown changes"}


def test_so_are_side_outputs(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sides = {"outdated": tm.OutputTag("outdated"), "incomplete": tm.OutputTag("incomplete")}

    def declare(rows: tm.Stream) -> tm.Stream:
        tags = {f"{name}_to": tag for name, tag in sides.items()}
        newest = rows.latest(by=["k"], sequence="version", deleted="gone", unchanged={"v": "v = -7.25"}, **tags)  # type: ignore[arg-type]
        return newest.uid("op")

    land(tmp_path / "landing")
    made = run(spark, tmp_path, "made", declare, monkeypatch, after=NEVER, sides=sides)
    prepared = run(spark, tmp_path, "prepared", declare, monkeypatch, after=0, sides=sides)
    assert prepared.sides == made.sides
    # Rows are added to them: each version has more than the one before.
    assert all(len(table) > EPOCHS // 2 for table in made.sides.values())
    assert all(table[-1] for table in made.sides.values())
    assert prepared.table == made.table
    assert prepared.counts == made.counts
    assert prepared.state == made.state
    # Rows that are looked up again, in an order that Spark numbers them in, are cached for the epoch: their pass reads no files.
    assert set(prepared.passes) == {"output shown changes"}
    assert made.passes == []

"""The newest and the best rows, of few rows, by passes whose plans are kept between epochs: the same tables, versions, counts and state."""

from __future__ import annotations

import os
from collections.abc import Mapping
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

EPOCHS = 5 if PROFILE == "long" else 3
"""Plans that are made after two of five run in three; those that are made at once run in the first epoch, and over what is stored."""


@dataclass(frozen=True)
class Ran:
    """The content of each version of the tables, the counts of each epoch, what state has at the end, and the prepared passes that ran."""

    tables: dict[str, list[list[str]]]
    counts: list[Any]
    state: dict[str, list[str]]
    passes: list[str]


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


OUTDATED, INCOMPLETE = tm.OutputTag("outdated"), tm.OutputTag("incomplete")
SIDES: Mapping[str, tuple[str, tm.OutputTag]] = {"outdated": ("sided", OUTDATED), "incomplete": ("sided", INCOMPLETE)}
"""By output, the operator and the tag."""


def rows_of(folder: Path, name: str) -> tm.Stream:
    """Return the landed rows as a source of their own: what several operators read is cached, and not prepared."""
    schema = "k STRING, t BIGINT, v DOUBLE, version INT, gone BOOLEAN"
    spec = tm.files(str(folder / "landing"), format="parquet", schema=schema, max_files_per_epoch=1)
    return tm.source(name, spec, watermarks=tm.bounded_out_of_orderness("1 minute", timestamp="t")).filter("v IS NULL OR v < 9")


def operators(folder: Path) -> dict[str, tm.Stream]:
    """Return the rows that each operator shows, by its uid."""
    rows = {uid: rows_of(folder, uid) for uid in ("latest", "sequenced", "sided", "placed", "one")}
    by_sequence: dict[str, Any] = {"by": ["k"], "sequence": "version", "deleted": "gone", "unchanged": {"v": "v = -7.25"}}
    one = rows["one"].with_columns(id="concat_ws(' ', t, v, version)")
    found = {
        "latest": rows["latest"].latest(by=["k"]).uid("latest").with_columns(twice="v * 2"),
        "sequenced": rows["sequenced"].latest(**by_sequence).uid("sequenced").with_columns(twice="v * 2"),
        "sided": rows["sided"].latest(**by_sequence, outdated_to=OUTDATED, incomplete_to=INCOMPLETE).uid("sided"),
        "placed": rows["placed"].top_n(2, by=["k"], order="v DESC", rank="place").uid("placed"),
        "one": one.top_n(3, order="version DESC, t", key=["id"]).uid("one"),
    }
    # The newest rows by a sequence have the passes of those without one.
    return {uid: stream for uid, stream in found.items() if uid != "latest" or PROFILE == "long"}


def run(spark: SparkSession, folder: Path, name: str, monkeypatch: pytest.MonkeyPatch, *, after: int) -> Ran:
    """Run a job of all operators over the landed files, with plans made after so many epochs."""
    shown = operators(folder)
    outputs = {uid: tm.delta(stream, str(folder / name / uid), mode="upsert") for uid, stream in shown.items()}
    outputs |= {side: tm.delta(shown[uid].side_output(tag), str(folder / name / side)) for side, (uid, tag) in SIDES.items()}
    job = tm.Job(name, outputs=outputs, store=str(folder / "store"))
    done, passes = run_noted(spark, job, monkeypatch, after=after)
    counts = [
        {
            "filters": epoch.filters,
            "outputs": {key: output.rows for key, output in epoch.outputs.items()},
            **{uid: (operator.keys, operator.rows_accepted, dict(operator.counters)) for uid, operator in epoch.operators.items()},
        }
        for epoch in done.epochs
    ]
    stored = savepoint(name, store=str(folder / "store"))
    state = {uid: sorted(map(str, stored.tables(uid, spark)["rows"].collect())) for uid in shown}
    return Ran({output: versions(folder / name / output) for output in outputs}, counts, state, passes)


def test_tables_counts_and_state_are_those_of_data_frames(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    land(tmp_path / "landing")
    made = run(spark, tmp_path, "made", monkeypatch, after=NEVER)
    prepared = run(spark, tmp_path, "prepared", monkeypatch, after=0)
    require_same(made, prepared)
    # Of side outputs each version has more than the one before, since rows are added to them.
    assert all(len(table) > EPOCHS // 2 for table in made.tables.values())
    assert all(made.tables[side][-1] for side in SIDES)
    assert made.passes == []
    # None is of side outputs.
    assert [name for name in prepared.passes if made.state.keys().isdisjoint(name.split())] == []
    for uid in made.state:
        first, stored, output = passes_of(uid)
        assert {name for name in prepared.passes if uid in name.split()} == first | stored | output


@only_long
def test_so_they_are_by_plans_that_are_made_later(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    land(tmp_path / "landing")
    made = run(spark, tmp_path, "made", monkeypatch, after=NEVER)
    later = run(spark, tmp_path, "later", monkeypatch, after=2)
    require_same(made, later)
    assert [name for name in later.passes if made.state.keys().isdisjoint(name.split())] == []
    for uid in made.state:
        _, stored, output = passes_of(uid)
        assert {name for name in later.passes if uid in name.split()} == stored | output


def require_same(made: Ran, prepared: Ran) -> None:
    assert prepared.tables == made.tables
    assert prepared.counts == made.counts
    assert prepared.state == made.state


def passes_of(uid: str) -> tuple[set[str], set[str], set[str]]:
    """Return the passes of an operator: of its first epoch, over what it has stored, and of its output."""
    # Rows that are looked up again, in an order that Spark numbers them in, are cached for the epoch: their pass reads no files.
    first, stored = (set[str](), set[str]()) if uid == "sided" else ({f"pairs {uid}"}, {f"pairs {uid} stored"})
    return first, stored, {f"output {uid} changes"}

"""The newest rows of many: written once, beside the rows before, from which changes are read; checked against a walk in plain Python."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tidemark as tm
from tests.seeds import PROFILE
from tidemark.spark.columns import few_rows
from tidemark.spark.operators.changelog import contents, pairs
from tidemark.spark.operators.changelog.contents import STORED
from tidemark.spark.operators.regular_join import concerned

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

EPOCHS = 6 if PROFILE == "long" else 3
Row = dict[str, Any]


def land(folder: Path) -> list[list[Row]]:
    """Write a file for each epoch, and return its rows: sequences are equal, missing and out of order, keys are deleted and come again."""
    folder.mkdir()
    dice, epochs = Random(17), []
    for epoch in range(EPOCHS):
        rows: list[Row] = [
            {
                "k": dice.choice([None, -0.0, 0.5, 1.5, 2.5, float("nan")]),
                "t": epoch * 1_000 + dice.randrange(5_000),
                "v": dice.choice([None, *range(9)]),
                "version": dice.choice([epoch, epoch + 1, epoch - 1, None]),
                "gone": dice.choice([True, False, False, None]),
            }
            for _ in range(30)
        ]
        types = {"k": pa.float64(), "t": pa.int64(), "v": pa.int32(), "version": pa.int32(), "gone": pa.bool_()}
        columns = {name: pa.array([row[name] for row in rows], kind) for name, kind in types.items()}
        pq.write_table(pa.table(columns), folder / f"{epoch}.parquet")
        os.utime(folder / f"{epoch}.parquet", (1_600_000_000 + epoch,) * 2)
        epochs.append(rows)
    return epochs


def by_walk(epochs: Sequence[Sequence[Row]], *, sequence: bool, deleted: bool) -> list[tuple[int, int, int, int]]:
    """Return of each epoch the number of keys, of rows with a value, the sum of values, and the number of outdated rows."""
    newest: dict[str, Row] = {}
    found = []
    for rows in epochs:
        outdated = 0
        for row in rows:
            key = str(row["k"]).replace("-0.0", "0.0")
            known = newest.get(key, {}).get("version") if sequence else None
            if known is not None and (row["version"] is None or row["version"] < known):
                outdated += 1
            elif deleted and row["gone"] and not sequence:
                newest.pop(key, None)
            else:
                newest[key] = row
        there = [row for row in newest.values() if not (deleted and row["gone"])]
        values = [row["v"] for row in there if row["v"] is not None]
        found.append((len(there), len(values), sum(values), outdated))
    return found


WAYS: dict[str, tuple[str | None, str | None]] = {"sequence": ("version", None), "deleted": (None, "gone"), "both": ("version", "gone")}
"""By which column rows are ordered, and which tells of a deleted key."""


@pytest.mark.parametrize("looked_up", [False, True])
def test_changes_and_counts_are_those_of_a_walk(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, looked_up: bool
) -> None:
    monkeypatch.setattr(few_rows, "FEW_ROWS", -1)  # of files of the input
    if looked_up:
        for module in (contents, pairs):
            monkeypatch.setattr(module, "MANY_ROWS", 0)
        monkeypatch.setattr(pairs, "FEW_OF", 0)
    given = land(tmp_path / "landing")
    files = tm.files(
        str(tmp_path / "landing"), format="parquet", schema="k DOUBLE, t BIGINT, v INT, version INT, gone BOOLEAN", max_files_per_epoch=1
    )
    rows = tm.source("rows", files, watermarks=tm.bounded_out_of_orderness("1 minute", timestamp="t"))
    outputs = {}
    # Of rows that are looked up, those with a sequence are read as those with deletions are.
    ways = {way: columns for way, columns in WAYS.items() if PROFILE == "long" or not looked_up or way != "sequence"}
    for way, (sequence, deleted) in ways.items():
        newest = rows.latest(by=["k"], sequence=sequence, deleted=deleted).uid(way)
        sums = newest.key_by(every="1").aggregate(keys=tm.count(), values=tm.count("v"), total=tm.sum("v")).uid(f"{way}_sums")
        outputs[way] = tm.parquet(sums, str(tmp_path / way))
    done = tm.run(tm.Job("once", outputs, store=str(tmp_path / "store")), spark=spark)

    for way, (sequence, deleted) in ways.items():
        written = sums_of(tmp_path / way)
        for epoch, (keys, values, total, outdated) in enumerate(by_walk(given, sequence=sequence is not None, deleted=deleted is not None)):
            row, counters = written[epoch], done.epochs[epoch].operators[way].counters
            assert (row["keys"], row["values"], row["total"] or 0) == (keys, values, total), way
            assert counters.get("outdated", 0) == outdated, way
        columns = {tuple(pq.read_schema(file).names) for file in (tmp_path / "store" / "once" / "state" / way).rglob("*.parquet")}
        # Where deleted keys are remembered, some rows of the state are no changes.
        assert any(STORED in names for names in columns) == (sequence is None or deleted is None), way


def sums_of(folder: Path) -> dict[int, Row]:
    """Return the rows that readers of an output see, by epoch."""
    rows = [row for file in folder.glob("*.parquet") for row in pq.ParquetFile(file).read().to_pylist()]
    return {row["epoch"]: row for row in rows}


def land_upserts(folder: Path, seed: int) -> list[list[Row]]:
    """Write a file of upserts for each epoch, whose join keys change, and return its rows."""
    folder.mkdir()
    dice, epochs = Random(seed), []
    for epoch in range(EPOCHS):
        rows = [{"id": dice.randrange(12), "k": dice.choice([None, 1, 2, 3]), "v": dice.randrange(100)} for _ in range(15)]
        pq.write_table(
            pa.Table.from_pylist([{**row, "t": epoch * 100 + number} for number, row in enumerate(rows)]), folder / f"{epoch}.parquet"
        )
        os.utime(folder / f"{epoch}.parquet", (1_600_000_000 + epoch,) * 2)
        epochs.append(rows)
    return epochs


def joined(left: Sequence[Row], right: Sequence[Row], how: str) -> tuple[int, int, int]:
    """Return the number of results, and the sum of the values of both sides, by a walk."""
    ones, others = ({row["id"]: row for row in rows}.values() for rows in (left, right))
    found = [(one["v"], other["v"]) for one in ones for other in others if one["k"] is not None and one["k"] == other["k"]]
    if how == "left":
        met = {other["k"] for other in others} - {None}
        found += [(one["v"], 0) for one in ones if one["k"] not in met]
    return len(found), sum(one for one, _ in found), sum(other for _, other in found)


def joined_job(folder: Path, *hows: Any) -> tm.Job:
    """Return a job over the files of ``left`` and ``right``: the newest rows of both, their joins, and the sums of the pairs of each."""

    def newest(side: str, value: str) -> tm.Stream:
        files = tm.files(str(folder / side), format="parquet", schema="id BIGINT, k BIGINT, v BIGINT, t BIGINT", max_files_per_epoch=1)
        rows = tm.source(side, files, watermarks=tm.ascending(timestamp="t")).select("k", "t", **{f"{side}_id": "id", value: "v"})
        return rows.latest(by=[f"{side}_id"], sequence="t").uid(f"newest_{side}").select(f"{side}_id", "k", value)

    left, right, outputs = newest("left", "v"), newest("right", "w"), {}
    for how in hows:
        pairs_of = left.join(right, on="k", how=how).uid(f"joined_{how}")
        sums = pairs_of.key_by(every="1").aggregate(n=tm.count(), one=tm.sum("v"), other=tm.sum("w")).uid(f"sums_{how}")
        outputs[how] = tm.parquet(sums, str(folder / "sums" / how))
    return tm.Job("joined", outputs, store=str(folder / "store"))


def test_many_changes_are_joined(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(few_rows, "FEW_ROWS", -1)
    monkeypatch.setattr(concerned, "FEW_ROWS", -1)  # so that all stored rows are read
    given = {side: land_upserts(tmp_path / side, seed) for seed, side in enumerate(("left", "right"))}
    # The results of a left join are those of an inner one, and rows that are alone.
    hows = ("inner", "left") if PROFILE == "long" else ("left",)
    tm.run(joined_job(tmp_path, *hows), spark=spark)
    for how in hows:
        written = sums_of(tmp_path / "sums" / how)
        for epoch in range(EPOCHS):
            ones, others = ([row for rows in given[side][: epoch + 1] for row in rows] for side in ("left", "right"))
            row = written[epoch]
            assert (row["n"], row["one"], row["other"] or 0) == joined(ones, others, how), how


def test_changes_of_a_known_number_are_read_once(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(few_rows, "FEW_ROWS", -1)
    given = [land_upserts(tmp_path / side, seed) for seed, side in enumerate(("left", "right"))]
    first, *_ = tm.run(joined_job(tmp_path, "inner"), spark=spark, max_epochs=1).epochs
    assert first.operators["joined_inner"].rows_in == sum(len({row["id"] for row in epochs[0]}) for epochs in given)
    # One for the newest rows of each side, two for the join, and two for the sums: none that only reads the changes of the left side.
    assert first.spark_jobs == 6

"""The temporal join in the engine, against what the contract says of each epoch."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import tidemark as tm
from tests.engine.lab import NOW, require_conservation
from tests.joins.asof_programs import Element, Program, expected, random_program, recut
from tests.seeds import PROFILE, only_long
from tidemark.state.gc.compaction import plan_compaction
from tidemark.state.log.progress import EpochProgress
from tidemark.testing import ManualClock

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

EPOCHS = 7 if PROFILE == "long" else 4
BASE = 1_700_000_000_000
LATE_LEFT, LATE_RIGHT = tm.OutputTag("late-left"), tm.OutputTag("late-right")

Seen = dict[str, Counter[tuple[object, ...]]]


def side(name: str, epochs: Sequence[Sequence[Element]], bound: int, columns: str) -> tm.Stream:
    """Return a source of one side."""
    rows = [[(datetime.fromtimestamp((BASE + time) / 1000, UTC), key, number) for time, key, number in epoch] for epoch in epochs]
    at = columns.split(maxsplit=1)[0]
    watermarks = tm.bounded_out_of_orderness(f"{bound} milliseconds", timestamp=at)
    return tm.source(name, tm.from_elements(epochs=rows, schema=columns), watermarks=watermarks)


def joined(program: Program, how: str, lateness: int) -> tm.Stream:
    """Return the join of a program's sides."""
    lefts = side("lefts", program.lefts, program.left_bound, "t TIMESTAMP, k STRING, n INT")
    rights = side("rights", program.rights, program.right_bound, "rt TIMESTAMP, code STRING, version INT")
    corrects: dict[str, Any] = {"allowed_lateness": f"{lateness} milliseconds", "key": ["n"]} if lateness else {}
    return lefts.join_asof(
        rights,
        on={"k": "code"},
        how=how,  # type: ignore[arg-type]
        late_left_to=LATE_LEFT,
        late_right_to=LATE_RIGHT,
        **corrects,
    ).uid("asof")


def run(spark: SparkSession, folder: Path, stream: tm.Stream, *, parallelism: int | None = None, **settings: Any) -> list[Seen]:
    """Run it; return the rows of each epoch, by output."""
    tables = {name: f"{folder}/{name}" for name in ("rows", "left", "right")}
    streams = {"rows": stream, "left": stream.side_output(LATE_LEFT), "right": stream.side_output(LATE_RIGHT)}
    outputs = {name: tm.memory(each, tables[name]) for name, each in streams.items()}
    job = tm.Job("asof", outputs=outputs, store=f"{folder}/store", parallelism=parallelism)
    found: list[Seen] = []

    def after(epoch: EpochProgress) -> None:
        require_conservation(epoch)
        seen: Seen = {}
        for name, table in tables.items():
            made = tm.memory_table(table)
            rows = [] if made is None else made.to_pylist()
            tm.clear_memory(table)
            wanted = {"rows": ("n", "version", "operation"), "left": ("n",), "right": ("version",)}[name]
            seen[name] = Counter(tuple(row[column] for column in wanted if column in row) for row in rows)
        found.append(seen)

    tm.run(job, spark=spark, clock=ManualClock(NOW), on_epoch=after, end_of_input=True, handle_signals=False, **settings)
    return found


def wanted_of(program: Program, how: str, lateness: int) -> list[Seen]:
    """Return the same by the contract; the end of input has an epoch of its own."""
    found: list[Seen] = []
    for each in expected(Program((*program.lefts, ()), (*program.rights, ()), program.left_bound, program.right_bound), lateness):
        rows = [(row[2], row[3], "insert") for row in each.new if how == "left" or row[3] is not None]
        for was, now in each.corrected:
            inserted = how == "inner" and (was is None or was[3] is None)
            rows.append((now[2], now[3], "insert" if inserted else "update"))
        shown = [row if lateness else row[:2] for row in rows]
        lates = ([(number,) for number in each.late_lefts], [(number,) for number in each.late_rights])
        found.append({"rows": Counter(shown), "left": Counter(lates[0]), "right": Counter(lates[1])})
    return found


CASES = [
    pytest.param((1, "left", 0, 1), marks=only_long),
    (2, "inner", 0, 2),
    (13, "left", 12, 7),
    pytest.param((4, "inner", 25, 2), marks=only_long),
]
"""Seed, kind, lateness and parallelism; each kind, with lateness and without."""


@pytest.mark.parametrize("case", CASES)
def test_each_epoch_answers_what_the_contract_says(spark: SparkSession, tmp_path: Path, case: tuple[int, str, int, int]) -> None:
    seed, how, lateness, parallelism = case
    program = random_program(seed, epochs=EPOCHS)
    found = run(spark, tmp_path / "whole", joined(program, how, lateness), parallelism=parallelism)
    wanted = wanted_of(program, how, lateness)
    assert len(found) == len(wanted)
    for number, (one, other) in enumerate(zip(found, wanted, strict=True)):
        assert one == other, number
    assert sum((each["left"] + each["right"] for each in wanted), Counter())


@pytest.mark.parametrize("lateness", [0, 12])
def test_files_that_are_merged_and_versions_that_are_looked_up_answer_the_same(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lateness: int
) -> None:
    where = "tidemark.spark.operators.asof_join.runtime"
    monkeypatch.setattr(f"{where}.MANY_ROWS", -1)
    monkeypatch.setattr(f"{where}.MAX_GARBAGE", 0)
    monkeypatch.setattr(f"{where}.plan_compaction", partial(plan_compaction, min_files=1))
    program = random_program(13, epochs=EPOCHS)
    assert run(spark, tmp_path, joined(program, "left", lateness), parallelism=2) == wanted_of(program, "left", lateness)


def test_other_cuts_into_epochs(spark: SparkSession, tmp_path: Path) -> None:
    program = recut(random_program(9), 5)
    assert run(spark, tmp_path, joined(program, "left", 12), parallelism=2) == wanted_of(program, "left", 12)

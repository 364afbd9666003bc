"""The engine runs random programs as the reference does, at any parallelism; more than a thousand of them as the keys of a run."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import tidemark as tm
from tests.keyed_process.worlds import BOUND, SCHEMA, SIDES, VARIANTS, World, fact_text, side_tag
from tests.seeds import only_long
from tidemark.state.log.progress import EpochProgress, OperatorProgress
from tidemark.testing import ManualClock

if TYPE_CHECKING:
    from pyspark.sql import Row, SparkSession

KEYS = 300
"""Programs of each operator."""


class Run:
    """A job with an operator for each choice of lifetimes."""

    def __init__(self, spark: SparkSession, folder: Path, world: World, *, parallelism: int) -> None:
        self.spark, self.world = spark, world
        self.prefix = f"{folder}/"
        given = tm.from_elements(epochs=[epoch.rows for epoch in world.epochs], schema=SCHEMA)
        source = tm.source("programs", given, watermarks=tm.bounded_out_of_orderness(f"{BOUND} ms", timestamp="t"))
        outputs: dict[str, Any] = {}
        for number, ttl in enumerate(VARIANTS):
            stream = world.stream(ttl, f"p{number}", source)
            outputs[f"main-{number}"] = tm.memory(stream, self.table(f"main-{number}"))
            for name in (*SIDES, "failed"):
                outputs[f"{name}-{number}"] = tm.memory(stream.side_output(side_tag(name, f"p{number}")), self.table(f"{name}-{number}"))
        self.job = tm.Job("programs", outputs=outputs, store=f"{folder}/store", parallelism=parallelism)
        self.progress: list[EpochProgress] = []

    def table(self, output: str) -> str:
        return self.prefix + output

    def run(self) -> None:
        clock = ManualClock(self.world.epochs[0].processing_time)
        times = [epoch.processing_time for epoch in self.world.epochs][1:]

        def after(progress: EpochProgress) -> None:
            self.progress.append(progress)
            if times:
                clock.set(times.pop(0))

        tm.run(self.job, spark=self.spark, clock=clock, on_epoch=after, max_epochs=len(self.world.epochs), handle_signals=False)

    def facts(self, number: int) -> Counter[str]:
        found: Counter[str] = Counter()
        for row in self.rows(f"main-{number}"):
            found[fact_text(row["k"], "main", row["at"], json.loads(row["fact"]))] += 1
        for name in SIDES:
            found.update(fact_text(row["k"], name, row["at"]) for row in self.rows(f"{name}-{number}"))
        for row in self.rows(f"failed-{number}"):
            key, at = (row["k"], row["t"]) if row["k"] is not None else _timer_of(row["error"])
            found[fact_text(key, "failed", at)] += 1
        return found

    def rows(self, output: str) -> list[dict[str, Any]]:
        table = tm.memory_table(self.table(output))
        return [] if table is None else table.to_pylist()

    def operators(self, number: int) -> list[OperatorProgress]:
        return [epoch.operators[f"p{number}"] for epoch in self.progress]


def _timer_of(error: str) -> tuple[str, int]:
    """Return key and time of a timer whose call failed."""
    at = int(error.removeprefix("timer at ").partition(" ")[0])
    return error.partition("{'k': '")[2].partition("'")[0], at


def _kept(row: Row) -> dict[str, list[list[Any]]]:
    """Return the states of a key as the reference has them: map key or None, and value."""
    found: dict[str, list[list[Any]]] = {
        "value": [] if row.value is None else [[None, row.value]],
        "list": [[None, value] for value in row.list or ()],
        "map": [[key, value] for key, value in (row.map or {}).items()],
        "most": [] if row.most is None else [[None, row.most]],
        "sum": [] if row["sum"] is None else [[None, (row["sum"].total, row["sum"].n)]],
    }
    return {name: sorted(entries) if name == "map" else entries for name, entries in found.items() if entries}


@pytest.mark.spark
@pytest.mark.parametrize("parallelism", [pytest.param(1, marks=only_long), 7])
def test_programs_by_the_engine_and_by_the_reference(spark: SparkSession, tmp_path: Path, parallelism: int) -> None:
    run = Run(spark, tmp_path, World.draw(parallelism, keys=KEYS, epochs=3), parallelism=parallelism)
    run.run()
    stored = tm.savepoint(run.job)
    for number, ttl in enumerate(VARIANTS):
        facts, states, timers, expired = run.world.expected(ttl)
        assert run.facts(number) == facts, number
        tables = stored.tables(f"p{number}", spark)
        assert {row.k: _kept(row) for row in tables["keys"].collect()} == states, number
        found = tables["timers"].selectExpr("k", "domain", "unix_millis(due) AS due", "name").collect()
        assert Counter(str((row.k, row.domain, row.due, row.name)) for row in found) == timers, number
        seen = run.operators(number)
        assert (seen[-1].keys, seen[-1].timers) == (len(states), timers.total())
        # A key that waits for a timer loses what has expired only then.
        assert 0 < sum(each.state_expired for each in seen) <= expired or number == 0

"""Few results of a process function are written by the driver, and are those that Spark writes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark import TaskContext

import tidemark as tm
from tests.engine.lab import Lab, elements
from tests.seeds import some
from tidemark.spark.operators.keyed import task_run
from tidemark.spark.operators.keyed.task_run import TaskOutput
from tidemark.spark.prepared.prepared_pass import PreparedPass
from tidemark.spark.prepared.prepared_plan import PassRows
from tidemark.state.log.progress import EpochProgress

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

HIGH, MALFORMED = tm.OutputTag("high"), tm.OutputTag("malformed")
RETURNS = "k BIGINT, total DOUBLE NOT NULL, seen ARRAY<STRUCT<at: TIMESTAMP, by: MAP<STRING, BIGINT>>>"
Row = Mapping[str, Any]


class Totals:
    """Adds up; high values are emitted aside, too."""

    total = tm.value_state("DOUBLE", default=0.0)

    def process(self, element: Row, ctx: tm.ProcessContext) -> Iterator[Row]:
        self.total.update(self.total.value() + element["v"])
        if element["v"] > 50:
            ctx.output(HIGH, {"v": element["v"], "n": element["n"]})
        yield {"k": ctx.current_key["k"], "total": self.total.value(), "seen": [{"at": element["at"], "by": {"n": element["n"]}}]}


class Passing:
    """Emits the key of each element."""

    def process(self, element: Row, ctx: tm.ProcessContext) -> Iterator[Row]:
        del ctx
        yield {"k": element["k"]}


def written(folder: Path) -> list[list[list[Any]]]:
    """Write three files, an epoch each, in which some rows have no time; return the rows that have one, by file."""
    folder.mkdir()
    found: list[list[list[Any]]] = []
    for number in range(3):
        # Where there is no time the key is no number, either.
        rows = [[f"{n % 3}", 1_000 * (10 * number + n), float(10 * n), n] if n % 4 else [f"x{n}", None, 0.0, n] for n in range(1, 10)]
        columns = zip(rows[0], *rows[1:], strict=True)
        kinds = (pa.string(), pa.timestamp("ms", "UTC"), pa.float64(), pa.int64())
        table = pa.table([pa.array(column, kind) for column, kind in zip(columns, kinds, strict=True)], names=["key", "at", "v", "n"])
        pq.write_table(table, folder / f"{number}.parquet")
        found.append([row for row in rows if row[1] is not None])
    return found


def run(tmp_path: Path, spark: SparkSession, *, filtered: bool = False, only: str | None = None) -> list[EpochProgress]:
    """Run the job, whose key can be computed for well-formed rows only, with all outputs or one."""
    files = tm.files(str(tmp_path / "in"), format="parquet", schema="key STRING, at TIMESTAMP, v DOUBLE, n BIGINT", max_files_per_epoch=1)
    source = tm.source("rows", files, watermarks=tm.ascending(timestamp="at"), malformed_to=MALFORMED)
    rows = source.filter("v < 90") if filtered else source.with_columns(v="v + 0")
    totals = rows.key_by(k="CAST(key AS BIGINT)").process(Totals, returns=RETURNS, side_outputs={HIGH: "v DOUBLE, n BIGINT"}).uid("totals")
    outputs = {
        "totals": tm.parquet(totals, str(tmp_path / "totals")),
        "great": tm.parquet(totals.filter("total > 100").select("k", "total"), str(tmp_path / "great")),
        "high": tm.parquet(totals.side_output(HIGH), str(tmp_path / "high")),
        "malformed": tm.parquet(source.side_output(MALFORMED), str(tmp_path / "malformed")),
    }
    chosen = {name: output for name, output in outputs.items() if only in (None, name)}
    return list(tm.run(tm.Job("totals", chosen, store=str(tmp_path / "store")), spark=spark).epochs)


def read(folder: Path, *names: str) -> list[tuple[Any, ...]]:
    """Return the rows of a table, ordered."""
    return sorted(tuple(row[name] for name in names) for row in pq.read_table(folder).to_pylist())


def totals_of(files: list[list[list[Any]]]) -> list[tuple[int, float]]:
    """Return what the function is to emit for rows of files, each of them in the order of times."""
    sums: dict[int, float] = {}
    found = []
    for rows in files:
        for key, _, value, _ in sorted(rows, key=lambda row: int(row[1])):
            sums[int(key)] = sums.get(int(key), 0.0) + value
            found.append((int(key), sums[int(key)]))
    return sorted(found)


def read_by_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have Spark read what a pass wrote, as where there are many rows."""
    for judge in ("driver_can_read", "driver_can_unpack"):
        monkeypatch.setattr(task_run, judge, lambda rows, _: rows <= 1)


@dataclass(frozen=True)
class World:
    """A run that is over: its folder, the rows of its files, and its epochs."""

    folder: Path
    given: list[list[list[Any]]]
    epochs: list[EpochProgress]


Worlds = Callable[[bool, bool], World]


@pytest.fixture(scope="module")
def world(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Worlds:
    """Return what gives the run of few rows, or of such as are many, with a filter or without; each is made once."""

    @cache
    def made(few: bool, filtered: bool) -> World:  # noqa: FBT001 - as the tests' parameters
        folder = tmp_path_factory.mktemp("world")
        given = written(folder / "in")
        with pytest.MonkeyPatch.context() as patch:
            if not few:
                read_by_spark(patch)
            return World(folder, given, run(folder, spark, filtered=filtered))

    return made


@pytest.mark.parametrize(("few", "filtered"), some([(False, False), (False, True), (True, True), (True, False)], 2, first=1))
def test_rows_are_counted_and_written_once(world: Worlds, *, few: bool, filtered: bool) -> None:
    ran = world(few, filtered)
    tmp_path, given, epochs = ran.folder, ran.given, ran.epochs
    passing = [[row for row in rows if row[2] < 90 or not filtered] for rows in given]
    counts = [(epoch.rows_in, epoch.rows_malformed, epoch.operators["totals"].rows_in) for epoch in epochs]
    assert counts == [(9, 2, len(rows)) for rows in passing]
    # The source's latest time is that of its rows, also of those that a filter rejects.
    assert [epoch.watermark for epoch in epochs] == [max(row[1] for row in rows) - 1 for rows in given]
    expected = totals_of(passing)
    assert read(tmp_path / "totals", "k", "total") == expected
    assert read(tmp_path / "great", "k", "total") == [row for row in expected if row[1] > 100]
    high = sorted((row[2], row[3]) for rows in passing for row in rows if row[2] > 50)
    assert read(tmp_path / "high", "v", "n") == high
    assert len(read(tmp_path / "malformed", "reason")) == 6
    seen = [row["seen"] for row in pq.read_table(tmp_path / "totals").to_pylist()]
    assert sorted((each["at"].timestamp() * 1000, dict(each["by"])["n"]) for (each,) in seen) == sorted(
        (row[1], row[3]) for rows in passing for row in rows
    )


def test_few_rows_take_no_spark_job_of_their_own(world: Worlds) -> None:
    jobs, more = ([epoch.spark_jobs for epoch in world(few, False).epochs] for few in (True, False))
    # The results, and the side output.
    assert [after - before for before, after in zip(jobs, more, strict=True)] == [2, 2, 2]


@pytest.mark.parametrize("fit", [True, False])
def test_more_rows_are_read_by_the_driver_while_they_fit_unpacked(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, *, fit: bool
) -> None:
    monkeypatch.setattr(task_run, "driver_can_read", lambda *_: False)
    if not fit:
        monkeypatch.setattr(task_run, "UNPACKED_BYTES", 0)
    found: list[bool] = []
    as_it_is = TaskOutput.read_few

    def noted(self: TaskOutput, *arguments: Any) -> PassRows | None:
        rows = as_it_is(self, *arguments)
        found.append(rows is not None)
        return rows

    monkeypatch.setattr(TaskOutput, "read_few", noted)
    given = written(tmp_path / "in")
    run(tmp_path, spark, only="totals")
    assert found == [fit] * 3
    assert read(tmp_path / "totals", "k", "total") == totals_of(given)


def test_few_rows_behind_a_filter_are_made_by_a_plan_that_is_kept(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[tuple[str, str | None, bool]] = []
    as_it_is = PreparedPass.run

    def noted(self: PreparedPass, *arguments: Any) -> PassRows | None:
        rows = as_it_is(self, *arguments)
        found.append((self.name, self.refused, rows is not None))
        return rows

    monkeypatch.setattr(PreparedPass, "PREPARED_AFTER", 0)
    monkeypatch.setattr(PreparedPass, "run", noted)
    given = written(tmp_path / "in")
    run(tmp_path, spark, only="great")
    assert found == [("output great results", None, True)] * 3
    assert read(tmp_path / "great", "k", "total") == [row for row in totals_of(given) if row[1] > 100]


def with_task(row: Row) -> Row:
    """Return a row of a function that may be slow, with the number of the task that it runs in."""
    context = TaskContext.get()
    assert context is not None
    return {"k": row["k"], "task": context.partitionId()}


def test_a_function_that_takes_few_rows_has_several_tasks(tmp_path: Path, spark: SparkSession) -> None:
    rows = elements([(t, t) for t in range(40)], schema="t BIGINT, k BIGINT")
    passed = rows.key_by("k").process(Passing, returns="k BIGINT").uid("passing")
    ran = Lab(spark, tmp_path).run({"tasks": passed.map(with_task, returns="k BIGINT, task INT")})
    assert ran.of("tasks", "k") == sorted(range(40), key=str)
    assert len(set(ran.of("tasks", "task"))) > 1

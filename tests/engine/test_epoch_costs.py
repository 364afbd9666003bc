"""What a small epoch costs, in numbers that do not depend on the machine: Spark jobs, rules applied to plans, calls to the JVM, new files.

The bounds are today's numbers, a little rounded up. A change that exceeds one makes every epoch of every job slower.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import py4j.java_gateway
import py4j.protocol
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tidemark as tm
from tests.engine.lab import NOW
from tests.few_rows import counted_rules
from tidemark.spark.resources.sampler import THREAD
from tidemark.state.log.progress import EpochProgress
from tidemark.testing.manual_clock import ManualClock

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

EPOCHS = 8
FEWER_EPOCHS = 6
"""Of process functions, whose plans are made anew in each."""

MINUTE = 60_000

SPARK_JOBS = 1
RULES = 78
"""Rules that Spark applied to plans and expressions: 2,800 where the pass is analysed, optimised and planned. These are one for each
expression that code is generated for, 5 microseconds each; 17 of them count late rows by how much more lateness would have kept them."""


@dataclass(frozen=True)
class Cost:
    """What an epoch cost: Spark jobs, rules applied to plans, calls to the JVM, new files in the store."""

    jobs: int
    rules: int
    calls: int
    files: int


OF_JOINS = {"interval": Cost(3, 340, 57, 5), "window": Cost(3, 220, 57, 5), "asof": Cost(4, 265, 72, 5)}
"""Of joins of few rows of both inputs: a job for each input and one for the results; a temporal join has one for its answers, too.

Without plans that are kept, an interval join has 570 calls. One call for each input is for the types of the columns
in its files. There is a state file, and an entry in the log of files read, for each input.
"""

OF_PROCESS = Cost(2, 6_600, 460, 11)
"""Of a process function in Python: a job that packs the elements, and one that passes them to the function. Their plans are made in each
epoch; the few results are written without a plan."""

CALLS = 25
FILES = 3
"""A state file, the epoch's record, and the entry in the log of files read."""


def land(folder: Path, *, epochs: int = EPOCHS, **columns: list[str] | list[int]) -> None:
    """Write a file of three rows for each epoch."""
    folder.mkdir()
    for number in range(epochs):
        file = folder / f"{number}.parquet"
        pq.write_table(pa.table({**columns, "t": [number * MINUTE + row for row in range(3)]}), file)
        os.utime(file, (1_600_000_000 + number,) * 2)


def landed(folder: Path, schema: str) -> tm.Stream:
    spec = tm.files(str(folder), format="parquet", schema=schema, max_files_per_epoch=1)
    return tm.source(folder.name, spec, watermarks=tm.bounded_out_of_orderness("1 minute", timestamp="t"))


def costs_of(job: tm.Job, store: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> list[Cost]:
    """Run a job; return what each of its epochs cost."""
    calls: list[int] = [0]
    costs: list[Cost] = []
    rules = spark.sparkContext._jvm.org.apache.spark.sql.catalyst.rules.RuleExecutor  # type: ignore[union-attr]  # noqa: SLF001
    before: list[set[Path]] = [set()]
    send = py4j.java_gateway.GatewayClient.send_command

    def counted(client: Any, command: str, *args: Any, **kwargs: Any) -> Any:
        # Python's garbage collection releases objects of the JVM, at any time and also those of tests before; resources are measured
        # every ten seconds, by one call (tests/driver_resources).
        released = command.startswith(py4j.protocol.MEMORY_COMMAND_NAME)
        calls[0] += not released and threading.current_thread().name != THREAD
        return send(client, command, *args, **kwargs)

    def note(epoch: EpochProgress) -> None:
        files = {path for path in store.rglob("*") if path.is_file()}
        costs.append(Cost(epoch.spark_jobs, rules.getCurrentMetrics().numRuns(), calls[0], len(files - before[0])))
        rules.resetMetrics()
        calls[0], before[0] = 0, files

    monkeypatch.setattr(py4j.java_gateway.GatewayClient, "send_command", counted)
    with counted_rules(spark):
        tm.run(job, spark=spark, clock=ManualClock(NOW), on_epoch=note)
    assert len(costs) in (EPOCHS, FEWER_EPOCHS)
    assert costs[0].rules > 1_000  # the first epoch's plans were made
    return costs


def test_an_epoch_of_few_rows_from_files(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    land(tmp_path / "landing", k=["a", "b", "c"])
    late, store = tm.OutputTag("late"), tmp_path / "store"
    rows = landed(tmp_path / "landing", "k STRING, t BIGINT")
    panes = rows.key_by("k").window(tm.tumbling("1 hour")).late_to(late).aggregate(n=tm.count()).uid("w")
    outputs = {"panes": tm.parquet(panes, str(tmp_path / "panes")), "late": tm.parquet(panes.side_output(late), str(tmp_path / "late"))}
    costs = costs_of(tm.Job("job", outputs=outputs, store=str(store)), store, spark, monkeypatch)
    # The first epochs set up what the later ones reuse.
    later = costs[3:]
    assert {cost.jobs for cost in later} == {SPARK_JOBS}
    assert max(cost.rules for cost in later) <= RULES, costs
    assert 0 < max(cost.calls for cost in later) <= CALLS, costs
    assert 0 < max(cost.files for cost in later) <= FILES, costs


@pytest.mark.parametrize("kind", list(OF_JOINS))
def test_an_epoch_of_a_join(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    land(tmp_path / "left", k=["a", "b", "c"], v=["1", "2", "3"])
    land(tmp_path / "right", k=["a", "b", "d"], w=["1", "2", "3"])
    left, right = landed(tmp_path / "left", "k STRING, t BIGINT, v STRING"), landed(tmp_path / "right", "k STRING, t BIGINT, w STRING")
    right = right.select("k", "w")
    joins = {
        "interval": lambda: left.join(right, on="k", how="left", within=("-1 minute", "1 minute")),
        "window": lambda: left.window_join(right, on="k", window=tm.tumbling("1 minute"), how="left"),
        "asof": lambda: left.join_asof(right, on="k", how="left"),
    }
    outputs = {"pairs": tm.parquet(joins[kind]().uid("j"), str(tmp_path / "pairs"))}
    costs = costs_of(tm.Job("job", outputs=outputs, store=str(tmp_path / "store")), tmp_path / "store", spark, monkeypatch)
    # A part of the pass that some epochs do not have is planned once more when it comes; files are merged in one of the last epochs.
    least = sorted(costs[3:], key=lambda cost: cost.calls)[1]
    assert least.jobs == OF_JOINS[kind].jobs
    assert least.rules <= OF_JOINS[kind].rules, costs
    assert 0 < least.calls <= OF_JOINS[kind].calls, costs
    assert 0 < least.files <= OF_JOINS[kind].files, costs


class Totals:
    """Adds up; a timer gives the total of a minute."""

    total = tm.map_state("BIGINT", "BIGINT")

    def process(self, element: Mapping[str, Any], ctx: tm.ProcessContext) -> None:
        end = ctx.timestamp - ctx.timestamp % MINUTE + MINUTE
        if not self.total.contains(end):
            ctx.timer_service().register_event_time_timer(end - 1)
        self.total.put(end, (self.total.get(end) or 0) + element["v"])

    def on_timer(self, timestamp: int, ctx: tm.ProcessContext) -> Iterator[Mapping[str, object]]:
        yield {"k": ctx.current_key["k"], "at": timestamp, "total": self.total.get(timestamp + 1)}
        self.total.remove(timestamp + 1)


def test_an_epoch_of_a_process_function(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    land(tmp_path / "landing", epochs=FEWER_EPOCHS, k=["a", "b", "c"], v=[1, 2, 3])
    rows = landed(tmp_path / "landing", "k STRING, t BIGINT, v BIGINT")
    totals = rows.key_by("k").process(Totals(), returns="k STRING, at BIGINT, total BIGINT").uid("p")
    job = tm.Job("job", outputs={"totals": tm.parquet(totals, str(tmp_path / "totals"))}, store=str(tmp_path / "store"))
    costs = costs_of(job, tmp_path / "store", spark, monkeypatch)
    least = sorted(costs[3:], key=lambda cost: cost.calls)[1]
    assert least.jobs == OF_PROCESS.jobs
    assert least.rules <= OF_PROCESS.rules, costs
    assert 0 < least.calls <= OF_PROCESS.calls, costs
    assert 0 < least.files <= OF_PROCESS.files, costs

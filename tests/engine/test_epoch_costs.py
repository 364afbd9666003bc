"""What a small epoch costs, in numbers that do not depend on the machine: Spark jobs, rules applied to plans, calls to the JVM, new files.

The bounds are today's numbers, a little rounded up. A change that exceeds one makes every epoch of every job slower.
"""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import py4j.java_gateway
import py4j.protocol
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tidemark as tm
from tests.engine.lab import NOW
from tidemark.spark.resources.sampler import THREAD
from tidemark.state.log.progress import EpochProgress
from tidemark.testing.manual_clock import ManualClock

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

EPOCHS = 8
MINUTE = 60_000

SPARK_JOBS = 1
RULES = 78
"""Rules that Spark applied to plans and expressions: 2,800 where the pass is analysed, optimised and planned. These are one for each
expression that code is generated for, 5 microseconds each; 17 of them count late rows by how much more lateness would have kept them."""

CALLS = 25
FILES = 3
"""A state file, the epoch's record, and the entry in the log of files read."""


def test_an_epoch_of_few_rows_from_files(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    landing, store = tmp_path / "landing", tmp_path / "store"
    landing.mkdir()
    for number in range(EPOCHS):
        file = landing / f"{number}.parquet"
        pq.write_table(pa.table({"k": ["a", "b", "c"], "t": [number * MINUTE + row for row in range(3)]}), file)
        os.utime(file, (1_600_000_000 + number,) * 2)
    spec = tm.files(str(landing), format="parquet", schema="k STRING, t BIGINT", max_files_per_epoch=1)
    late = tm.OutputTag("late")
    rows = tm.source("landing", spec, watermarks=tm.bounded_out_of_orderness("1 minute", timestamp="t"))
    panes = rows.key_by("k").window(tm.tumbling("1 hour")).late_to(late).aggregate(n=tm.count()).uid("w")
    outputs = {"panes": tm.parquet(panes, str(tmp_path / "panes")), "late": tm.parquet(panes.side_output(late), str(tmp_path / "late"))}
    calls: list[int] = [0]
    costs: list[tuple[int, int, int, int]] = []
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
        costs.append((epoch.spark_jobs, rules.getCurrentMetrics().numRuns(), calls[0], len(files - before[0])))
        rules.resetMetrics()
        calls[0], before[0] = 0, files

    monkeypatch.setattr(py4j.java_gateway.GatewayClient, "send_command", counted)
    tm.run(tm.Job("job", outputs=outputs, store=str(store)), spark=spark, clock=ManualClock(NOW), on_epoch=note)
    assert len(costs) == EPOCHS
    # The first epochs set up what the later ones reuse.
    jobs, applied, called, written = (max(column) for column in zip(*costs[3:], strict=True))
    assert jobs == SPARK_JOBS
    assert applied <= RULES, costs
    assert costs[0][1] > 1_000  # the first epoch's plans were made
    assert 0 < called <= CALLS, costs
    assert 0 < written <= FILES, costs

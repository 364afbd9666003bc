"""Processes that die under a driver that lives on: Spark's Python workers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from deltalake import DeltaTable

import tidemark as tm
from tests.crash.child import call
from tests.crash.warm_jvm import attach, warm_jvm
from tests.seeds import only_long
from tidemark.errors import TidemarkError
from tidemark.state.log.joblog import JobLog
from tidemark.state.store.store import JobStore

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.crash, pytest.mark.spark]

MINUTE = 60_000
BATCHES = [[(number, number * MINUTE) for number in range(first, first + 10)] for first in (0, 10, 20)]
VICTIM = 13
"""The element at which a worker dies: it is of the second epoch."""


def lethal(mark: Path) -> Callable[[dict[str, object]], Iterator[dict[str, object]]]:
    """Return a function that makes two elements of each, and once kills the process that it runs in between two of them."""

    def twice(row: dict[str, object]) -> Iterator[dict[str, object]]:
        import os
        import signal

        yield {"id": row["id"], "at": row["at"]}
        if row["id"] == VICTIM and not mark.exists():
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        yield {"id": row["id"], "at": row["at"]}

    return twice


def job_in(folder: Path) -> tm.Job:
    elements = tm.from_elements(epochs=BATCHES, schema="id BIGINT, at BIGINT")
    source = tm.source("elements", elements, watermarks=tm.bounded_out_of_orderness("0 ms", timestamp="at"))
    doubled = source.flat_map(lethal(folder / "died"), returns="id BIGINT, at BIGINT")
    counts = doubled.key_by(part="id % 2").window(tm.tumbling("5 minutes")).aggregate(n=tm.count()).uid("counts")
    outputs = {"rows": tm.delta(doubled, str(folder / "rows")), "counts": tm.delta(counts, str(folder / "counts"))}
    return tm.Job("workers", outputs=outputs, store=str(folder / "store"))


def epochs_of(folder: Path) -> list[int]:
    return [record.epoch for record in JobLog(JobStore.open(str(folder / "store")).at("workers"), "workers").epochs()]


def rows_of(folder: Path) -> Counter[int]:
    return Counter(DeltaTable(str(folder / "rows")).to_pyarrow_table()["id"].to_pylist())


def require_all_once(folder: Path) -> None:
    """Check that every element is there twice, as it has to be, in the table, in the windows and in the job's own counts."""
    assert rows_of(folder) == Counter({number: 2 for batch in BATCHES for number, _ in batch})
    assert sum(DeltaTable(str(folder / "counts")).to_pyarrow_table()["n"].to_pylist()) == 60
    head = JobLog(JobStore.open(str(folder / "store")).at("workers"), "workers").load().epoch
    assert head is not None
    assert head.totals["sources"]["elements"] == {"read": 30, "passed": 30, "malformed": 0}
    assert (head.totals["operators"]["counts"]["in"], head.totals["outputs"]["rows"]) == (60, 60)


def test_a_worker_that_dies_where_tasks_are_not_retried_ends_the_run(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(TidemarkError, match="epoch 1"):
        tm.run(job_in(tmp_path), spark=spark, end_of_input=True, handle_signals=False)
    assert (tmp_path / "died").exists()
    assert epochs_of(tmp_path) == [0]
    assert rows_of(tmp_path) == Counter({number: 2 for number, _ in BATCHES[0]})
    tm.run(job_in(tmp_path), spark=spark, end_of_input=True, handle_signals=False)
    require_all_once(tmp_path)


@only_long
def test_a_worker_that_dies_where_tasks_are_retried_is_not_noticed(tmp_path: Path) -> None:
    with warm_jvm() as variables:
        call("tests.crash.test_processes", "drive", str(tmp_path), environment=variables)
    assert (tmp_path / "died").exists()
    require_all_once(tmp_path)


def drive(folder: str) -> None:
    """Run the job in a session of the warm JVM, whose tasks may fail a few times; what a child process does."""
    tm.run(job_in(Path(folder)), spark=attach({"spark.sql.shuffle.partitions": "2"}), end_of_input=True)

"""Runs that end, for whatever reason, end their query between two batches: nothing of it fails in Spark."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

import tidemark as tm
from tests.control.drivers import until
from tests.engine.lab import NOW, elements
from tidemark.errors import UserCodeError
from tidemark.state.log.progress import EpochProgress
from tidemark.testing.manual_clock import ManualClock

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("queries")]

ROWS = [[("a", number * 3_600_000, "1")] for number in range(5)]


class Ends(StreamingQueryListener):
    """Takes note of how queries end."""

    def __init__(self) -> None:
        self.exceptions: list[str | None] = []

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802 - Spark's name
        pass

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
        pass

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802
        pass

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802
        self.exceptions.append(event.exception)


@contextmanager
def ends_of(spark: SparkSession) -> Iterator[list[str | None]]:
    ends = Ends()
    spark.streams.addListener(ends)
    try:
        yield ends.exceptions
    finally:
        spark.streams.removeListener(ends)


def job_in(folder: Path, condition: str = "v = '1'") -> tm.Job:
    source = elements(*ROWS, schema="k STRING, t BIGINT, v STRING")
    rows = source.filter(condition).uid("ones")
    return tm.Job("job", outputs={"rows": tm.memory(rows, f"{folder}/rows")}, store=str(folder / "store"))


def test_no_end_of_a_run_is_a_failure_of_its_query(spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """After so many epochs of a drain, on request between and within epochs, and when an epoch fails."""
    clock, stop = ManualClock(NOW), threading.Event()

    def stop_after(epoch: EpochProgress) -> None:
        if epoch.epoch == 3:
            stop.set()

    with ends_of(spark) as exceptions:
        first = tm.run(job_in(tmp_path), spark=spark, clock=clock, max_epochs=2)
        until(lambda: len(exceptions) == 1, "the end of the first query")
        second = tm.run(job_in(tmp_path), spark=spark, clock=clock, trigger="100 ms", on_epoch=stop_after, stop=stop)
        until(lambda: len(exceptions) == 2, "the end of the second query")
        idle = threading.Event()
        threading.Timer(1.5, idle.set).start()
        third = tm.run(job_in(tmp_path), spark=spark, clock=clock, trigger="1 minute", stop=idle)
        until(lambda: len(exceptions) == 3, "the end of the third query")
        with pytest.raises(UserCodeError, match="CAST_INVALID_INPUT"):
            tm.run(job_in(tmp_path / "other", "CAST(k AS INT) > 0"), spark=spark, clock=clock)
        until(lambda: len(exceptions) == 4, "the end of the last query")
    assert [[epoch.epoch for epoch in run.epochs] for run in (first, second, third)] == [[0, 1], [2, 3], [4]]
    assert exceptions == [None] * 4
    # py4j logs what a function that Java calls raises.
    assert [record.getMessage() for record in caplog.records if record.name.startswith("py4j")] == []


def test_a_query_is_ended_by_force_where_spark_keeps_its_flag_elsewhere(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(_: object) -> None:
        raise TypeError("'JavaPackage' object is not callable")

    monkeypatch.setattr("tidemark.spark.loop.query.query_ending._have_leave_its_loop", missing)
    run = tm.run(job_in(tmp_path), spark=spark, clock=ManualClock(NOW), max_epochs=2)
    again = tm.run(job_in(tmp_path), spark=spark, clock=ManualClock(NOW))
    assert [epoch.epoch for epoch in (*run.epochs, *again.epochs)] == [0, 1, 2, 3, 4]

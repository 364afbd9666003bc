"""Runs that are told to stop: the epoch at hand is finished, the status says so, and the next run goes on."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

import pytest

import tidemark as tm
from tests.engine.lab import NOW, elements
from tests.seeds import only_long
from tidemark.state.log.heartbeat import read_heartbeat
from tidemark.state.log.progress import EpochProgress
from tidemark.state.status.status import JobStatus, read_status
from tidemark.state.store.store import JobStore
from tidemark.testing.manual_clock import ManualClock

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

HOUR = 3_600_000
EPOCHS = 3
ROWS = [[("a", number * HOUR, number)] for number in range(EPOCHS)]


class EndedError(BaseException):
    """What a framework's own handler raises to end a run."""


@contextmanager
def handler(handle: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    before = signal.signal(signal.SIGINT, handle)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def ended(_number: int, _frame: FrameType | None) -> None:
    raise EndedError


def job_in(folder: Path) -> tm.Job:
    source = elements(*ROWS, schema="k STRING, t BIGINT, v INT")
    hours = source.key_by("k").window(tm.tumbling("1 hour")).aggregate(n=tm.count(), total=tm.sum("v")).uid("hours")
    outputs = {"hours": tm.memory(hours, f"{folder}/hours"), "rows": tm.memory(source, f"{folder}/rows")}
    return tm.Job("job", outputs=outputs, store=str(folder / "store"))


def status_in(folder: Path) -> JobStatus:
    found = read_status(JobStore.open(str(folder / "store")), "job")
    assert found is not None
    return found


def values(folder: Path, output: str, column: str) -> list[object]:
    """Return the values of a column of all rows that were published."""
    table = tm.memory_table(f"{folder}/{output}")
    return [] if table is None else sorted(table.column(column).to_pylist())


def require_goes_on(spark: SparkSession, folder: Path, *, after: int) -> None:
    """Check that a run that was stopped left nothing half done, and run the job to its end."""
    status = status_in(folder)
    assert status.state == "stopped", status
    assert status.last is not None
    assert status.last.epoch == after
    beat = read_heartbeat(JobStore.open(str(folder / "store")).at("job"))
    assert beat is not None
    assert beat.released
    assert values(folder, "rows", "v") == list(range(after + 1))
    result = tm.run(job_in(folder), spark=spark, clock=ManualClock(NOW), end_of_input=True, handle_signals=False)
    assert [epoch.epoch for epoch in result.epochs] == list(range(after + 1, EPOCHS + 1))
    assert values(folder, "rows", "v") == list(range(EPOCHS))
    assert values(folder, "hours", "n") == [1] * EPOCHS
    assert values(folder, "hours", "total") == list(range(EPOCHS))
    assert status_in(folder).state == "finished"


class SendsSignals:
    """Sends this process a signal after some epochs, and lets the run go on when the main thread has handled it."""

    def __init__(self, send: Callable[[], None], *, epochs: int = 2) -> None:
        self.stop = threading.Event()
        self.seen: list[int] = []
        self._send = send
        self._epochs = epochs

    def after(self, epoch: EpochProgress) -> None:
        self.seen.append(epoch.epoch)
        if len(self.seen) == self._epochs:
            self._send()
            assert self.stop.wait(10)


@pytest.mark.parametrize(
    ("number", "trigger"),
    [(signal.SIGINT, "50 milliseconds"), pytest.param(signal.SIGTERM, "50 milliseconds", marks=only_long), (signal.SIGTERM, None)],
)
def test_a_signal_stops_a_run_after_the_epoch_at_hand(
    spark: SparkSession, tmp_path: Path, number: signal.Signals, trigger: str | None
) -> None:
    before = [signal.getsignal(kind) for kind in (signal.SIGINT, signal.SIGTERM)]
    # To the thread of the epoch, so that the main one is not woken by it.
    sends = SendsSignals(lambda: signal.raise_signal(number))
    result = tm.run(job_in(tmp_path), spark=spark, trigger=trigger, clock=ManualClock(NOW), on_epoch=sends.after, stop=sends.stop)
    assert [epoch.epoch for epoch in result.epochs] == sends.seen == [0, 1]
    assert [signal.getsignal(kind) for kind in (signal.SIGINT, signal.SIGTERM)] == before
    require_goes_on(spark, tmp_path, after=1)


@pytest.mark.parametrize("trigger", [None, pytest.param("50 milliseconds", marks=only_long)])
def test_an_interrupt_ends_the_run_and_leaves_the_session_in_order(spark: SparkSession, tmp_path: Path, trigger: str | None) -> None:
    # To the process: it breaks into whatever the main thread waits for.
    sends = SendsSignals(lambda: os.kill(os.getpid(), signal.SIGINT))
    with handler(ended), pytest.raises(EndedError):
        tm.run(
            job_in(tmp_path),
            spark=spark,
            trigger=trigger,
            clock=ManualClock(NOW),
            on_epoch=sends.after,
            stop=sends.stop,
            handle_signals=False,
        )
    # Answers come to the calls they belong to.
    assert [spark.range(rows).count() for rows in (3, 5, 7)] == [3, 5, 7]
    assert spark.sql("SELECT 'here' AS place").collect()[0].place == "here"
    require_goes_on(spark, tmp_path, after=1)


@pytest.mark.parametrize("handle_signals", [False, True])
def test_a_second_interrupt_is_raised_at_once(spark: SparkSession, tmp_path: Path, *, handle_signals: bool) -> None:
    stop, freed, workers = threading.Event(), threading.Event(), list[threading.Thread]()

    def after(_epoch: EpochProgress) -> None:
        workers[:] = [thread for thread in threading.enumerate() if thread.name == "tidemark-run"]
        signal.raise_signal(signal.SIGINT)
        assert stop.wait(30)
        signal.raise_signal(signal.SIGINT)
        # The main thread has left before this epoch has ended.
        assert freed.wait(30)

    with handler(ended), pytest.raises(KeyboardInterrupt if handle_signals else EndedError):
        tm.run(job_in(tmp_path), spark=spark, clock=ManualClock(NOW), on_epoch=after, stop=stop, handle_signals=handle_signals)
    assert status_in(tmp_path).state == "running"
    assert [worker.is_alive() for worker in workers] == [True]
    freed.set()
    workers[0].join(60)
    require_goes_on(spark, tmp_path, after=0)


def test_a_run_of_so_many_epochs_is_stopped(spark: SparkSession, tmp_path: Path) -> None:
    result = tm.run(job_in(tmp_path), spark=spark, clock=ManualClock(NOW), max_epochs=2, end_of_input=True)
    assert [epoch.epoch for epoch in result.epochs] == [0, 1]
    require_goes_on(spark, tmp_path, after=1)

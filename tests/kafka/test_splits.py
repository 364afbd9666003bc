"""Partitions that are silent, that come later, that are many, and that are read a part at a time."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

import tidemark as tm
from tests.control.drivers import until
from tests.kafka.broker import NEEDS_JARS
from tests.kafka.fares import MINUTE, START, TIMESTAMP, FareJob, Fares, require_agreement
from tests.seeds import only_long
from tidemark.spark.sources.adaptive_intake import AdaptiveIntake
from tidemark.testing.manual_clock import ManualClock

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [NEEDS_JARS, pytest.mark.spark, pytest.mark.slow]

IDLE = tm.bounded_out_of_orderness("1 minute", timestamp=TIMESTAMP, idle_after="5 minutes")


def test_a_silent_partition_falls_idle_and_comes_back(fares: Fares, job: FareJob, spark: SparkSession) -> None:
    # By another spelling of the format than in the test of a backlog.
    job, clock = replace(job, watermarks=IDLE, format="Kafka"), ManualClock(START + 60 * MINUTE)
    silent = f"{fares.topic}-1"
    fares.send(0, 0)
    fares.send(1, 0)
    for minute in (10, 20, 30, 40):
        job.run(spark, clock=clock)
        clock.set(clock.now_ms() + 4 * MINUTE)
        fares.send(0, minute * MINUTE)
    found = [epoch.sources["fares"].splits[silent].idle for epoch in job.seen]
    assert found == [False, False, True, True]
    assert job.panes(), "the others go on"
    fares.send(1, 5 * MINUTE, 45 * MINUTE)
    job.run(spark, clock=clock, end_of_input=True)
    assert not job.seen[-1].sources["fares"].splits[silent].idle
    assert job.late() == [(1, 1)]
    require_agreement(job, fares.sent, ended=True)


def test_bounded_epochs_read_every_partition_a_part(fares: Fares, job: FareJob, spark: SparkSession) -> None:
    job = replace(job, options={"maxOffsetsPerTrigger": "40"})
    fares.send(0, *range(0, 50 * MINUTE, 40_000))
    fares.send(1, *range(0, 50 * MINUTE, 100_000))
    fares.send(2, 0, 10 * MINUTE)
    job.run(spark)
    assert len(job.seen) > 2
    # Spark rounds parts of less than one record up.
    assert max(epoch.rows_in for epoch in job.seen) <= 40 + 3
    job.run(spark, end_of_input=True)
    require_agreement(job, fares.sent, ended=True)


def test_a_partition_falls_idle_beside_another_s_backlog(fares: Fares, job: FareJob, spark: SparkSession) -> None:
    clock, stop = ManualClock(START + 60 * MINUTE), threading.Event()
    silent, busy = f"{fares.topic}-1", f"{fares.topic}-0"

    def tick() -> None:
        clock.set(clock.now_ms() + 2 * MINUTE)
        if job.seen[-1].sources["fares"].splits[silent].idle:
            stop.set()

    job = replace(job, watermarks=IDLE, options={"maxOffsetsPerTrigger": "10"}, tick=tick)
    fares.send(0, *range(0, 30 * MINUTE, 15_000))
    fares.send(1, 0)
    job.run(spark, clock=clock, trigger="50 milliseconds", stop=stop)
    last = job.seen[-1]
    assert sum(epoch.rows_in for epoch in job.seen) < len(fares.sent), "there was more to read"
    assert last.rows_in == 10
    assert last.sources["fares"].splits[silent].idle
    assert not last.sources["fares"].splits[busy].idle
    assert len(job.seen) >= 4


def test_partitions_are_added_while_it_runs(fares: Fares, job: FareJob, spark: SparkSession) -> None:
    stop = threading.Event()

    def read(records: int) -> None:
        until(lambda: running.done() or sum(epoch.rows_in for epoch in job.seen) >= records, f"{records} records")

    with ThreadPoolExecutor(1) as threads:
        running = threads.submit(job.run, spark, trigger="200 milliseconds", stop=stop)
        try:
            fares.send(0, 0, 20 * MINUTE)
            fares.send(1, 0, 20 * MINUTE)
            read(4)
            fares.topics.grow(fares.topic, 12)
            fares.send(0, 30 * MINUTE)
            fares.send(11, 0, 22 * MINUTE)
            fares.send(2, 30 * MINUTE)
            read(8)
            # Of equal times the one of the greatest partition is the last.
            for partition in (2, 10, 11, 9):
                fares.send(partition, 33 * MINUTE)
            read(12)
        finally:
            stop.set()
        running.result()
    job.run(spark, end_of_input=True)
    assert {f"{fares.topic}-{partition}" for partition in (0, 1, 2, 9, 10, 11)} == set(job.seen[-1].sources["fares"].splits)
    require_agreement(job, fares.sent, ended=True)


@only_long
def test_ties_between_many_partitions_are_broken_by_their_numbers(fares: Fares, job: FareJob, spark: SparkSession) -> None:
    fares.topics.grow(fares.topic, 12)
    for partition in range(12):
        fares.send(partition, 0)
    job.run(spark, end_of_input=True)
    assert [pane[-1] for pane in job.panes()] == [fares.sent[11].amount]
    require_agreement(job, fares.sent, ended=True)


def test_intake_follows_the_clock(fares: Fares, job: FareJob, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a world where seven records take as long as an epoch should."""
    saw, stop = AdaptiveIntake.observe, threading.Event()

    def slowly(intake: AdaptiveIntake, *, took_ms: int, filled: bool | None) -> None:
        del took_ms
        saw(intake, took_ms=100 * job.seen[-1].rows_in, filled=filled)

    def tick() -> None:
        if sum(epoch.rows_in for epoch in job.seen) >= len(fares.sent):
            stop.set()

    monkeypatch.setattr(AdaptiveIntake, "observe", slowly)
    job = replace(job, options={"maxOffsetsPerTrigger": "30"}, tick=tick)
    for partition in range(3):
        fares.send(partition, *range(0, 22 * MINUTE, MINUTE))
    job.run(spark, trigger="100 milliseconds", adaptive_intake=True, stop=stop)
    sizes = [epoch.rows_in for epoch in job.seen]
    assert sum(sizes) == len(fares.sent), "each once, whatever queries came and went"
    assert sizes[0] == 30
    assert len(sizes) > 4, sizes
    assert max(sizes[3:]) <= 15, sizes
    job.run(spark, end_of_input=True)
    require_agreement(job, fares.sent, ended=True)

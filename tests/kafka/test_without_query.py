"""Kafka is read without a query; jobs go on in a query and back, and read folders besides."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import tidemark as tm
from tests.engine.lab import require_conservation
from tests.kafka.broker import NEEDS_JARS, Broker
from tests.kafka.fares import MINUTE, START, TIMESTAMP, FareJob, Fares, require_agreement
from tidemark.spark.loop.driver import JobDriver
from tidemark.spark.loop.planned_run import PlannedRun
from tidemark.spark.loop.query.query_run import QueryRun

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [NEEDS_JARS, pytest.mark.spark, pytest.mark.slow]


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The kinds of the runs so far."""
    found: list[str] = []
    for kind in (PlannedRun, QueryRun):
        _note(kind, found, monkeypatch)
    return found


def _note(kind: type[PlannedRun | QueryRun], found: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    run_epochs = kind.run_epochs

    def noted(run: Any, interval_ms: int | None) -> None:
        found.append(kind.__name__)
        run_epochs(run, interval_ms)

    monkeypatch.setattr(kind, "run_epochs", noted)


def test_a_job_goes_on_in_a_query_and_back(
    fares: Fares, job: FareJob, spark: SparkSession, runs: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    job = replace(job, options={"maxOffsetsPerTrigger": "15"})
    for number, query in enumerate((False, True, False, True)):
        # The first two runs have 22 records, and read some of a partition in one epoch, the rest in the next one.
        step = 100_000 if number < 2 else 200_000
        for partition in range(3):
            fares.send(partition, *range(number * 20 * MINUTE, (number + 1) * 20 * MINUTE, step * (partition + 1)), zone=partition)
        if number == 2:
            fares.topics.grow(fares.topic, 4)
            fares.send(3, 61 * MINUTE, 5 * MINUTE)
        with monkeypatch.context() as patch:
            if query:
                patch.setattr(JobDriver, "plans_epochs", False)
            job.run(spark)
    job.run(spark, end_of_input=True)
    assert runs == ["PlannedRun", "QueryRun", "PlannedRun", "QueryRun", "PlannedRun"]
    assert len([epoch for epoch in job.seen if epoch.rows_in]) == 2 + 2 + 1 + 1
    assert sum(epoch.rows_in for epoch in job.seen) == len(fares.sent)
    require_agreement(job, fares.sent, ended=True)


def test_a_small_epoch_is_one_job_that_reads_all_partitions(fares: Fares, job: FareJob, spark: SparkSession, runs: list[str]) -> None:
    for minute in range(4):
        for partition in range(3):
            fares.send(partition, minute * MINUTE)
        job.run(spark)
    assert runs == ["PlannedRun"] * 4
    assert [epoch.rows_in for epoch in job.seen] == [3, 3, 3, 3]
    # The input's pass: which partitions it may have rows of is known before.
    assert [epoch.spark_jobs for epoch in job.seen] == [1, 1, 1, 1]


def test_folders_beside_kafka(fares: Fares, broker: Broker, spark: SparkSession, tmp_path: Path, runs: list[str]) -> None:
    landing = tmp_path / "in"
    landing.mkdir()
    options = {"kafka.bootstrap.servers": broker.address, "subscribe": fares.topic, "startingOffsets": "earliest"}
    live = tm.source(
        "live", tm.streaming_format("kafka", options=options), watermarks=tm.bounded_out_of_orderness("0 ms", timestamp=TIMESTAMP)
    )
    spec = tm.files(str(landing), format="json", schema="zone INT, at BIGINT", max_files_per_epoch=1)
    old = tm.source("old", spec, watermarks=tm.bounded_out_of_orderness("0 ms", timestamp="at"))
    parsed = live.with_columns(fare="from_json(CAST(value AS STRING), 'zone INT')").select(zone="fare.zone")
    counted = parsed.union(old.select("zone")).key_by("zone").window(tm.tumbling("10 minutes")).aggregate(n=tm.count()).uid("w")
    job = tm.Job("both", outputs={"panes": tm.memory(counted, f"{tmp_path}-panes")}, store=str(tmp_path / "store"))
    seen = 0
    for number in range(3):
        (landing / f"{number}.json").write_text(f'{{"zone": 7, "at": {START + number}}}')
        os.utime(landing / f"{number}.json", (1_600_000_000 + number,) * 2)
        fares.send(number, number, number + 1)
        epochs = tm.run(job, spark=spark, handle_signals=False, end_of_input=number == 2).epochs
        for epoch in epochs:
            require_conservation(epoch)
        seen += sum(epoch.rows_in for epoch in epochs)
    assert seen == 9
    assert set(runs) == {"PlannedRun"}
    found = tm.memory_table(f"{tmp_path}-panes")
    assert found is not None
    assert [(row["zone"], row["n"]) for row in found.to_pylist()] == [(7, 9)]

"""Records that retention deleted, and topics that are gone: the error names the job, the source, its place and what to do."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner
from py4j.protocol import Py4JJavaError

import tidemark as tm
from tests.control.drivers import until
from tests.kafka.broker import NEEDS_JARS
from tests.kafka.fares import MINUTE, FareJob, Fares
from tests.seeds import only_long
from tidemark.cli.program.main import main
from tidemark.errors import SourceError
from tidemark.savepoints.core.savepoint_store import SavepointStore
from tidemark.state.store.store import JobStore

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [NEEDS_JARS, pytest.mark.spark, pytest.mark.slow]


def failure(job: FareJob, spark: SparkSession, **options: object) -> SourceError:
    with pytest.raises(tm.TidemarkError) as caught:
        job.run(spark, **options)
    error = caught.value
    assert isinstance(error, SourceError)
    assert (error.job, error.uid, error.transient) == (job.name, "fares", False)
    assert error.place is not None
    assert "fares.py:" in error.place
    return error


def save(job: FareJob) -> SavepointStore:
    done = CliRunner().invoke(main, ["savepoint", "trigger", job.name, "--name", "good", "--store", job.store])
    assert done.exit_code == 0, done.output
    shown = CliRunner().invoke(main, ["savepoint", "show", job.name, "good", "--store", job.store])
    assert "source fares: how long kafka keeps its input is not known here" in shown.output
    return SavepointStore(JobStore.open(job.store), job.name)


def test_retention_passed_a_savepoint(fares: Fares, job: FareJob, spark: SparkSession) -> None:
    fares.send(0, *range(0, 10 * MINUTE, MINUTE))
    job.run(spark)
    assert sum(epoch.rows_in for epoch in job.seen) == 10
    store = save(job)
    fares.send(0, *range(10 * MINUTE, 30 * MINUTE, MINUTE))
    job.run(spark)
    assert not store.restorability().of(store.get("good")).lost
    fares.topics.delete_before(fares.topic, 0, 15)
    error = failure(job, spark, restore=tm.Restore("good"))
    assert f"{fares.topic}-0" in error.what
    assert "failOnDataLoss" in error.fix
    # Other settings of the same job go on with what is left, and the books still balance.
    lenient = replace(job, options={"failOnDataLoss": "false"}, seen=[], read=[])
    lenient.run(spark, restore=tm.Restore("good"))
    assert sum(epoch.rows_in for epoch in lenient.seen) == 15


def test_retention_passed_a_job_that_was_down(fares: Fares, job: FareJob, spark: SparkSession) -> None:
    fares.send(0, 0)
    job.run(spark)
    fares.send(0, 1, 2, 3)
    fares.topics.delete_before(fares.topic, 0, 3)
    failure(job, spark)


def test_a_topic_that_is_not_there(job: FareJob, spark: SparkSession) -> None:
    assert "nowhere" in failure(replace(job, topic="nowhere"), spark).what


@only_long
def test_a_topic_that_was_made_anew(fares: Fares, job: FareJob, spark: SparkSession) -> None:
    fares.send(0, 0, 1, 2)
    job.run(spark)
    fares.topics.delete(fares.topic)
    failure(job, spark)

    def made() -> bool:
        try:
            fares.topics.create(fares.topic, 1)
        except Py4JJavaError:  # the old one is not quite gone
            return False
        return True

    until(made, "a topic")
    failure(job, spark)


def test_a_broker_that_is_away(job: FareJob, spark: SparkSession) -> None:
    job = replace(job, address="127.0.0.1:1", options={"kafka.request.timeout.ms": "500", "kafka.default.api.timeout.ms": "500"})
    with pytest.raises(tm.TidemarkError) as caught:
        job.run(spark)
    assert caught.value.transient

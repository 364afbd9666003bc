"""Publishes an epoch whose driver ended after the commit and before publishing all of it; needs no code of the job.

Appended rows are committed by ``deltalake``, or their files moved. Only the merge of an upsert needs Spark: then a session is
started on this machine, if there is none, and stopped again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace

from pyspark.errors import PySparkRuntimeError

from tidemark.graph.job.job import Job
from tidemark.savepoints.api.job_savepoints import savepoints_of
from tidemark.savepoints.rewind.rewinding import OnProgress, Publish
from tidemark.savepoints.rewind.rewinding import rewind as rewind_in_store
from tidemark.spark.env.session import build_session, engine_settings
from tidemark.spark.loop.housekeeping import beating
from tidemark.spark.loop.missing_epochs import expect_published
from tidemark.spark.sinks.delta.delta_upsert import Upsert
from tidemark.spark.sinks.publication import publish
from tidemark.spark.sinks.sinks import sink_of_record
from tidemark.spark.sinks.staging.sink_owner import SinkOwner
from tidemark.state.log.joblog import Driver
from tidemark.state.log.records import EpochRecord
from tidemark.state.store.store import JobStore


def late_publisher(conf: Callable[[], Mapping[str, str]] = dict) -> Publish:
    """Return the function that publishes a job's newest epoch, for ``savepoints.rewind``.

    Args:
        conf: returns the settings of a Spark session, if one has to be started: the job's own, which its tables may need.
    """

    def publish_now(driver: Driver, record: EpochRecord, unshown: Collection[str]) -> Mapping[str, str]:
        lost: dict[str, str] = {}
        # Folders of files were not checked; files that were moved already stay.
        due = {name: output for name, output in record.outputs.items() if output.files and (name in unshown or output.sink != "delta")}
        owner = SinkOwner.of(driver)
        opened = {
            name: sink_of_record(name, output, record.job, maintained=False, owner=owner, former=False) for name, output in due.items()
        }
        sinks = {name: sink for name, sink in opened.items() if sink is not None}
        # Otherwise an epoch would be added to a place that has lost some, and hide the gap.
        expect_published(record, sinks, driver.log)
        merges = any(output.sink == "delta" and Upsert.of_options(output.options) is not None for output in due.values())
        with beating(driver), _session(record.job, conf()) if merges else _no_session():
            publish(replace(record, outputs=due), sinks, lost=lambda name, error: lost.update({name: error.what}))
        return lost

    return publish_now


def rewind(
    job: Job | str,
    savepoint: str,
    *,
    store: str | JobStore | None = None,
    by: str = "",
    why: str = "",
    on_progress: OnProgress | None = None,
) -> EpochRecord:
    """Rewind a stopped job to a savepoint, with its Delta tables; or continue a rewind that was begun.

    A committed epoch that a table does not show yet, since the driver was killed in between, is published first. That starts a Spark
    session only for an upserted table, if there is none.

    Args:
        job: the job, or its name.
        savepoint: its name.
        store: root of the job store, as for ``savepoints_of``.
        by: the user, for the history.
        why: the reason, for the history.
        on_progress: called with each step.

    Raises:
        JobRunningError: a driver of the job is alive.
        RewindError: the rewind is not possible, for the listed reasons; nothing was changed.
        PublishError: a table could not be restored to its older version; the same call continues with it.
    """
    found = savepoints_of(job, store=store)
    return rewind_in_store(found.store, found.job, savepoint, by=by, why=why, on_progress=on_progress, publish=late_publisher())


@contextmanager
def _session(job: str, conf: Mapping[str, str]) -> Iterator[None]:
    from pyspark.sql import SparkSession

    try:
        running: SparkSession | None = SparkSession.active()
    except PySparkRuntimeError:
        running = None
    session = running or build_session(app_name=f"tidemark publish {job}", conf=conf)
    try:
        with engine_settings(session):
            yield
    finally:
        if running is None:
            session.stop()


@contextmanager
def _no_session() -> Iterator[None]:
    yield

"""Publishes a submitted job's newest epoch if its driver ended before it could, with the Spark settings of the job's spec."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from tidemark.control.desired.spec_store import read_spec
from tidemark.savepoints.rewind.rewinding import Publish
from tidemark.state.log.joblog import Driver
from tidemark.state.log.records import EpochRecord
from tidemark.state.store.store import JobStore


def publisher(store: JobStore, job: str) -> Publish:
    """Return the function that publishes a job's newest epoch before a rewind; loads PySpark on first use. ``store`` is the root store."""

    def settings() -> Mapping[str, str]:
        submitted = read_spec(store, job)
        return submitted.spec.conf if submitted is not None else {}

    def publish(driver: Driver, record: EpochRecord, unshown: Collection[str]) -> Mapping[str, str]:
        from tidemark.spark.loop.late_publication import late_publisher

        return late_publisher(settings)(driver, record, unshown)

    return publish

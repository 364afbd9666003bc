"""Checks whether a job can resume from a stored epoch, by its state and its tables, and migrates state where the changed code allows it."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from pyspark.errors import PySparkException

from tidemark.errors import CorruptStoreError, StateMismatchError, TidemarkError
from tidemark.graph.job.code_version import code_version
from tidemark.graph.job.job import Job
from tidemark.graph.operators.changes import Names
from tidemark.savepoints.compatibility.state_check import check_compatibility
from tidemark.savepoints.delta.result_tables import check_outputs
from tidemark.savepoints.model.stored_types import stored_columns
from tidemark.spark.loop.error_translation import translate
from tidemark.spark.state_api.migrating import migrate
from tidemark.spark.state_api.schema_probe import probe_job
from tidemark.state.log.joblog import JobLog
from tidemark.state.log.records import EpochRecord
from tidemark.state.status.status import read_status
from tidemark.state.store.layout import STATE
from tidemark.state.store.store import JobStore

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

logger = logging.getLogger("tidemark")


def last_start_was_rejected(root: JobStore, job: str) -> bool:
    """Return whether a job's last run failed because its state was not compatible.

    Types may change without a change of the job's code: a table that it reads was widened, a module that a function uses was replaced.
    """
    try:
        status = read_status(root, job)
    except CorruptStoreError:
        return False
    return status is not None and status.state == "failed" and status.error_code == StateMismatchError.code


def ensure_compatible(
    spark: SparkSession,
    store: JobStore,
    record: EpochRecord,
    job: Job,
    *,
    columns: Mapping[str, Names] | None = None,
    force: bool = False,
) -> EpochRecord:
    """Return a stored epoch with state that the job can resume from: as it is, or migrated.

    Migrated state is staged; nothing refers to it until a record names it.

    Args:
        spark: the session that the job is to run in.
        store: the store at the job's folder.
        record: the epoch, under the job's uids.
        job: the job to resume.
        columns: by operator uid, new names of keys, aggregates and columns by their old ones; None for those to drop.
        force: check also if the job's code seems to be the same.

    Raises:
        StateMismatchError: stored positions or state belong to no source or operator of the job, or do not fit it; the message lists
            every conflict.
        DefinitionError: the map of columns names columns that do not exist.
        SinkError: the results do not fit their tables or folders; the message lists every conflict.
        TidemarkError: state has to be migrated, and the job's code fails on input without rows.
    """
    changed = force or record.code_version != code_version(job) or bool(columns)
    head = JobLog(store, job.name).load().epoch if changed else None
    outputs = check_outputs(job, record, head) if changed else ()
    found = check_compatibility(record, job, columns=columns, outputs=outputs)
    found.require()
    if not changed or not (record.operators or outputs):
        return record
    try:
        empty = probe_job(spark, job, store.at("elements"))
    except (TidemarkError, PySparkException) as error:
        if found.rewrites:
            raise translate(error, job=job.name, epoch=record.epoch, state=store.location.joined(STATE).path, nodes=job.nodes) from error
        # The first epoch raises this error as its own.
        logger.info("the columns of the changed job are not known yet: %s", error)
        return record
    outputs = check_outputs(job, record, head, {name: stored_columns(rows.jsonValue()) for name, rows in empty.outputs.items()})
    types = {uid: each.types for uid, each in empty.inputs.items()}
    found = check_compatibility(record, job, columns=columns, types=types, outputs=outputs)
    found.require()
    for each in outputs:
        for finding in each.findings:
            logger.info("output %r: %s", each.name, finding.text())
    if not found.rewrites:
        return record
    logger.info("the state of %s is migrated:\n%s", record.job, found.text())
    return replace(record, operators=migrate(spark, store, record, found, empty.inputs))

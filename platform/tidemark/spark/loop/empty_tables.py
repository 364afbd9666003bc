"""Creates outputs' tables and folders when a job starts, so that readers find the columns before there are rows."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

from pyspark.errors import PySparkException

from tidemark.errors import TidemarkError
from tidemark.graph.job.job import Job
from tidemark.spark.columns.error_text import first_line
from tidemark.spark.sinks.delta.delta_sink import DeltaSink
from tidemark.spark.sinks.local_sinks import MemorySink
from tidemark.spark.sinks.parquet_sink import ParquetSink
from tidemark.spark.sinks.sinks import BoundSink
from tidemark.spark.sinks.staging.connector_sink import ConnectorSink
from tidemark.spark.state_api.schema_probe import probe_job
from tidemark.state.log.records import EpochRecord
from tidemark.state.store.store import JobStore

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

logger = logging.getLogger("tidemark")


def make_tables(
    spark: SparkSession, job: Job, elements: JobStore, sinks: Mapping[str, BoundSink], *, head: EpochRecord | None, version: str
) -> None:
    """Create the tables and folders of a job's outputs that do not exist, with the columns that their rows will have.

    A memory table's columns are found only when it is read before it has rows.

    A table that was created so and has no rows yet gets the columns of changed code. An output that had rows is left alone, also where
    its table is missing. Where the code fails without rows, the table is created with the first rows. An output's first start into a
    place with rows of other writers is logged.

    Args:
        spark: the session that the job is to run in.
        job: the job.
        elements: where elements given in the program are kept.
        sinks: of the job's outputs, by name.
        head: the epoch that the job resumes from.
        version: of the job's code.

    Raises:
        SinkError: a table cannot be read or created, or its rows cannot be identified by their keys.
    """
    for name, bound in sinks.items():
        if isinstance(bound.sink, MemorySink):
            bound.sink.begin(partial(_columns_of, spark, job, elements, name))
    places = {name: bound.sink for name, bound in sinks.items() if isinstance(bound.sink, DeltaSink | ParquetSink | ConnectorSink)}
    new = {name: sink for name, sink in places.items() if not _had_rows(head, name, sink.location)}
    for name, sink in new.items():
        if (head is None or name not in head.outputs) and sink.occupancy == "taken":
            _warn_taken(name, sink)
    changed = head is None or head.code_version != version
    wanting = {name: sink for name, sink in new.items() if sink.occupancy in (("missing", "empty") if changed else ("missing",))}
    if not wanting:
        return
    try:
        columns = probe_job(spark, job, elements).outputs
    except (TidemarkError, PySparkException) as error:
        # The first epoch raises this error as its own.
        logger.info("tables are created with their first rows, since the job's code fails without rows: %s", first_line(error))
        return
    for name, sink in wanting.items():
        if name in columns:
            sink.create(columns[name])


def _columns_of(spark: SparkSession, job: Job, elements: JobStore, name: str) -> StructType | None:
    """Return the columns of an output, None where they are not known."""
    if spark.sparkContext._jsc is None:  # noqa: SLF001 - the session has ended
        return None
    try:
        return probe_job(spark, job, elements).outputs.get(name)
    except (TidemarkError, PySparkException) as error:
        logger.info("the columns of output %r are not known, since the job's code fails without rows: %s", name, first_line(error))
        return None


def _warn_taken(name: str, sink: DeltaSink | ParquetSink | ConnectorSink) -> None:
    """Log that an output's place already has rows of other writers: intended, or another job's path by mistake."""
    upserts = sink.upserts if isinstance(sink, ConnectorSink) else isinstance(sink, DeltaSink) and sink.upsert is not None
    effect = "replace those with the same keys, or are added" if upserts else "are added"
    what = "folder" if isinstance(sink, ParquetSink) else "table"
    logger.warning(
        "output %r: there are rows already in the %s %s, which by its log this job did not write; its own %s",
        name,
        what,
        sink.location,
        effect,
    )


def _had_rows(head: EpochRecord | None, name: str, place: str) -> bool:
    output = head.outputs.get(name) if head is not None else None
    return head is not None and output is not None and output.location == place and head.totals["outputs"].get(name, 0) > 0

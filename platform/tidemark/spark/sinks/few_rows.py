"""Rows of an output by a prepared pass: few that it read already, staged by the driver, and many, by several tasks."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pyarrow.compute as pc
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import types as T

from tidemark.spark.columns.schemas import nullable
from tidemark.spark.columns.state_files import write_folder
from tidemark.spark.prepared.prepared_plan import PassRows, WrittenRows
from tidemark.spark.sinks.delta.delta_changes import DELETED, ObservedChanges, changes_options
from tidemark.spark.sinks.delta.delta_upsert import Upsert
from tidemark.spark.sinks.staging.arrow_files import write_rows
from tidemark.spark.sinks.staging.staging import SINK_COMPRESSION, record_of
from tidemark.state.log.records import OutputRecord

if TYPE_CHECKING:
    from tidemark.spark.sinks.sinks import Sink

logger = logging.getLogger("tidemark")


def stage_few(output: str, sink: Sink, upsert: Upsert | None, rows: PassRows, staging: str, *, changes: bool) -> OutputRecord:
    """Stage an epoch's rows, or its changes: those of ``staged_history`` or ``staged_upsert``, whose counts were observed last.

    Args:
        output: its name.
        sink: its place.
        upsert: how the changes replace older rows; None where rows are added.
        rows: visible ones, or changes.
        staging: the name of a new folder.
        changes: whether they are changes.
    """
    apart = () if upsert is None else (DELETED,)
    schema = nullable(T.StructType([field for field in rows.schema if field.name not in apart]))
    sink.require_whole()
    sink.check(schema)
    folder = sink.staging_folder(staging)
    parts = {folder: rows.table}
    if apart:
        gone = rows.table[DELETED]
        chosen = {"false": pc.invert(gone), "true": gone}
        parts = {f"{folder}/{DELETED}={name}": rows.table.filter(those) for name, those in chosen.items()}
    files = [
        file
        for place, part in parts.items()
        for file in write_rows(sink.staging, place, part.select(schema.names), schema, compression=SINK_COMPRESSION)
    ]
    options = dict(upsert.options) if upsert is not None else {}
    if changes:
        found = ObservedChanges(rows.observed[-1])
        options |= changes_options(found.emitted(files, output), found.counts)
    return record_of(sink, schema, files, options)


def stage_written(output: str, sink: Sink, rows: WrittenRows, staging: str) -> OutputRecord | None:
    """Stage an epoch's changes as a history, those of ``staged_history``, whose counts are observed last; one Spark job.

    Args:
        output: its name.
        sink: its place.
        rows: the changes.
        staging: the name of a new folder.

    Returns:
        None where the pass failed: the DataFrame of the epoch fails in the same way, with an error that says where, or it does not fail.
    """
    schema = nullable(rows.frame.schema)
    sink.require_whole()
    sink.check(schema)
    try:
        files = write_folder(rows.frame, sink.staging, sink.staging_folder(staging), compression=SINK_COMPRESSION)
        found = ObservedChanges(rows.observed[-1])
    except (Py4JError, PySparkException) as error:
        logger.debug("the prepared pass of output %r failed: %s", output, error)
        return None
    return record_of(sink, schema, files, changes_options(found.emitted(files, output), found.counts))

"""Few rows of an output that a prepared pass read already, staged by the driver."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow.compute as pc
from pyspark.sql import types as T

from tidemark.spark.columns.schemas import nullable
from tidemark.spark.prepared.prepared_plan import PassRows
from tidemark.spark.sinks.delta.delta_changes import DELETED, ObservedChanges, changes_options
from tidemark.spark.sinks.delta.delta_upsert import Upsert
from tidemark.spark.sinks.staging.arrow_files import write_rows
from tidemark.spark.sinks.staging.staging import SINK_COMPRESSION
from tidemark.state.log.records import OutputRecord

if TYPE_CHECKING:
    from tidemark.spark.sinks.sinks import Sink


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
    return OutputRecord(
        sink=sink.kind,
        location=sink.location,
        schema=schema.json(),
        files=tuple(file.as_staged_file() for file in files),
        rows=sum(file.rows for file in files),
        options=options,
    )

"""Checks whether the rows of a job's outputs fit the tables and folders at their places. Reads small files, writes nothing."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
from deltalake import DeltaTable

from tidemark.errors import CorruptStoreError, SinkError, StoreError, UnknownStoreError
from tidemark.graph.checks.output_columns import output_schema
from tidemark.graph.connectors.iceberg.node import IcebergSpec
from tidemark.graph.connectors.kafka.spec import KafkaSpec
from tidemark.graph.connectors.postgres.node import PostgresSpec
from tidemark.graph.connectors.sql_table.node import SqlTableSpec
from tidemark.graph.job.job import Job
from tidemark.graph.model.connector_spec import ConnectorSpec
from tidemark.graph.model.nodes import DeltaSpec, Output, ParquetSpec, SinkSpec
from tidemark.locations import Location
from tidemark.savepoints.database.fit import check_database_table
from tidemark.savepoints.delta.row_key_changes import row_key_change, with_finding
from tidemark.savepoints.delta.table_versions import commits_back, open_table
from tidemark.savepoints.iceberg.fit import check_iceberg
from tidemark.savepoints.model.rewind_journal import IDENTITY
from tidemark.savepoints.model.stored_types import stored_columns, type_of_ddl
from tidemark.savepoints.model.table_columns import Columns, Stored, column_findings
from tidemark.savepoints.model.table_features import unsupported_features
from tidemark.savepoints.model.verdict import Finding, Fit, OutputVerdict
from tidemark.savepoints.postgres.dialect import POSTGRES
from tidemark.savepoints.sql_table.dialects import dialect_of
from tidemark.state.delta.delta_tags import CREATED, JOB, MAINTENANCE
from tidemark.state.log.parquet_files import parquet_schema
from tidemark.state.log.records import EpochRecord, OutputRecord
from tidemark.state.store.store import JobStore

_OTHER_TABLE: Final = "write to another path, or change the table's columns to match the output's"
_OTHER_FOLDER: Final = "write to another folder, move the old files away, or write to a Delta table (tm.delta), which gets new columns"
_OFF: Final = "write to another path (the table is made there), or remove these features from the table"
SPARK_SCHEMA: Final = b"org.apache.spark.sql.parquet.row.metadata"
"""Key of the metadata in which Spark stores a Parquet file's column types."""

COLUMNS_FILE: Final = "part-columns.parquet"
"""A file without rows that a folder gets before it has any, so that its readers know the columns."""


@dataclass(frozen=True)
class ParquetColumns:
    """The columns of a file: its path in the folder, its schema, and its column types if Spark wrote it."""

    path: str
    schema: pa.Schema
    columns: Columns


def check_outputs(
    job: Job, record: EpochRecord, head: EpochRecord | None = None, known: Mapping[str, Columns] | None = None, *, reverted: bool = False
) -> tuple[OutputVerdict, ...]:
    """Return whether the rows of a job's outputs fit the tables and folders at their places; outputs with empty places are omitted.

    Args:
        job: the job that is to resume.
        record: the epoch that it resumes from.
        head: the job's newest epoch. Both records show which places its outputs have had.
        known: columns of outputs, by name, where Spark has inferred them; else those that the graph is certain of.
        reverted: whether the places will be as they were at the record's epoch, so that later rows do not matter.
    """
    records = [each for each in (head, record) if each is not None and each.job == job.name]
    found = []
    for name, output in job.outputs.items():
        place, keys = _place_and_keys(output.sink)
        own = any(has_written_to(each, name, place) for each in records)
        before = _written_by_keys([each for each in records if not reverted or each is record], place)
        wanted = (known or {}).get(name) or columns_of(output)
        verdict = _check_place(name, output.sink, place, wanted, job=job.name, own=own)
        changed = row_key_change(before, keys) if before is not None else None
        if verdict is None and changed is not None and isinstance(output.sink, KafkaSpec):
            verdict = OutputVerdict(name, output.sink.kind, place, "compatible")
        if verdict is not None:
            found.append(verdict if changed is None else with_finding(verdict, changed))
    return tuple(found)


def _written_by_keys(records: Sequence[EpochRecord], place: str) -> OutputRecord | None:
    """Return the output, under any name, whose upserted rows are at a place, by the first record that knows; None if none does."""
    for record in records:
        # A rewind reverts places with the totals; any other restore leaves them with later rows.
        kept = record.restored is not None and not record.restored.identity.startswith(IDENTITY)
        for name, output in record.outputs.items():
            if output.row_keys and output.location == place and (kept or record.totals["outputs"].get(name, 0) > 0):
                return output
    return None


def _place_and_keys(sink: SinkSpec) -> tuple[str, tuple[str, ...]]:
    match sink:
        case DeltaSpec(path, _, keys):
            return str(Location.parse(path)), keys
        case ParquetSpec(path):
            return str(Location.parse(path)), ()
        case ConnectorSpec():
            return sink.location, sink.row_keys
    return "", ()


def _check_place(name: str, sink: SinkSpec, place: str, wanted: Columns | None, *, job: str, own: bool) -> OutputVerdict | None:
    """Return whether rows fit what is at an output's place; None where there is nothing, or where nothing has columns."""
    match sink:
        case DeltaSpec(_, mode, keys):
            return _delta(name, place, wanted, keys=keys if mode != "append" else None, own=own, job=job)
        case ParquetSpec():
            return _parquet(name, place, wanted)
        case PostgresSpec():
            return check_database_table(name, sink, POSTGRES, wanted, job=job)
        case SqlTableSpec(table):
            return check_database_table(name, sink, dialect_of(table), wanted, job=job)
        case IcebergSpec():
            return check_iceberg(name, sink, wanted, job=job)
    return None


def check_table(
    name: str, table: DeltaTable, place: str, wanted: Columns, *, keys: Collection[str] | None, own: Callable[[], bool]
) -> OutputVerdict:
    """Return whether rows fit a Delta table.

    Args:
        name: the output's.
        table: the existing table.
        place: its location.
        wanted: types of the rows' columns.
        keys: of an upsert, None for an append.
        own: returns whether the output wrote there, by its job's log. Called only if it matters; the table's log is read then, too.
    """
    fields = json.loads(table.schema().to_json())["fields"]
    columns = {field["name"]: field["type"] for field in fields}
    required = {field["name"] for field in fields if not field["nullable"]}
    follows = wanted.keys() == columns.keys() or (own() and _written_by_tidemark(table, place))
    stored = Stored("table", columns, follows, _OTHER_TABLE, required, keys or ())
    rows = {"type": "struct", "fields": [{"name": key, "type": kind, "nullable": True, "metadata": {}} for key, kind in wanted.items()]}
    demands = (Finding(each, "incompatible", fix=_OFF) for each in unsupported_features(table, rows, replacing=keys is not None))
    return _verdict(name, "delta", place, (*column_findings(wanted, stored), *demands))


def check_folder(name: str, columns: Columns, place: str, wanted: Columns) -> OutputVerdict:
    """Return whether rows fit a folder of Parquet files: readers apply the columns of one file to all, so none may differ."""
    return _verdict(name, "parquet", place, column_findings(wanted, Stored("folder", columns, follows=False, fix=_OTHER_FOLDER)))


def has_written_to(record: EpochRecord | None, output: str, place: str) -> bool:
    """Return whether a job's output has had rows for a place already, by one of its epochs.

    An epoch names the places of all outputs, also of those that had no rows yet. A rewound job counts from the savepoint again, although
    its table has been its own.
    """
    stored = record.outputs.get(output) if record is not None else None
    if record is None or stored is None or stored.location != place:
        return False
    return record.totals["outputs"].get(output, 0) > 0 or record.restored is not None


def columns_of(output: Output) -> Columns | None:
    """Return the columns of an output's rows, None if the graph does not know them."""
    schema = output_schema(output)
    return None if schema is None else {column.name: type_of_ddl(column.type) if column.type else None for column in schema.columns}


def parquet_columns(store: JobStore) -> ParquetColumns | None:
    """Return the columns of a file of a folder that readers see, None if there is none.

    Raises:
        StoreError: the folder, or the file, cannot be read.
        CorruptStoreError: the file is no Parquet file, or was deleted just now.
    """
    there = next(iter(visible_files(store)), None)
    if there is None:
        return None
    schema = parquet_schema(store, there)
    text = (schema.metadata or {}).get(SPARK_SCHEMA)
    types = stored_columns(json.loads(text)) if text else {}
    return ParquetColumns(there, schema, {name: types.get(name) for name in schema.names})


def visible_files(store: JobStore) -> list[str]:
    """Return the files of a folder that readers see, those with rows first: the file that only has the columns is the last.

    Raises:
        StoreError: the folder cannot be listed.
    """
    return sorted((file.path for file in store.list() if _visible(file.path)), key=lambda path: path == COLUMNS_FILE)


def _delta(name: str, place: str, wanted: Columns | None, *, keys: Collection[str] | None, own: bool, job: str) -> OutputVerdict | None:
    try:
        table = open_table(name, place)
    except SinkError as error:
        return _unknown(name, "delta", place, error.what)
    if table is None or is_blank(table, place, job):
        return None
    return _no_columns(name, "delta", place) if wanted is None else check_table(name, table, place, wanted, keys=keys, own=lambda: own)


def _parquet(name: str, place: str, wanted: Columns | None) -> OutputVerdict | None:
    try:
        found = parquet_columns(JobStore.open(place, make=False))
    except UnknownStoreError:
        return None
    except (StoreError, CorruptStoreError) as error:
        return _unknown(name, "parquet", place, error.what)
    if found is None or found.path == COLUMNS_FILE:
        return None
    return _no_columns(name, "parquet", place) if wanted is None else check_folder(name, found.columns, place, wanted)


def _no_columns(name: str, sink: str, place: str) -> OutputVerdict:
    return _unknown(name, sink, place, "the columns of its rows are known only when the job runs")


def _unknown(name: str, sink: str, place: str, why: str) -> OutputVerdict:
    return OutputVerdict(name, sink, place, "unknown", (Finding(why, "compatible"),))


def _verdict(name: str, sink: str, place: str, findings: tuple[Finding, ...]) -> OutputVerdict:
    fits = {finding.fit for finding in findings}
    status: Fit = "incompatible" if "incompatible" in fits else "migrates" if "migrates" in fits else "compatible"
    return OutputVerdict(name, sink, place, status, findings)


def is_blank(table: DeltaTable, place: str, job: str) -> bool:
    """Return whether a table is as a job made it, before it had rows: nothing was ever written there, by its whole log.

    One whose log no longer begins with its first version is not: what the deleted entries did is unknown.
    """
    read = 0
    for commit in commits_back(place, table.version()):
        if commit.tags.get(MAINTENANCE) != CREATED or commit.tags.get(JOB, "") != job:
            return False
        read += 1
    return read == table.version() + 1


def _written_by_tidemark(table: DeltaTable, place: str) -> bool:
    commits = commits_back(place, table.version())
    return any(commit.lineage is not None or commit.tags.get(MAINTENANCE) == CREATED for commit in commits)


def _visible(path: str) -> bool:
    return path.endswith(".parquet") and not any(part.startswith(("_", ".")) for part in path.split("/"))

"""The rows of an epoch as they are staged for a topic: a key and a value for each record, made by Spark's expressions."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import Observation
from pyspark.sql import functions as F
from pyspark.sql import types as T

from tidemark.errors import ConservationError
from tidemark.graph.connectors.kafka.spec import KafkaSpec
from tidemark.spark.columns.changes import AFTER, BEFORE
from tidemark.spark.columns.expressions import POSITION, TIME, quoted, visible_of
from tidemark.spark.columns.schemas import nullable
from tidemark.spark.sinks.delta.delta_changes import (
    DELETED,
    Changes,
    StagedChanges,
    changes_options,
    observed_pairs,
    staged_history,
    staged_upsert,
)
from tidemark.spark.sinks.delta.delta_upsert import PANE_INDEX, Upsert
from tidemark.spark.sinks.kafka.staged_records import KEY, VALUE, header_column
from tidemark.state.log.parquet_files import ParquetSummary

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_JSON: Final = {
    "ignoreNullFields": "false",
    "timeZone": "UTC",
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}
_START: Final = "window_start"
_END: Final = "window_end"
_RECORD: Final = "__tm_record"
_OPERATION: Final = f"CASE WHEN {BEFORE} IS NULL THEN 'c' WHEN {AFTER} IS NULL THEN 'd' ELSE 'u' END"


@dataclass(frozen=True)
class StagedRows:
    """The rows of an epoch to stage.

    Args:
        rows: as they are written to files, which are published in the order of their names.
        schema: of the rows that the job gave the output.
        counted: returns, once the files are written, how many rows these were, and the options of the epoch's record.
    """

    rows: DataFrame
    schema: T.StructType
    counted: Callable[[Sequence[ParquetSummary]], tuple[int, dict[str, str]]] = field(
        default=lambda files: (sum(file.rows for file in files), {})
    )


@dataclass(frozen=True)
class Envelope:
    """What Debezium's envelopes say of where a change comes from."""

    job: str
    output: str
    epoch: int
    processing_time: int


def record_rows(rows: DataFrame, spec: KafkaSpec, changes: Changes | None, source: Envelope) -> StagedRows:
    """Return an epoch's rows as records.

    Args:
        rows: of the output, with the engine's own columns.
        spec: of the topic.
        changes: how rows of a changelog are identified, None for a stream that is only added to.
        source: of the rows, for envelopes.
    """
    schema = nullable(rows.select(*map(_column, visible_of(rows.columns))).schema)
    if spec.format == "debezium-json":
        return _envelopes(rows, schema, spec, changes, source)
    if changes is not None:
        if spec.mode == "append":
            history = staged_history(rows, changes, source.epoch)
            return StagedRows(_records(history.rows, spec), nullable(history.rows.schema), _counted_changes(history, source.output))
        staged = staged_upsert(rows, changes)
        names = visible_of(staged.rows.columns)
        value = F.when(F.col(DELETED), F.lit(None)).otherwise(_value(staged.rows, spec, names))
        return StagedRows(_records(staged.rows, spec, value=value), schema, _counted_changes(staged, source.output))
    if spec.mode == "upsert":
        return _newest(rows, schema, spec, source.output)
    return StagedRows(_records(_in_order(rows, spec.key), spec), schema)


def _in_order(rows: DataFrame, key: Sequence[str]) -> DataFrame:
    """Return rows in order of event time within each key, where there is one."""
    order = [_column(name) for name in (TIME, PANE_INDEX, POSITION) if name in rows.columns]
    return rows.repartition(*map(_column, key)).sortWithinPartitions(*order) if key and order else rows


def _records(rows: DataFrame, spec: KafkaSpec, *, value: Column | None = None) -> DataFrame:
    """Return the key, the value and the headers of rows."""
    whole = value if value is not None else _value(rows, spec, visible_of(rows.columns))
    headers = [_as_bytes(_column(name), rows.schema[name].dataType).alias(header_column(header)) for header, name in spec.headers.items()]
    return rows.select(_key(rows, spec).alias(KEY), whole.cast("binary").alias(VALUE), *headers)


def _key(rows: DataFrame, spec: KafkaSpec) -> Column:
    if not spec.key:
        return F.lit(None).cast("binary")
    if spec.key_format == "json":
        return F.to_json(F.struct(*map(_column, spec.key)), _JSON).cast("binary")
    (name,) = spec.key
    found = _as_bytes(_column(name), rows.schema[name].dataType)
    if spec.mode == "upsert":
        message = f"output to topic {spec.topic}: the key column {name} is null, and a record without a key cannot be replaced"
        return F.coalesce(found, F.raise_error(F.lit(message)).cast("binary"))
    return found


def _as_bytes(value: Column, kind: T.DataType) -> Column:
    return value if isinstance(kind, T.BinaryType) else value.cast("string").cast("binary")


def _value(rows: DataFrame, spec: KafkaSpec, names: Sequence[str]) -> Column:
    if spec.format == "raw":
        return _as_bytes(_column(VALUE), rows.schema[VALUE].dataType)
    return F.to_json(F.struct(*map(_column, names)), _JSON).cast("binary")


def _counted_changes(staged: StagedChanges, output: str) -> Callable[[Sequence[ParquetSummary]], tuple[int, dict[str, str]]]:
    def counted(files: Sequence[ParquetSummary]) -> tuple[int, dict[str, str]]:
        given = staged.emitted(files, output)
        return sum(file.rows for file in files), changes_options(given, staged.counts)

    return counted


def _newest(rows: DataFrame, schema: T.StructType, spec: KafkaSpec, output: str) -> StagedRows:
    """Return the newest row of each key; and a tombstone for each session that one of them replaces, of which the key has the bounds."""
    upsert = Upsert(spec.key)
    newest = upsert.newest(rows)
    entries = upsert.replaced_by(newest.rows.schema)
    if entries is None:

        def counted(files: Sequence[ParquetSummary]) -> tuple[int, dict[str, str]]:
            return newest.emitted(files, output), {}

        return StagedRows(_records(newest.rows, spec), schema, counted)

    bounds = [name for name in (_START, _END) if name in spec.key]
    same = " AND ".join(f"x.{name} <=> {quoted(name)}" for name in bounds)
    moved = ", ".join(f"'{_escaped(name)}', " + (f"x.{name}" if name in bounds else quoted(name)) for name in spec.key)
    fields = ", ".join(f"'{_escaped(name)}', {quoted(name)}" for name in spec.key)
    # Of a session that was listed by its start alone the key is not known.
    known = f"x.{_END} IS NOT NULL AND " if _END in bounds else ""
    gone = f"transform(filter({entries}, x -> {known}NOT ({same})), x -> named_struct('k', named_struct({moved}), 'gone', true))"
    own = f"named_struct({fields})"
    listed = newest.rows.withColumn(VALUE_OF, _value(newest.rows, spec, visible_of(rows.columns)))
    exploded = listed.withColumn(
        _RECORD,
        F.explode(F.expr(f"flatten(array_compact(array({gone}, array(named_struct('k', {own}, 'gone', false)))))")),
    )
    headers = [_column(name) for name in dict.fromkeys(spec.headers.values()) if name not in spec.key]
    keys = [F.col(f"{_RECORD}.k.{quoted(name)}").alias(name) for name in spec.key]
    made = exploded.select(*keys, *headers, F.when(F.col(f"{_RECORD}.gone"), F.lit(None)).otherwise(F.col(VALUE_OF)).alias(VALUE_OF))

    def counted_with_tombstones(files: Sequence[ParquetSummary]) -> tuple[int, dict[str, str]]:
        found: Mapping[str, Any] = newest.observation.get
        written = sum(file.rows for file in files)
        if written < found["kept"]:
            raise _unbalanced(written, int(found["kept"]), output)
        return int(found["emitted"]), {"tombstones": str(written - found["kept"])}

    return StagedRows(_records(made, spec, value=F.col(VALUE_OF)), schema, counted_with_tombstones)


VALUE_OF: Final = "__tm_value"


def _envelopes(rows: DataFrame, schema: T.StructType, spec: KafkaSpec, changes: Changes | None, source: Envelope) -> StagedRows:
    """Return changes in Debezium's form; rows of a stream that is only added to are inserts."""
    names = visible_of(rows.columns)
    origin = F.struct(
        F.lit("tidemark").alias("connector"),
        F.lit(source.job).alias("name"),
        F.lit(source.output).alias("table"),
        F.lit(source.epoch).cast("bigint").alias("epoch"),
    )
    at = F.lit(source.processing_time).cast("bigint").alias("ts_ms")
    if changes is None:
        ordered = _in_order(rows, spec.key)
        whole = F.struct(*map(_column, names))
        none = F.lit(None).cast(schema)
        value = F.to_json(F.struct(none.alias("before"), whole.alias("after"), origin.alias("source"), F.lit("c").alias("op"), at), _JSON)
        return StagedRows(_records(ordered, spec, value=value), schema)
    observation = Observation()
    pairs = observed_pairs(rows, changes.keys, observation)
    before, after = (_visible_struct(side, names).alias(name) for side, name in ((BEFORE, "before"), (AFTER, "after")))
    value = F.to_json(F.struct(before, after, origin.alias("source"), F.expr(_OPERATION).alias("op"), at), _JSON)
    kept = [name for name in dict.fromkeys([*spec.key, *spec.headers.values()]) if name not in changes.keys]
    newest = [F.expr(f"coalesce({AFTER}.{quoted(name)}, {BEFORE}.{quoted(name)})").alias(name) for name in kept]
    made = pairs.select(*map(_column, changes.keys), *newest, value.alias(VALUE_OF))
    staged = StagedChanges(_records(made, spec, value=F.col(VALUE_OF)), observation)
    return StagedRows(staged.rows, schema, _counted_changes(staged, source.output))


def _visible_struct(side: str, names: Sequence[str]) -> Column:
    return F.when(F.col(side).isNotNull(), F.struct(*(F.col(f"{side}.{quoted(name)}").alias(name) for name in names)))


def _unbalanced(written: int, wanted: int, output: str) -> ConservationError:
    return ConservationError(
        f"{wanted} rows were to be staged and {written} are in the files",
        fix="if an expression or function gives other results when it is run twice, make it deterministic; else report this",
        uid=output,
    )


def _escaped(name: str) -> str:
    return json.dumps(name)[1:-1].replace("'", "\\'")


def _column(name: str) -> Column:
    return F.col(quoted(name))

"""Malformed rows: the raw record, and the reason.

None of this is in the pass that every row goes through. Spark gives the text of a record only where it could not be parsed; that of
other rows is looked up in a second reading of the epoch's files (``record_texts``), by the columns read from the record. Where no text
is found, and for sources whose records have none, the row is shown as JSON with its nulls. So every malformed row is emitted once,
whatever the second reading returns.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import Window
from pyspark.sql import functions as F
from pyspark.sql import types as T

from tidemark.graph.model.nodes import SourceNode
from tidemark.graph.model.source_specs import FilesSpec, FormatSpec
from tidemark.savepoints.model.stored_types import shown_type
from tidemark.semantics.watermarks.event_time import (
    MAX_EVENT_TIME,
    MIN_EVENT_TIME,
    NULL_EVENT_TIME,
    OUT_OF_RANGE,
    TOO_FAR_AHEAD,
    named_reason,
)
from tidemark.spark.columns.expressions import CORRUPT, RAW, ROW_STATUS, SPLIT, TIME, VALUE, column, quoted, visible_of
from tidemark.spark.columns.row_counts import MALFORMED
from tidemark.spark.sources.intake import Intake, SourceRows, prepare_batch, required_values
from tidemark.spark.sources.intake_limits import KAFKA
from tidemark.spark.sources.kafka.decoding import is_decoded
from tidemark.spark.sources.record_texts import as_read_of_text, parsed_text

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

UNPARSABLE: Final = "record cannot be parsed"
MAX_VALUE_LENGTH: Final = 100
"""Characters of a value that a reason shows."""

_REASON, _FOUND, _KEY, _COPY, _LOOKED_UP = "__tm_reason", "__tm_found", "__tm_key", "__tm_copy", "__tm_looked_up"


def malformed_rows(intake: Intake) -> DataFrame:
    """Return the malformed rows of an epoch with the raw record and the reason."""
    if is_decoded(intake.node):
        return _shown(intake, _undecoded(intake))
    names = intake.rows.columns
    bad = intake.rows.where(F.col(ROW_STATUS) == MALFORMED)
    if CORRUPT not in names:
        return _shown(intake, bad.select(_text_of(intake.node, names).alias(RAW), _reason(intake, bad).alias(_REASON), *_kept(names)))
    corrupt, others = bad.where(F.col(CORRUPT).isNotNull()), bad.where(F.col(CORRUPT).isNull())
    torn = corrupt.select(F.col(CORRUPT).alias(RAW), _why_unparsable(intake).alias(_REASON), *_kept(names))
    texts = intake.texts.read() if intake.texts is not None else None
    columns = [_as_json(names).alias(RAW), _reason(intake, others).alias(_REASON), *_kept(names)]
    if texts is None:
        return _shown(intake, torn.unionByName(others.select(*columns)))
    return _shown(intake, torn.unionByName(_looked_up(intake, others.select(*columns, _key(intake, others)), texts)))


def _undecoded(intake: Intake) -> DataFrame:
    """Return the malformed records of a source whose values it decodes: the value as received, or the record as JSON if that is no text."""
    rows = intake.rows_with_value
    bad, text = rows.where(F.col(ROW_STATUS) == MALFORMED), F.col(VALUE).cast("string")
    record = [F.col(VALUE).alias(name) if name == "value" else F.col(quoted(name)) for name in visible_of(rows.columns)]
    raw = F.coalesce(F.when(F.is_valid_utf8(text), text), F.to_json(F.struct(*record), {"ignoreNullFields": "false"}))
    origin = F.concat(F.lit(" (partition "), F.col("partition"), F.lit(", offset "), F.col("offset"), F.lit(")"))
    reason = F.concat(F.coalesce(F.col(CORRUPT), _reason(intake, bad)), origin)
    return bad.select(raw.alias(RAW), reason.alias(_REASON), *_kept(rows.columns))


def _looked_up(intake: Intake, rows: DataFrame, texts: DataFrame) -> DataFrame:
    """Return rows with the texts of their records instead of JSON; rows with equal columns each get the text of a different record."""
    again = prepare_batch(intake.node, SourceRows(lambda: texts), intake.processing_time, ordered=False, strict=intake.strict).rows
    records = again.where(f"{ROW_STATUS} = {MALFORMED} AND {CORRUPT} IS NULL")
    content = _as_json(again.columns).alias(_FOUND)
    found = rows.withColumnRenamed(RAW, _FOUND).unionByName(records.select(RAW, content, _key(intake, again)), allowMissingColumns=True)
    side = F.col(_REASON).isNull()
    numbered = found.withColumn(_COPY, F.row_number().over(Window.partitionBy(_KEY, side).orderBy(_FOUND, RAW)))
    paired = numbered.withColumn(_LOOKED_UP, F.max(RAW).over(Window.partitionBy(_KEY, _COPY)))
    raw = F.coalesce(F.col(_LOOKED_UP), F.col(_FOUND)).alias(RAW)
    return paired.where(~side).select(raw, *(name for name in rows.columns if name not in (RAW, _KEY)))


def _shown(intake: Intake, rows: DataFrame) -> DataFrame:
    """Return the columns of a malformed side output, and the time that they are read at."""
    time, now = F.col(TIME), F.lit(intake.processing_time).cast("bigint")
    return rows.select(
        # Else no other reader could read the table.
        F.make_valid_utf8(F.col(RAW)).alias("raw"),
        F.make_valid_utf8(F.col(_REASON)).alias("reason"),
        F.when(time.between(MIN_EVENT_TIME, MAX_EVENT_TIME), F.timestamp_millis(time)).alias("event_time"),
        F.lit(intake.node.name).alias("source"),
        F.col(SPLIT).alias("split"),
        F.timestamp_millis(now).alias("read_at"),
        now.alias(TIME),
    )


def _kept(names: list[str]) -> list[Column]:
    return [F.col(TIME), (F.col(SPLIT) if SPLIT in names else F.lit(None).cast("string")).alias(SPLIT)]


def _as_json(names: list[str]) -> Column:
    return F.to_json(F.struct(*(F.col(quoted(name)) for name in visible_of(names))), {"ignoreNullFields": "false"})


def _key(intake: Intake, rows: DataFrame) -> Column:
    """Return the key that both readings of a record share."""
    json = isinstance(intake.node.spec, FilesSpec) and intake.node.spec.format == "json"
    columns = [
        F.expr(as_read_of_text(rows.schema[name].dataType, quoted(name)) if json else quoted(name)).alias(name)
        for name in visible_of(rows.columns)
    ]
    return F.to_json(F.struct(*columns), {"ignoreNullFields": "false"}).alias(_KEY)


def _text_of(node: SourceNode, names: list[str]) -> Column:
    """Return the text of records that are read as texts; JSON of all columns for others."""
    if isinstance(node.spec, FilesSpec) and node.spec.format == "text":
        return F.coalesce(F.col("value"), _as_json(names))
    if isinstance(node.spec, FormatSpec) and node.spec.format.lower() == KAFKA:
        value = F.col("value").cast("string")
        return F.coalesce(F.when(F.is_valid_utf8(value), value), _as_json(names))
    return _as_json(names)


def _reason(intake: Intake, rows: DataFrame) -> Column:
    """Return the reason: what is wrong with the event time, or which NOT NULL column is null."""
    timestamp, reasons = intake.node.watermarks.timestamp, intake.node.reasons
    name = reasons.timestamp if reasons is not None else timestamp if isinstance(timestamp, str) else None
    null, out_of_range, ahead = (F.lit(named_reason(reason, name)) for reason in (NULL_EVENT_TIME, OUT_OF_RANGE, TOO_FAR_AHEAD))
    time = F.col(TIME)
    if reasons is not None:
        null = F.expr(reasons.reason)
    elif timestamp is not None:
        value = column(timestamp)
        if isinstance(rows.select(value.alias("t")).schema["t"].dataType, T.StringType):
            start = named_reason(NULL_EVENT_TIME, name).removesuffix("is null")
            unread = F.concat(F.lit(f"{start}cannot be read as TIMESTAMP: '"), F.left(value, F.lit(MAX_VALUE_LENGTH)), F.lit("'"))
            null = F.when(value.isNotNull(), unread).otherwise(null)
    in_range = time.between(MIN_EVENT_TIME, MAX_EVENT_TIME)
    reason = F.when(time.isNull(), null).when(~in_range, out_of_range)
    for required, present in required_values(intake.node):
        reason = reason.when(~F.expr(present), F.lit(f"column {required!r} is null, and the schema declares it NOT NULL"))
    reason = reason.otherwise(ahead)
    return reason if reasons is None else F.concat(reason, F.expr(reasons.origin))


def _why_unparsable(intake: Intake) -> Column:
    """Return the reason of records that cannot be parsed: the first column whose text is not of its type."""
    spec = intake.node.spec
    if not isinstance(spec, FilesSpec) or intake.texts is None:
        return F.lit(UNPARSABLE)
    schema, _ = intake.texts.columns(spec)
    texts = T.StructType([T.StructField(field.name, T.StringType()) for field in schema])
    read = F.expr(parsed_text(spec, CORRUPT, texts))
    whole = read[CORRUPT].isNull()
    reason = F.lit(UNPARSABLE)
    if spec.format == "csv":
        reason = F.when(~whole, F.lit(f"{UNPARSABLE}: it does not have {len(schema)} fields")).otherwise(reason)
    for field in reversed([field for field in schema if not isinstance(field.dataType, T.StringType)]):
        text = read.getField(field.name)
        what = F.lit(f"column {field.name!r} cannot be read as {shown_type(field.dataType.jsonValue())}: '")
        failed = whole & F.col(quoted(field.name)).isNull() & text.isNotNull()
        reason = F.when(failed, F.concat(what, F.left(text, F.lit(MAX_VALUE_LENGTH)), F.lit("'"))).otherwise(reason)
    no_text = F.lit(f"{UNPARSABLE}: it is not text in UTF-8; options={{'encoding': ...}}")
    return F.when(F.is_valid_utf8(F.col(CORRUPT)), reason).otherwise(no_text)

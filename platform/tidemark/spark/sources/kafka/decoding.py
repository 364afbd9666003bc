"""Rows of topics whose values are decoded: ``value`` is a struct, and a record that cannot be decoded has the reason why."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F
from pyspark.sql import types as T

from tidemark.graph.model.nodes import SourceNode
from tidemark.graph.model.source_specs import FormatSpec
from tidemark.spark.columns.expressions import CORRUPT, VALUE, quoted
from tidemark.spark.columns.schemas import ddl_of, nullable, struct_of, with_all_columns
from tidemark.spark.sources.kafka.avro import decoded_record
from tidemark.spark.sources.kafka.reading_types import literal
from tidemark.spark.sources.kafka.registry import SchemaRegistry

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from tidemark.graph.model.record_decoding import RecordDecoding

_DECODED: Final = "__tm_decoded"
_TEXT: Final = "__tm_text"
_END: Final = "__tm_end"
_PERMISSIVE: Final = f"map('mode', 'PERMISSIVE', 'columnNameOfCorruptRecord', '{_TEXT}')"
_FIELDS: Final = f"{_DECODED}.value", f"{_DECODED}.reason"
"""Of a record that is read together with the reason why it cannot be."""

_CONTINUED: Final = literal("[}][ \t\n\r]*,")
"""Where an object ends and more follows: within a value, or behind it."""

_NO_JSON: Final = "value is no JSON object with the columns of the schema"


def decoded(rows: DataFrame, source: SourceNode, before: object, now: object) -> DataFrame:
    """Return the rows of an epoch with their values decoded, ``VALUE`` as received, and in ``CORRUPT`` the reason of those that are not.

    Each value is decoded once, whatever the job makes of it. Rows of a source without a format are returned as they are.

    Args:
        rows: of a source.
        source: that has them.
        before: the position before the epoch, by topic; None before the first.
        now: the position after it.

    Raises:
        SourceError: the registry cannot be used, or Spark's module for Avro is missing.
        SourceUnavailableError: the registry does not answer.
    """
    decoding = _decoding(source)
    if decoding is None:
        return rows
    record, value, reason = _json(decoding) if decoding.format == "json" else (_avro(decoding, source, before, now), *_FIELDS)
    names = [F.expr(value).alias("value") if name == "value" else F.col(quoted(name)) for name in rows.columns]
    # In a step of its own: Spark keeps apart what is used several times, and reads each value once.
    read = rows.withColumn(_DECODED, F.expr(record))
    return with_all_columns(read.select(*names, F.col("value").alias(VALUE), F.expr(reason).alias(CORRUPT)))


def decoded_schema(schema: T.StructType, source: SourceNode) -> T.StructType:
    """Return the columns that ``decoded`` makes of a source's columns."""
    decoding = _decoding(source)
    if decoding is None:
        return schema
    fields = [T.StructField("value", _columns(decoding)) if field.name == "value" else field for field in schema]
    return T.StructType([*fields, T.StructField(VALUE, T.BinaryType()), T.StructField(CORRUPT, T.StringType())])


def is_decoded(source: SourceNode) -> bool:
    """Whether a source's values are decoded."""
    return _decoding(source) is not None


def _decoding(source: SourceNode) -> RecordDecoding | None:
    return source.spec.decoding if isinstance(source.spec, FormatSpec) else None


def _columns(decoding: RecordDecoding) -> T.StructType:
    return nullable(struct_of(decoding.schema))


def _json(decoding: RecordDecoding) -> tuple[str, str, str]:
    """Return SQL of the record that is read, of the value in it, and of the reason why there is none.

    Lambda functions around ``from_json`` would do the same in one step, but Spark interprets them.
    """
    kind = ddl_of(_columns(decoding))
    # As a field of an object, before another one: Spark stops reading where the first value of a text ends, whatever is behind it.
    ddl = literal(f"`value` {kind}, `{_END}` INT, `{_TEXT}` STRING")
    wrapped = f"""concat('{{"value":', CAST(value AS STRING), ',"{_END}":0}}')"""
    read = f"from_json({wrapped}, {ddl}, {_PERMISSIVE})"
    # Spark would put other characters in the place of bytes that are no text.
    no_text = "NOT is_valid_utf8(CAST(value AS STRING))"
    # A text that goes on with a comma and a key would be more fields of that object.
    goes_on = f"CAST(value AS STRING) RLIKE {_CONTINUED} AND size(json_object_keys({wrapped})) > 2"
    no_record = f"{_DECODED}.value IS NULL OR {_DECODED}.{_END} IS NULL OR {_DECODED}.{_TEXT} IS NOT NULL OR ({goes_on})"
    reason = (
        f"CASE WHEN value IS NULL THEN NULL WHEN {no_text} THEN {literal('value is not UTF-8')} "
        f"WHEN {no_record} THEN {literal(_NO_JSON)} END"
    )
    return read, f"CASE WHEN NOT (value IS NULL OR {no_text} OR {no_record}) THEN {_DECODED}.value END", reason


def _avro(decoding: RecordDecoding, source: SourceNode, before: object, now: object) -> str:
    read = _subjects(decoding, {topic for topic, offsets in _topics(now).items() if offsets != _topics(before).get(topic)})
    registry = SchemaRegistry(decoding.registry or "", decoding.registry_env, source)
    schemas = registry.schemas(read, others=_subjects(decoding, _topics(now)))
    return decoded_record(schemas, _columns(decoding), read, source)


def _subjects(decoding: RecordDecoding, topics: Collection[str]) -> tuple[str, ...]:
    return decoding.subjects or tuple(f"{topic}-value" for topic in sorted(topics))


def _topics(position: object) -> Mapping[str, object]:
    return position if isinstance(position, Mapping) else {}

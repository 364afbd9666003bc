"""Avro in Confluent's wire format: a zero byte, the id of the writer's schema in four bytes, and the record."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import types as T

from tidemark.errors import SourceError
from tidemark.spark.columns.error_text import first_line
from tidemark.spark.columns.schemas import ddl_of
from tidemark.spark.env.avro_limits import limit_avro
from tidemark.spark.sources.kafka.reading_types import UnreadableTypeError, literal, read_as

if TYPE_CHECKING:
    from tidemark.graph.model.nodes import SourceNode
    from tidemark.spark.sources.kafka.registry import WriterSchema

HEAD_BYTES: Final = 5
_ID: Final = "conv(hex(substring(value, 2, 4)), 16, 10)"
_NO_JAR: Final = ("ClassNotFoundException", "AVRO_NOT_LOADED", "NoClassDefFoundError", "_NOT_LOADED_")


class _NoAvroError(Exception):
    """The session lacks Spark's module for Avro."""


def decoded_record(schemas: Mapping[int, WriterSchema], want: T.StructType, subjects: Sequence[str], source: SourceNode) -> str:
    """Return SQL over the column ``value``: a struct of the decoded ``value``, and the ``reason`` why there is none.

    Spark's ``from_avro`` decodes with one writer's schema, so there is a case for each that the registry has.

    Args:
        schemas: that records may be written with, by id.
        want: the declared columns.
        subjects: that have these schemas, for reasons.
        source: that has the records, for errors.

    Raises:
        SourceError: the session lacks Spark's module for Avro.
    """
    kind = ddl_of(want)
    limit_avro(SparkSession.active())
    try:
        cases = [
            f"WHEN substring(value, 2, 4) = X'{id_:08X}' THEN {_of_schema(schema, want, kind)}" for id_, schema in sorted(schemas.items())
        ]
    except _NoAvroError:
        raise SourceError(
            f"source {source.name!r} reads Avro, and the session lacks Spark's module for it",
            fix="run `tidemark connectors install avro`, or give the session org.apache.spark:spark-avro_2.13 of your Spark's version",
            uid=source.name,
            place=source.place,
        ) from None
    named = f" is no version of subject {', '.join(subjects)}"
    head = literal("value is not in the wire format of a registry: it does not begin with a zero byte and the id of a schema")
    unknown = f"concat('schema ', {_ID}, {literal(named)})"
    return (
        f"CASE WHEN value IS NULL THEN {_result(f'CAST(NULL AS {kind})', 'CAST(NULL AS STRING)')} "
        f"WHEN length(value) < {HEAD_BYTES} OR substring(value, 1, 1) <> X'00' THEN {_no_value(kind, head)} "
        f"{' '.join(cases)} ELSE {_no_value(kind, unknown)} END"
    )


def _of_schema(schema: WriterSchema, want: T.StructType, kind: str) -> str:
    """Return SQL that decodes the records of one schema."""
    if schema.kind != "AVRO":
        return _no_value(kind, literal(f"schema {schema.id} is one of {schema.kind}, not of Avro"))
    try:
        # What Spark cannot decode it returns as a record of nulls. One that has the record as its only field shows the difference: both
        # are the same bytes.
        whole = json.dumps({"type": "record", "name": "tidemark_value", "fields": [{"name": "value", "type": json.loads(schema.text)}]})
        have = _type_of(SparkSession.active(), whole)
        value = read_as(have, want, "record.value")
    except UnreadableTypeError as error:
        return _no_value(kind, literal(f"schema {schema.id} cannot be read: {error}"))
    except (ValueError, PySparkException, Py4JJavaError) as error:
        if any(word in str(error) for word in _NO_JAR):
            raise _NoAvroError from None
        return _no_value(kind, literal(f"schema {schema.id} cannot be read: {first_line(error)}"))
    broken = literal(f"value cannot be read with schema {schema.id}")
    record = f"from_avro(substring(value, {HEAD_BYTES + 1}), {literal(whole)}, map('mode', 'PERMISSIVE'))"
    return f"transform(array({record}), record -> {_result(value, f'if(record.value IS NULL, {broken}, NULL)')})[0]"


@lru_cache(maxsize=1_000)
def _type_of(spark: SparkSession, schema: str) -> T.DataType:
    """Return the type of the only field of an Avro schema's records, as Spark reads it."""
    found = spark.range(0).selectExpr(f"from_avro(CAST(NULL AS BINARY), {literal(schema)}) AS record").schema["record"].dataType
    if not isinstance(found, T.StructType):
        raise TypeError(found.simpleString())
    return found["value"].dataType


def _no_value(kind: str, reason: str) -> str:
    return _result(f"CAST(NULL AS {kind})", reason)


def _result(value: str, reason: str) -> str:
    return f"named_struct('value', {value}, 'reason', CAST({reason} AS STRING))"

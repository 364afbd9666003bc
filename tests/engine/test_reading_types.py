"""Types of a writer's that can be read as declared, and those that cannot."""

from __future__ import annotations

import pytest
from pyspark.sql import types as T

from tidemark.spark.sources.kafka.reading_types import UnreadableTypeError, read_as
from tidemark.spark.sources.kafka.references import with_references

NUMBERS: list[tuple[T.DataType, T.DataType, bool]] = [
    (T.IntegerType(), T.LongType(), True),
    (T.IntegerType(), T.DoubleType(), True),
    (T.IntegerType(), T.DecimalType(12, 2), True),
    (T.IntegerType(), T.DecimalType(11, 2), False),
    (T.IntegerType(), T.ShortType(), False),
    (T.IntegerType(), T.StringType(), False),
    (T.LongType(), T.IntegerType(), False),
    (T.LongType(), T.DecimalType(19, 0), True),
    (T.LongType(), T.TimestampType(), False),
    (T.FloatType(), T.DoubleType(), True),
    (T.DoubleType(), T.FloatType(), False),
    (T.StringType(), T.BinaryType(), True),
    (T.DecimalType(6, 2), T.DecimalType(8, 2), True),
    (T.DecimalType(6, 2), T.DecimalType(6, 3), False),
    (T.TimestampType(), T.TimestampType(), True),
    (T.TimestampNTZType(), T.TimestampType(), False),
    (T.ArrayType(T.IntegerType()), T.ArrayType(T.LongType()), True),
    (T.ArrayType(T.IntegerType()), T.IntegerType(), False),
    (T.MapType(T.StringType(), T.IntegerType()), T.MapType(T.StringType(), T.LongType()), True),
    (T.MapType(T.StringType(), T.IntegerType()), T.MapType(T.StringType(), T.StringType()), False),
]


@pytest.mark.parametrize(("have", "want", "fits"), NUMBERS)
def test_values_may_become_wider(have: T.DataType, want: T.DataType, *, fits: bool) -> None:
    if fits:
        assert read_as(have, want, "v")
    else:
        with pytest.raises(UnreadableTypeError, match=r"value is .*, and the source declares"):
            read_as(have, want, "v")


def test_fields_are_found_by_name() -> None:
    have = T.StructType().add("zone", "string").add("at", "long")
    want = T.StructType().add("zone", "string").add("AT", "long").add("no`ne", "integer")
    found = read_as(have, want, "v")
    fields = "'zone', v.`zone`, 'AT', v.`at`, 'no`ne', CAST(NULL AS int)"
    assert found == f"CAST(if(v IS NULL, NULL, named_struct({fields})) AS struct<`zone`: string, `AT`: bigint, `no``ne`: int>)"
    with pytest.raises(UnreadableTypeError, match=r"value\.AT is bigint, and the source declares int"):
        read_as(have, T.StructType().add("AT", "integer"), "v")
    # Spark refuses v.`zone` of a struct that has both.
    with pytest.raises(UnreadableTypeError, match="value has Zone and zone, which Spark does not tell apart"):
        read_as(T.StructType().add("Zone", "integer").add("zone", "string"), want, "v")


def test_types_of_other_schemas_are_put_in_once() -> None:
    point = '{"type": "record", "name": "Point", "namespace": "geo", "fields": [{"name": "unit", "type": "Unit"}]}'
    unit = '{"type": "enum", "name": "geo.Unit", "symbols": ["M"]}'
    ride = (
        '{"type": "record", "name": "geo.Ride", "fields": [{"name": "a", "type": ["null", "Point"]}, '
        '{"name": "b", "type": {"type": "array", "items": "geo.Point"}}, {"name": "c", "type": "Unit"}, {"name": "d", "type": "int"}]}'
    )
    found = with_references(ride, {"geo.Point": point, "geo.Unit": unit})
    assert found.count('"name": "geo.Unit"') == 1
    assert found.count('"name": "Point"') == 1
    assert found.endswith('"items": "geo.Point"}}, {"name": "c", "type": "Unit"}, {"name": "d", "type": "int"}]}')
    assert with_references('{"type": {"type": "geo.Unit"}}', {"geo.Unit": unit}) == f'{{"type": {{"type": {unit}}}}}'

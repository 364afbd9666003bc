"""Types of rows: from the DDL text of a schema, and with nulls allowed."""

from __future__ import annotations

import json
import re
from functools import lru_cache
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T

_FIXED: Final = (
    T.BooleanType,
    T.ByteType,
    T.ShortType,
    T.IntegerType,
    T.LongType,
    T.FloatType,
    T.DoubleType,
    T.DecimalType,
    T.DateType,
    T.TimestampType,
    T.TimestampNTZType,
)

_NOT_NULL: Final = re.compile(r"\bNOT\s+NULL\b", re.IGNORECASE)


def struct_of(ddl: str) -> T.StructType:
    """Return the type of rows with the columns of a DDL text. Spark parses it the first time, which takes milliseconds."""
    # What TIMESTAMP means is a setting of the session.
    timestamps = SparkSession.active().conf.get("spark.sql.timestampType") if "timestamp" in ddl.lower() else None
    return T.StructType.fromJson(json.loads(_json_of(ddl, timestamps)))


@lru_cache(maxsize=1_000)
def _json_of(ddl: str, timestamps: str | None) -> str:
    del timestamps
    found = T.StructType.fromDDL(ddl)
    if not isinstance(found, T.StructType):
        raise TypeError(f"{ddl!r} declares no columns")
    return found.json()


def may_forbid_nulls(ddl: str) -> bool:
    """Return whether a DDL text has the words NOT NULL, so that it has to be parsed to know which columns are required."""
    return _NOT_NULL.search(ddl) is not None


def nullable(schema: T.StructType) -> T.StructType:
    """Return the schema with all columns and nested fields nullable: rows of a later epoch may have nulls where this one's have none."""
    return T.StructType([T.StructField(field.name, _nullable(field.dataType), nullable=True) for field in schema])


def _nullable(kind: T.DataType) -> T.DataType:
    if isinstance(kind, T.StructType):
        return nullable(kind)
    if isinstance(kind, T.ArrayType):
        return T.ArrayType(_nullable(kind.elementType), containsNull=True)
    if isinstance(kind, T.MapType):
        return T.MapType(_nullable(kind.keyType), _nullable(kind.valueType), valueContainsNull=True)
    return kind


def has_fixed_width(kind: T.DataType) -> bool:
    """Whether Spark changes a value of a type in place; where an aggregate has another, it sorts rows to group them, and does not hash."""
    return isinstance(kind, _FIXED)


def may_be_normalized(kind: T.DataType) -> bool:
    """Whether Spark changes values of a type when it groups by them: -0.0 becomes 0.0, and of equal texts of a collation one is taken."""
    if isinstance(kind, T.StringType):
        return not kind.isUTF8BinaryCollation()
    return isinstance(kind, T.FloatType | T.DoubleType) or not (isinstance(kind, T.BinaryType) or has_fixed_width(kind))


def ddl_of(kind: T.DataType) -> str:
    """Return a type as SQL, with any names quoted."""
    if isinstance(kind, T.StructType):
        fields = (f"`{field.name.replace('`', '``')}`: {ddl_of(field.dataType)}" for field in kind)
        return f"struct<{', '.join(fields)}>"
    if isinstance(kind, T.ArrayType):
        return f"array<{ddl_of(kind.elementType)}>"
    if isinstance(kind, T.MapType):
        return f"map<{ddl_of(kind.keyType)}, {ddl_of(kind.valueType)}>"
    return kind.simpleString()


def with_all_columns(frame: DataFrame) -> DataFrame:
    """Return rows of which all columns are computed, once each, whichever are used."""
    session = frame.sparkSession
    rows = frame._jdf.queryExecution().toRdd()  # noqa: SLF001  # Python's own RDDs would convert each row
    return DataFrame(session._jsparkSession.internalCreateDataFrame(rows, frame._jdf.schema(), False), session)  # noqa: SLF001


def no_rows(spark: SparkSession, schema: T.StructType) -> DataFrame:
    """Return an empty DataFrame. PySpark would start from an RDD of Python's, which takes far longer."""
    session = spark._jsparkSession  # noqa: SLF001
    rows = spark.sparkContext._jvm.java.util.ArrayList()  # type: ignore[union-attr]  # noqa: SLF001
    return DataFrame(session.createDataFrame(rows, session.parseDataType(schema.json())), spark)

"""DataFrames over files whose columns are known, made by one call; ``spark.read`` takes ten milliseconds of CPU for each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from pyspark.sql import DataFrame

from tidemark.spark.compiled_java import shared_object

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

_SEPARATOR: Final = "\0"
_CLASS: Final = "FileRelation"


def read_parquet(spark: SparkSession, addresses: Sequence[str], schema: StructType, options: Mapping[str, str]) -> DataFrame:
    """Return the rows of Parquet files; all columns are nullable.

    Args:
        spark: the session.
        addresses: of the files, one at least; each once, and no patterns.
        schema: their columns, without such types as ``VARCHAR(10)``, which only tables have.
        options: of Spark's reader.

    Raises:
        AnalysisException: ``PATH_NOT_FOUND``, a file is missing.
    """
    return _read(spark, addresses, schema, options, json=False)


def read_json(spark: SparkSession, addresses: Sequence[str], schema: StructType, options: Mapping[str, str]) -> DataFrame:
    """Return the rows of files of JSON lines; arguments and errors as of ``read_parquet``."""
    return _read(spark, addresses, schema, options, json=True)


def _read(spark: SparkSession, addresses: Sequence[str], schema: StructType, options: Mapping[str, str], *, json: bool) -> DataFrame:
    named = _SEPARATOR.join(text for option in options.items() for text in option)
    relation = shared_object(spark, __package__, _CLASS)
    made = relation.read(spark._jsparkSession, json, _SEPARATOR.join(addresses), schema.json(), named)  # noqa: SLF001
    return DataFrame(made, spark)

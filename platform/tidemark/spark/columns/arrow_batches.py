"""Settings of the batches in which rows go to Python."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from pyspark.sql import types as T

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_MAX_BYTES: Final = "spark.sql.execution.arrow.maxBytesPerBatch"
_NO_LIMIT: Final = str(2**31 - 1)
_UNBOUNDED: Final = (T.StringType, T.BinaryType, T.ArrayType, T.MapType, T.StructType)


@contextmanager
def unwatched(spark: SparkSession, columns: T.StructType) -> Iterator[None]:
    """Have Spark not ask for the size of a batch before each row, where rows are small."""
    before = str(spark.conf.get(_MAX_BYTES))
    spark.conf.set(_MAX_BYTES, _NO_LIMIT)
    try:
        yield
    finally:
        spark.conf.set(_MAX_BYTES, before)

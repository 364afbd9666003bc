"""The size of the batches in which rows go to Python, and the plain columns that the engine's own structs travel in."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F
from pyspark.sql import types as T

from tidemark.spark.changed_settings import changed_settings
from tidemark.spark.columns.expressions import POSITION

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

SMALL_ROW: Final = 512
"""Up to so many bytes are few for a row: ten thousand rows of twenty times that size are 100 MiB."""

POSITION_TYPE: Final = T.StructType().add("origin", "string").add("block", "long").add("row", "long")
"""The type of the hidden column by which rows of one time are ordered."""

POSITION_PARTS: Final[Mapping[str, T.StructField]] = {f"__tm_{field.name}": field for field in POSITION_TYPE}
"""The parts of a position, by the columns that they travel in: a struct takes Spark and Arrow longer."""

POSITION_ROW: Final = "__tm_row"
"""The part that tells rows of one file apart."""

_MAX_BYTES: Final = "spark.sql.execution.arrow.maxBytesPerBatch"
_NO_LIMIT: Final = 2**31 - 1


@contextmanager
def unwatched(spark: SparkSession, *, small_rows: bool) -> Iterator[None]:
    """Have Spark not ask for the size of a batch before each row, which takes long; where rows are small their number is enough."""
    with batches_of(spark, _NO_LIMIT) if small_rows else nullcontext():
        yield


@contextmanager
def batches_of(spark: SparkSession, size: int) -> Iterator[None]:
    """Have Spark end a batch with the row that makes it reach a size in bytes."""
    with changed_settings(spark, {_MAX_BYTES: str(size)}):
        yield


def has_python_step(rows: DataFrame) -> bool:
    """Return whether a step in Python makes the rows: those that it takes may be large where they are small."""
    jvm = rows.sparkSession.sparkContext._jvm  # noqa: SLF001
    if jvm is None:
        raise ValueError("the session has ended")
    plan = rows._jdf.queryExecution().analyzed()  # noqa: SLF001 - Python has no public way to ask
    return bool(plan.containsPattern(jvm.org.apache.spark.sql.catalyst.trees.TreePattern.PYTHON_UDF()))


def position_parts() -> list[str]:
    """Return SQL of the position of a row as plain columns."""
    return [f"{POSITION}.{field.name} AS {name}" for name, field in POSITION_PARTS.items()]


def position_of_parts(row: str = POSITION_ROW) -> Column:
    """Return the position that plain columns hold; ``row`` is SQL of its last part."""
    origin, block, _ = POSITION_PARTS
    return F.expr(f"named_struct('origin', {origin}, 'block', {block}, 'row', {row})").alias(POSITION)

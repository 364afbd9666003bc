"""Which side of a join is kept in memory: one whose rows need little there, which the size of their files does not say."""

from __future__ import annotations

import pytest
from pyspark.sql import types as T

from tidemark.spark.columns.few_rows import FEW_ROWS, can_hash
from tidemark.spark.columns.schemas import width_of

MIB = 1024 * 1024
NUMBERS = (T.LongType(), T.TimestampType(), T.DoubleType(), T.IntegerType())
TEXTS = (*NUMBERS, T.StringType())


def row_of(kinds: tuple[T.DataType, ...]) -> T.StructType:
    return T.StructType([T.StructField(f"c{number}", kind) for number, kind in enumerate(kinds)])


@pytest.mark.parametrize(
    ("kinds", "width"),
    [(NUMBERS, 32), ((T.DecimalType(18, 2), T.DecimalType(19, 2)), 32), (TEXTS, None), ((T.ArrayType(T.LongType()),), None)],
)
def test_the_bytes_of_a_row(kinds: tuple[T.DataType, ...], width: int | None) -> None:
    assert width_of(row_of(kinds)) == width


@pytest.mark.parametrize(
    ("kinds", "rows", "size", "hashed"),
    [
        (NUMBERS, 1_000_000, 16 * MIB, True),
        (NUMBERS, 2_000_000, 16 * MIB, False),
        # Of values that repeat files are small.
        (TEXTS, FEW_ROWS + 1, MIB, False),
        (TEXTS, FEW_ROWS, 32 * MIB, True),
        (TEXTS, FEW_ROWS, 33 * MIB, False),
    ],
)
def test_a_side_that_needs_little_memory_is_hashed(kinds: tuple[T.DataType, ...], rows: int, size: int, *, hashed: bool) -> None:
    assert can_hash(rows, size, width_of(row_of(kinds))) == hashed

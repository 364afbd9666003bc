"""Columns of the state of groups, and of the frames of an epoch."""

from __future__ import annotations

from typing import Final

from pyspark.sql import types as T

from tidemark.spark.columns.expressions import TIME

ROWS: Final = "__tm_group_rows"
"""How many rows a group has."""

EVENT_DUE: Final = "__tm_event_due"
PROCESSING_DUE: Final = "__tm_processing_due"
"""When the state of a group expires, by the domain of its lifetime."""

NUMBER: Final = "__tm_number"
"""How many rows have a counted value."""

WEIGHT: Final = "__tm_weight"
"""1 for a row that comes, -1 for one that goes, 0 for one that is taken back from a group that state does not have."""

KNOWN: Final = "__tm_known"
"""Whether state has the group of a row that is taken back, where groups expire."""

INPUT: Final = "__tm_input"
"""How many rows of input a group has in an epoch."""

EMITS: Final = "__tm_emits"
"""How many rows of changes a group makes in an epoch."""

DELTA: Final = "__tm_delta"
"""What an epoch adds to the state of a group, as a struct; ``STORED`` is the state before it."""

SIDE: Final = "__tm_side"
"""0 for what was there before an epoch, 1 for what is there after it."""

FOUND: Final = "__tm_found"
"""Results of counted values and of kept rows, of one side, as a struct."""

GROUP_FIELDS: Final = (
    T.StructField(ROWS, T.LongType()),
    T.StructField(TIME, T.LongType()),
    T.StructField(EVENT_DUE, T.LongType()),
    T.StructField(PROCESSING_DUE, T.LongType()),
)
"""The columns of the table of groups beside keys and aggregates."""

VALUE_FIELDS: Final = (T.StructField(NUMBER, T.LongType()),)
"""The columns of the table of values beside keys and values."""

VALUES_PART: Final = "values"
KEPT_PART: Final = "rows"
"""The tables of counted values, and of the partial results of single rows; the main one has a row for each group."""


def row_key_column(name: str) -> str:
    """Return the name in state of a column of the key of the input's rows."""
    return f"of_{name}"

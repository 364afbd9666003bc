"""Columns of the rows that a pass over keys reads and makes, and of the table of keys.

Names of users' columns never begin as these do, so that both can be in one frame.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import types as T

from tidemark.spark.operators.keyed.columns import DUE, EPOCH, OLDEST, STATE, TIMER

RANK: Final = "__tm_rank"
"""Orders the rows of a key: stored ones by epoch, before all elements, which are ordered by time."""

ELEMENT: Final = "__tm_is_element"
NOW: Final = "__tm_now"
"""The time from which the lifetime of state counts that a row wrote; null where it never expires."""

HAD: Final = "__tm_had"
"""Whether the key had state before the epoch."""

REACHED: Final = "__tm_reached"
"""Whether the deadline of a stored row was reached."""

LAST: Final = "__tm_last"
"""Whether a row is the last of its key: it has the state after the epoch."""

COUNT: Final = "__tm_count"
"""How many elements a row stands for."""

EMITS: Final = "__tm_emits"
CHANGES: Final = "__tm_changes"
"""Whether a row has results, and whether it has a key's next state."""

LIVE: Final = "__tm_live"
"""The text in ``STATE`` of a key that has state."""

EVENT_RENEWED: Final = "__tm_event_renewed"
PROCESSING_RENEWED: Final = "__tm_processing_renewed"
"""Columns of state: the time from which its lifetime counts, by domain; a lifetime in another domain begins again."""

ENGINE_FIELDS: Final = (
    T.StructField(EVENT_RENEWED, T.LongType()),
    T.StructField(PROCESSING_RENEWED, T.LongType()),
    T.StructField(STATE, T.StringType()),
    T.StructField(DUE, T.LongType()),
    T.StructField(TIMER, T.LongType()),
    T.StructField(OLDEST, T.LongType()),
    T.StructField(EPOCH, T.LongType()),
)
"""The columns of the table of keys beside keys and values."""


def key_name(number: int) -> str:
    """Return the name of a key in a pass."""
    return f"__tm_key_{number}"


def kept_name(number: int) -> str:
    """Return the name of a value of state in a pass."""
    return f"__tm_kept_{number}"


def result_name(number: int) -> str:
    """Return the name of a result column in a pass."""
    return f"__tm_result_{number}"

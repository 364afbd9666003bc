"""Columns of the rows that go into a window process and come out of it, and the tags that tell them apart.

Into it go, per key: ``VERSION`` rows (what is kept of the key, the newest first), ``NEW`` rows (the epoch's elements in order), ``STORED``
rows (elements of earlier epochs in order). Out of it come ``VERSION`` and ``STORED`` rows to be kept, ``LATE`` ones, ``PANE`` rows with
what fired, and ``NOTE`` rows that are only counted.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import types as T

from tidemark.graph.checks.state_columns import ELEMENT_ORDER

VERSION: Final = 0
NEW: Final = 1
STORED: Final = 2
LATE: Final = 3
PANE: Final = 4
NOTE: Final = 5

TAG = "__tm_tag"
HASH = "__tm_hash"
HASH_AGAIN = "__tm_hash_again"
"""Two hashes of a key, of different kinds: where a key begins is where one of them changes."""

SORT = "__tm_sort"
ORDER = ELEMENT_ORDER
GAP = "__tm_gap"

STATE = "__tm_state"
DUE = "__tm_due"
TIMER = "__tm_timer"
OLDEST = "__tm_oldest"
EPOCH = "__tm_epoch"

PANE_NUMBER = "__tm_pane"
FROM = "__tm_from"
TO = "__tm_to"
TIMING = "__tm_timing"
INDEX = "__tm_index"
RESULT_TIME = "__tm_result_time"
REPLACES = "__tm_replaces"
RESULT_NUMBER = "__tm_result"

ACCEPTED = "__tm_accepted"
REFUSED = "__tm_refused"
OPENED = "__tm_opened"

VERSION_FIELDS: Final = (
    T.StructField(STATE, T.StringType()),
    T.StructField(DUE, T.LongType()),
    T.StructField(TIMER, T.LongType()),
    T.StructField(OLDEST, T.LongType()),
    T.StructField(EPOCH, T.LongType()),
)
"""What is kept of a key beside itself: its state's text (null: there is none any more), when it is due, the start of its oldest window."""

PANE_FIELDS: Final = (
    T.StructField(PANE_NUMBER, T.LongType()),
    T.StructField(FROM, T.LongType()),
    T.StructField(TO, T.LongType()),
    T.StructField(TIMING, T.StringType()),
    T.StructField(INDEX, T.LongType()),
    T.StructField(RESULT_TIME, T.LongType()),
    T.StructField(REPLACES, T.ArrayType(T.StructType().add("start", "long").add("end", "long"))),
    T.StructField(RESULT_NUMBER, T.LongType()),
)
"""Of a pane: its number among those of its key in the epoch, its bounds, and of each of its rows the number in the pane."""

NOTE_FIELDS: Final = (
    T.StructField(ACCEPTED, T.LongType()),
    T.StructField(REFUSED, T.LongType()),
    T.StructField(OPENED, T.LongType()),
)
"""Elements taken, elements late, and 1 for a key of which something is kept from now on, -1 for one of which nothing is."""


def result_column(name: str) -> str:
    """Return the name that a column of a window function has beside those of the engine."""
    return f"result_{name}"


def names_of(fields: tuple[T.StructField, ...]) -> tuple[str, ...]:
    """Return the names of columns."""
    return tuple(field.name for field in fields)

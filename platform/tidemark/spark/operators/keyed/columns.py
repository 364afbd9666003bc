"""Columns of a keyed task's input and output rows, and the tags that distinguish them.

Input, per key: ``VERSION`` rows (the key's state, the newest first), ``NEW`` rows (the epoch's input in order), ``STORED`` rows (rows of
earlier epochs in order). Output: ``VERSION`` and ``STORED`` rows to keep, ``LATE`` rows, ``OUTPUT`` rows with results, rows of greater tags
that belong to an operator kind, and from ``NOTE`` on rows that are counted and never stored.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import types as T

from tidemark.graph.operators.state_names import ELEMENT_ORDER

VERSION: Final = 0
NEW: Final = 1
STORED: Final = 2
LATE: Final = 3
OUTPUT: Final = 4
NOTE: Final = 1_000

TAG = "__tm_tag"
HASH = "__tm_hash"
HASH_AGAIN = "__tm_hash_again"
"""Two different hashes of a key: a new key begins where one of them changes."""

SORT = "__tm_sort"
ORDER = ELEMENT_ORDER

STATE = "__tm_state"
DUE = "__tm_due"
TIMER = "__tm_timer"
OLDEST = "__tm_oldest"
EPOCH = "__tm_epoch"

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
"""A key's version: its state as text (null: none), its deadlines, the oldest time of rows that it needs, the epoch."""

NOTE_FIELDS: Final = (
    T.StructField(ACCEPTED, T.LongType()),
    T.StructField(REFUSED, T.LongType()),
    T.StructField(OPENED, T.LongType()),
)
"""Accepted rows, late rows, and 1 for a key that gets state, -1 for one whose state is removed."""


def result_column(name: str) -> str:
    """Return the internal name of a column of a user's function, distinct from the engine's columns."""
    return f"result_{name}"


def names_of(fields: tuple[T.StructField, ...]) -> tuple[str, ...]:
    """Return the names of columns."""
    return tuple(field.name for field in fields)

"""Columns of the rows that go into a task over keys and come out of it, and the tags that tell them apart.

Into it go, per key: ``VERSION`` rows (what is kept of the key, the newest first), ``NEW`` rows (the epoch's input in order), ``STORED``
rows (rows of earlier epochs in order). Out of it come ``VERSION`` and ``STORED`` rows to be kept, ``LATE`` ones, ``OUTPUT`` rows with
results, and ``NOTE`` rows, which are counted and never stored; so are rows of greater tags, which are an operator kind's own.
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
NOTE: Final = 5

TAG = "__tm_tag"
HASH = "__tm_hash"
HASH_AGAIN = "__tm_hash_again"
"""Two hashes of a key, of different kinds: where a key begins is where one of them changes."""

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
"""What is kept of a key: its state's text (null: nothing), its deadlines, the oldest time that it needs rows of, the epoch."""

NOTE_FIELDS: Final = (
    T.StructField(ACCEPTED, T.LongType()),
    T.StructField(REFUSED, T.LongType()),
    T.StructField(OPENED, T.LongType()),
)
"""Rows taken, rows late, and 1 for a key of which something is kept from now on, -1 for one of which nothing is."""


def result_column(name: str) -> str:
    """Return the name that a column of a user's function has beside those of the engine."""
    return f"result_{name}"


def names_of(fields: tuple[T.StructField, ...]) -> tuple[str, ...]:
    """Return the names of columns."""
    return tuple(field.name for field in fields)

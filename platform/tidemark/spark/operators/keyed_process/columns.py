"""Columns and tags of a process function's state and task, besides those of all keyed operators."""

from __future__ import annotations

from typing import Final

from pyspark.sql import types as T

from tidemark.graph.operators.emitting import emitted_counter
from tidemark.graph.operators.keyed_process.node import KeyedProcessNode
from tidemark.spark.operators.keyed.columns import NOTE

FAILED_ROW: Final = 5
"""Elements whose call failed, with the error."""

FAILED_TIMER: Final = 6
"""Errors of timers, which have no element."""

FIRST_SIDE: Final = 10
"""The tag of the first side output; the others follow."""

KEY_NOTE: Final = NOTE + 1
"""What happened to keys, timers and state in a task, in numbers."""

EVENT_TIMERS = "__tm_event_timers"
PROCESSING_TIMERS = "__tm_processing_timers"
ERROR = "__tm_error"
INPUT = "__tm_input"
"""The number of an element's input, where there are two."""

FAILED_INPUT = "__tm_failed_input"
FAILED_ELEMENT = "__tm_failed_element"
RESULT_TIME = "__tm_result_time"
RESULT_NUMBER = "__tm_result_number"

FIRED = "__tm_fired"
EXPIRED = "__tm_expired"
EMPTIED_KEYS = "__tm_emptied_keys"
EXPIRED_KEYS = "__tm_expired_keys"
TIMERS = "__tm_timers"
SECOND_ACCEPTED = "__tm_second_accepted"
SECOND_FAILED = "__tm_second_failed"

_TIMER_LIST: Final = T.ArrayType(T.StructType().add("time", T.LongType()).add("name", T.StringType()))

TIMER_FIELDS: Final = (T.StructField(EVENT_TIMERS, _TIMER_LIST), T.StructField(PROCESSING_TIMERS, _TIMER_LIST))
"""The timers of a key by domain: when each is due, and its name, null for one without."""

RESULT_FIELDS: Final = (T.StructField(RESULT_TIME, T.LongType()), T.StructField(RESULT_NUMBER, T.LongType()))
"""The time of a row that the function emitted, and its number among those of its key in the epoch."""

_NUMBERS: Final = (FIRED, EXPIRED, EMPTIED_KEYS, EXPIRED_KEYS, TIMERS, SECOND_ACCEPTED, SECOND_FAILED)

NOTE_FIELDS: Final = tuple(T.StructField(name, T.LongType()) for name in _NUMBERS)
"""Timers that fired, entries of state that expired, keys that keep nothing any more (``EXPIRED_KEYS``: since what they kept expired), and
the change in the number of timers; and how many of the elements were those of the second input."""


def side_tags(node: KeyedProcessNode) -> dict[str, int]:
    """Return the tag of the rows of each side output, by the name of its counter."""
    return {emitted_counter(tag): FIRST_SIDE + number for number, (tag, _) in enumerate(node.side_outputs)}


def side_column(tag: int, name: str) -> str:
    """Return the internal name of a column of a side output."""
    return f"side_{tag}_{name}"

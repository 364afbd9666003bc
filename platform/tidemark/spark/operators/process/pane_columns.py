"""Columns of panes, in addition to those of any keyed task."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pyspark.sql import types as T

from tidemark.semantics.windows.windows import GLOBAL_WINDOW, Window
from tidemark.spark.operators.keyed.columns import NOTE
from tidemark.spark.operators.keyed.key_state import origin_of
from tidemark.spark.operators.keyed.output_buffer import OutputBuffer, Shape
from tidemark.spark.operators.keyed.rows import Place

PANE_NOTE: Final = NOTE + 1
"""The tag of rows that count panes, and windows that late elements would have belonged to."""

GAP = "__tm_gap"
PANE_NUMBER = "__tm_pane"
FROM = "__tm_from"
TO = "__tm_to"
TIMING = "__tm_timing"
INDEX = "__tm_index"
RESULT_TIME = "__tm_result_time"
REPLACES = "__tm_replaces"
RESULT_NUMBER = "__tm_result"

GAP_FIELD: Final = T.StructField(GAP, T.LongType())

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
"""A pane's number among those of its key in the epoch, its bounds, and the number of each of its rows in the pane."""

PANE_NOTES: Final = Shape(made=(FROM, TO, TIMING, INDEX))
LATE_ELEMENT = "REFUSED"
"""Marks a note, in place of a pane's timing, as one of a window that late elements would have belonged to; their number is its index."""


def note_pane(out: OutputBuffer, window: Window, timing: str, place: Place) -> None:
    """Count a pane."""
    out.add(PANE_NOTE, place, (*bounds_of(window), timing, None))


def note_late_window(out: OutputBuffer, window: Window, elements: int, place: Place) -> None:
    """Count a window that so many late elements of a key would have belonged to."""
    out.add(PANE_NOTE, place, (window.start, bounds_of(window)[1], LATE_ELEMENT, elements))


def bounds_of(window: Window) -> tuple[int | None, int | None]:
    """Return the bounds of a window as results have them, None for the global one."""
    return (None, None) if window == GLOBAL_WINDOW else (window.start, window.end)


def origin_of_pane(key: Mapping[str, object], window: Window) -> str:
    """Return key and window as errors show them."""
    bounds = "" if window == GLOBAL_WINDOW else f" and the window [{window.start}, {window.end})"
    return f"{origin_of(key)}{bounds}"

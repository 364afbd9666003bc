"""The column ``replaces``: bounds of sessions with emitted results that a row replaces, as in rows and as in state."""

from __future__ import annotations

from typing import Final

from pyspark.sql import types as T

REPLACED_TYPE: Final = T.ArrayType(T.StructType().add("window_start", "timestamp").add("window_end", "timestamp"))
STARTS_TYPE: Final = T.ArrayType(T.TimestampType())
"""In tables that an earlier release created: starts only."""

LISTED: Final = "__tm_replaced_sessions"
"""Has both bounds in files staged for such a table; its readers do not see it."""

NOTHING_REPLACED: Final = "CAST(array() AS ARRAY<STRUCT<window_start: TIMESTAMP, window_end: TIMESTAMP>>)"
_NO_END: Final = "CAST(NULL AS TIMESTAMP)"


def replaced_sessions(bounds: str, condition: str = "true") -> str:
    """Return the column's value.

    Args:
        bounds: SQL of an array of structs ``start`` and ``end``, milliseconds; an end is null where only the start is known.
        condition: where it does not hold, nothing is replaced.
    """
    entry = "named_struct('window_start', timestamp_millis(x.start), 'window_end', timestamp_millis(x.end))"
    return f"transform(if({condition}, array_sort({bounds}), filter({bounds}, x -> false)), x -> {entry})"


def bounds_of_replaced(column: str) -> str:
    """Return the inverse of ``replaced_sessions``: an array of structs ``start`` and ``end``, milliseconds."""
    return f"transform({column}, x -> named_struct('start', unix_millis(x.window_start), 'end', unix_millis(x.window_end)))"


def entries_of(column: str, kind: T.DataType) -> str | None:
    """Return SQL of a column's entries with both bounds, the end null where not known; None if the type is not that of ``replaces``."""
    if kind.simpleString() == REPLACED_TYPE.simpleString():
        return column
    if kind.simpleString() == STARTS_TYPE.simpleString():
        return f"transform({column}, x -> named_struct('window_start', x, 'window_end', {_NO_END}))"
    return None


def starts_of(column: str) -> str:
    """Return SQL of the starts of a column's entries, each once."""
    return f"array_distinct(transform({column}, x -> x.window_start))"

"""Names of columns in state: keys, partial results and elements, besides the engine's."""

from __future__ import annotations

ELEMENT_ORDER = "__tm_order"
"""The column that only elements in state have: their order of arrival."""

FUNCTION_PART = "function"
"""The table of the per-key state of a window function after aggregates."""

_ELEMENT = "row_"


def key_column(name: str) -> str:
    """Return the name that a key has in state."""
    return f"key_{name}"


def partial_column(aggregate: str, partial: str) -> str:
    """Return the name that an aggregate's partial has in state."""
    return f"{aggregate}__{partial}"


def element_column(name: str) -> str:
    """Return the name that a column of the stream has in state."""
    return f"{_ELEMENT}{name}"


def element_name(column: str) -> str | None:
    """Return the name in the stream of a column of elements in state, None for other columns."""
    return column.removeprefix(_ELEMENT) if column.startswith(_ELEMENT) else None


def left_column(name: str) -> str:
    """Return the name that a column of a join's left input has in state."""
    return f"left_{name}"


def right_column(name: str) -> str:
    """Return the name that a column of a join's right input has in state."""
    return f"right_{name}"

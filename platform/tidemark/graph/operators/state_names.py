"""Names that columns have in state: of keys, partial results and elements, beside those of the engine."""

from __future__ import annotations

ELEMENT_ORDER = "__tm_order"
"""The column that elements in state have, and nothing else: their order of arrival."""

FUNCTION_PART = "function"
"""The table of what a window function behind aggregates keeps of keys."""

_ELEMENT = "row_"


def key_column(name: str) -> str:
    """Return the name that a key has in state."""
    return f"key_{name}"


def partial_column(aggregate: str, partial: str) -> str:
    """Return the name that an aggregate's partial has in state."""
    return f"{aggregate}__{partial}"


def element_column(name: str) -> str:
    """Return the name that a column of the stream has in state, beside those of the engine."""
    return f"{_ELEMENT}{name}"


def element_name(column: str) -> str | None:
    """Return the name in the stream of a column of elements in state, None for other columns."""
    return column.removeprefix(_ELEMENT) if column.startswith(_ELEMENT) else None

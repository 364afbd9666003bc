"""Which type of Postgres holds the values of a type of Spark exactly."""

from __future__ import annotations

import re
from typing import Final

from tidemark.graph.operators.window.columns import REPLACED_SESSIONS, REPLACES

_SCALARS: Final = {
    "BOOLEAN": "boolean",
    "TINYINT": "smallint",
    "SMALLINT": "smallint",
    "INT": "integer",
    "BIGINT": "bigint",
    "FLOAT": "real",
    "DOUBLE": "double precision",
    "STRING": "text",
    "BINARY": "bytea",
    "DATE": "date",
    "TIMESTAMP": "timestamp with time zone",
    "TIMESTAMP_NTZ": "timestamp without time zone",
}
_DECIMAL: Final = re.compile(r"DECIMAL\((\d+), ?(\d+)\)")
_TEXT: Final = re.compile(r"(?:VAR)?CHAR\(\d+\)")
_ARRAY: Final = re.compile(r"ARRAY<(.+)>")

_WIDER: Final = {
    "smallint": frozenset({"integer", "bigint", "numeric"}),
    "integer": frozenset({"bigint", "numeric", "double precision"}),
    "bigint": frozenset({"numeric"}),
    "real": frozenset({"double precision"}),
    "text": frozenset({"character varying"}),
}
"""Types of a table's columns that hold all values of another one."""


def postgres_type(kind: str, column: str = "") -> str | None:
    """Return the type of Postgres, as its catalog names it, for a type of Spark; None where no type holds its values exactly.

    Args:
        kind: Spark's, as DDL.
        column: its name: the bounds of replaced sessions are written as JSON.

    >>> postgres_type("DECIMAL(10, 2)"), postgres_type("ARRAY<TIMESTAMP>"), postgres_type("STRUCT<a: INT>")
    ('numeric(10,2)', 'timestamp with time zone[]', None)
    """
    if column == REPLACES and kind == REPLACED_SESSIONS:
        return "jsonb"
    array = _ARRAY.fullmatch(kind)
    if array is not None:
        item = _scalar(array[1])
        return None if item is None else f"{item}[]"
    return _scalar(kind)


def _scalar(kind: str) -> str | None:
    if decimal := _DECIMAL.fullmatch(kind):
        return f"numeric({decimal[1]},{decimal[2]})"
    return "text" if _TEXT.fullmatch(kind) else _SCALARS.get(kind)


def holds(stored: str, wanted: str) -> bool:
    """Return whether a table's column takes all values of a type.

    >>> holds("numeric", "numeric(10,2)"), holds("bigint", "integer"), holds("integer", "bigint"), holds("numeric(8,2)", "numeric(10,2)")
    (True, True, False, False)
    """
    return (
        stored == wanted
        or stored in _WIDER.get(wanted, ())
        or (stored == "numeric" and wanted.startswith("numeric(") and wanted[-1] == ")")
    )


def instead_of(kind: str, column: str) -> str:
    """Return what to write instead of a column whose type Postgres does not have."""
    name = column if re.fullmatch(r"\w+", column) else f"`{column}`"
    if kind.startswith("ARRAY<ARRAY<"):
        return f".with_columns(**{{{column!r}: 'to_json({name})'}}): arrays within arrays of Postgres all have one length"
    if kind.startswith(("STRUCT<", "MAP<", "ARRAY<")):
        return f".with_columns(**{{{column!r}: 'to_json({name})'}}), which is written as text, or .select(...) of its fields"
    return f"cast it before: .with_columns(**{{{column!r}: 'CAST({name} AS STRING)'}})"

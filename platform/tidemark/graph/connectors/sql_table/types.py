"""Which types of MariaDB, MySQL and SQLite hold the values of a type of Spark exactly."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

from tidemark.graph.connectors.sql_table.node import SqlDatabase
from tidemark.graph.operators.window.columns import REPLACED_SESSIONS, REPLACES

_MARIADB: Final[Mapping[str, str]] = MappingProxyType(
    {
        "BOOLEAN": "tinyint",
        "TINYINT": "tinyint",
        "SMALLINT": "smallint",
        "INT": "int",
        "BIGINT": "bigint",
        # Their FLOAT is shown with six digits, so that what is read is not what was written.
        "FLOAT": "double",
        "DOUBLE": "double",
        "STRING": "longtext",
        "BINARY": "longblob",
        "DATE": "date",
        "TIMESTAMP": "datetime(6)",
        "TIMESTAMP_NTZ": "datetime(6)",
    }
)
_SQLITE: Final[Mapping[str, str]] = MappingProxyType(
    {
        **dict.fromkeys(("BOOLEAN", "TINYINT", "SMALLINT", "INT", "BIGINT"), "INTEGER"),
        **dict.fromkeys(("FLOAT", "DOUBLE"), "REAL"),
        **dict.fromkeys(("STRING", "DATE", "TIMESTAMP", "TIMESTAMP_NTZ"), "TEXT"),
        "BINARY": "BLOB",
    }
)
_DECIMAL: Final = re.compile(r"DECIMAL\((\d+), ?(\d+)\)")
_TEXT: Final = re.compile(r"(?:VAR)?CHAR\(\d+\)")

INDEX_BYTES: Final = 3072
"""The longest row of an index of InnoDB with pages of 16 KB."""

_FIXED_BYTES: Final = 32
_BYTES_OF_CHARACTER: Final = 4
_LONGEST_KEY: Final = 255


def sql_type(database: SqlDatabase, kind: str, column: str = "") -> str | None:
    """Return the type of a database for a type of Spark; None where no type holds its values exactly.

    Args:
        database: whose.
        kind: Spark's, as DDL.
        column: its name: the bounds of replaced sessions are written as JSON.

    >>> sql_type("mariadb", "DECIMAL(10, 2)"), sql_type("sqlite", "DECIMAL(10, 2)"), sql_type("sqlite", "ARRAY<INT>")
    ('decimal(10,2)', 'TEXT', None)
    """
    scalars = _SQLITE if database == "sqlite" else _MARIADB
    if _TEXT.fullmatch(kind) or (column == REPLACES and kind == REPLACED_SESSIONS):
        return scalars["STRING"]
    decimal = _DECIMAL.fullmatch(kind)
    if decimal is None:
        return scalars.get(kind)
    if database == "sqlite":
        # Its numbers are integers of 64 bits and floats.
        return "TEXT"
    # MySQL has at most 30 digits after the point.
    return f"decimal({decimal[1]},{decimal[2]})" if int(decimal[2]) <= 30 else None


def key_types(types: Mapping[str, str], keys: Sequence[str]) -> dict[str, str]:
    """Return types of columns, where texts and binary values of a key fit into an index of MariaDB and MySQL together.

    Args:
        types: by column.
        keys: of an upsert, empty for an append.

    >>> key_types({"k": "longtext", "v": "longtext"}, ["k"])
    {'k': 'varchar(255)', 'v': 'longtext'}
    """
    long = [key for key in keys if types.get(key) in {"longtext", "longblob"}]
    if not long:
        return dict(types)
    room = (INDEX_BYTES - _FIXED_BYTES * len(keys)) // len(long)
    found = dict(types)
    for key in long:
        text = types[key] == "longtext"
        length = min(_LONGEST_KEY, room // _BYTES_OF_CHARACTER if text else room)
        found[key] = f"{'varchar' if text else 'varbinary'}({length})"
    return found


def instead_of(kind: str, column: str) -> str:
    """Return what to write instead of a column whose type a database does not have."""
    name = column if re.fullmatch(r"\w+", column) else f"`{column}`"
    if kind.startswith(("STRUCT<", "MAP<", "ARRAY<")):
        return f".with_columns(**{{{column!r}: 'to_json({name})'}}), which is written as text, or .select(...) of its fields"
    return f"cast it before: .with_columns(**{{{column!r}: 'CAST({name} AS STRING)'}})"

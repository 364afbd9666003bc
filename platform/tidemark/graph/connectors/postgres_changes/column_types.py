"""Which types of Spark take the values of a type of Postgres."""

from __future__ import annotations

import re
from typing import Final

_READS: Final = {
    "boolean": ("BOOLEAN",),
    "smallint": ("SMALLINT", "INT", "BIGINT"),
    "integer": ("INT", "BIGINT"),
    "bigint": ("BIGINT",),
    "oid": ("BIGINT",),
    "real": ("FLOAT", "DOUBLE"),
    "double precision": ("DOUBLE",),
    "bytea": ("BINARY",),
    "date": ("DATE",),
    "timestamp without time zone": ("TIMESTAMP_NTZ",),
    "timestamp with time zone": ("TIMESTAMP",),
}
_PRECISION: Final = re.compile(r"\(\d+\)")
"""Of times, such as ``timestamp(3) with time zone``."""

_NUMERIC: Final = re.compile(r"numeric(?:\((\d+),(-?\d+)\))?")
_DECIMAL: Final = re.compile(r"DECIMAL\((\d+), ?(\d+)\)")

DECLARABLE: Final = frozenset({kind for kinds in _READS.values() for kind in kinds} | {"STRING"})
"""Types that a captured column may have, besides decimals."""


def is_declarable(kind: str | None) -> bool:
    """Return whether a captured column may be declared with a type of Spark."""
    return kind is not None and (kind in DECLARABLE or _DECIMAL.fullmatch(kind) is not None)


def reads(kind: str, stored: str) -> bool:
    """Return whether a column of a type of Spark takes all values of one of Postgres; any value is a text.

    Of ``numeric`` without a precision a decimal takes what fits, rounded.

    Args:
        kind: Spark's, as DDL.
        stored: of Postgres, as its catalog names it.

    >>> reads("DECIMAL(12, 2)", "numeric(10,2)"), reads("DECIMAL(10, 1)", "numeric(10,2)"), reads("INT", "bigint"), reads("STRING", "uuid")
    (True, False, False, True)
    """
    if kind == "STRING":
        return True
    numeric = _NUMERIC.fullmatch(stored)
    if numeric is not None:
        return kind == "DOUBLE" or _takes(kind, numeric)
    return kind in _READS.get(_PRECISION.sub("", stored), ())


def tells_apart(kind: str, stored: str) -> bool:
    """Return whether a type of Spark that ``reads`` a column of Postgres has different values for different keys.

    >>> tells_apart("DECIMAL(38, 9)", "numeric"), tells_apart("DOUBLE", "numeric(20,2)"), tells_apart("STRING", "numeric")
    (False, False, True)
    """
    numeric = _NUMERIC.fullmatch(stored)
    return numeric is None or kind == "STRING" or (kind != "DOUBLE" and numeric[1] is not None)


def types_for(stored: str) -> str:
    """Return what to declare for a type of Postgres.

    >>> types_for("numeric(10,2)"), types_for("integer"), types_for("jsonb")
    ('DECIMAL(10, 2)', 'INT or BIGINT', 'STRING')
    """
    numeric = _NUMERIC.fullmatch(stored)
    if numeric is not None:
        return "DECIMAL(38, 9), DOUBLE or STRING" if numeric[1] is None else _decimal(int(numeric[1]), int(numeric[2]))
    return " or ".join(_READS.get(_PRECISION.sub("", stored), ("STRING",)))


def _decimal(precision: int, scale: int) -> str:
    digits = max(precision - min(scale, 0), scale)
    return f"DECIMAL({digits}, {max(scale, 0)})" if digits <= 38 else "STRING"


def _takes(kind: str, numeric: re.Match[str]) -> bool:
    declared = _DECIMAL.fullmatch(kind)
    if declared is None or numeric[1] is None:
        return declared is not None
    precision, scale = int(declared[1]), int(declared[2])
    return scale >= int(numeric[2]) and precision - scale >= int(numeric[1]) - int(numeric[2])

"""SQL of names and texts, of times that records have as texts, and of values that a record does not have."""

from __future__ import annotations

import base64
import json
import uuid
from hashlib import md5
from typing import Final

DEFAULT_PLACEHOLDER: Final = "__debezium_unavailable_value"
"""Debezium's value for a column that its database did not send, since the change left it as it was."""

_DATED: Final = "'^[+-]?[0-9]{4,6}-[0-9]{2}-[0-9]{2}'"
_WHOLE: Final = ("TINYINT", "SMALLINT", "INT", "BIGINT")


def quoted(name: str) -> str:
    """Return a column's name as SQL."""
    return f"`{name.replace('`', '``')}`"


def literal(text: str) -> str:
    """Return a text as an SQL literal."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def wire_type(kind: str) -> str:
    """Return the type by which a column is read from JSON: a number is no time, whose unit nothing says, so times are read as texts."""
    return "STRING" if kind == "TIMESTAMP" else kind


def time_of(text: str) -> str:
    """Return SQL of the time that a text has, null where it is none that begins with a date."""
    return f"if({text} RLIKE {_DATED}, try_cast({text} AS TIMESTAMP), NULL)"


def is_unavailable(value: str, kind: str, placeholder: str) -> str | None:
    """Return SQL of whether a value of a type stands for one that the record does not have; None for types that cannot say so.

    Debezium writes the placeholder as a text, also for JSON; its bytes as they are, in Base64 or hexadecimal; in arrays as their only
    value, in arrays of numbers as its bytes; and in maps (``hstore``) as key and value.

    >>> is_unavailable("row.tags", "ARRAY<INT>", "ab")
    'coalesce(row.tags = CAST(array(97, 98) AS ARRAY<INT>), false)'
    """
    texts = ", ".join(map(literal, _texts(placeholder)))
    data = f"CAST({literal(placeholder)} AS BINARY)"
    condition = None
    if kind == "STRING":
        condition = f"{value} IN ({texts})"
    elif kind == "BINARY":
        condition = f"{value} = {data}"
    elif kind == "ARRAY<STRING>":
        condition = f"size({value}) = 1 AND {value}[0] IN ({texts})"
    elif kind == "ARRAY<BINARY>":
        condition = f"size({value}) = 1 AND {value}[0] = {data}"
    elif kind in {f"ARRAY<{each}>" for each in _WHOLE[1:]}:
        numbers = ", ".join(map(str, placeholder.encode()))
        condition = f"{value} = CAST(array({numbers}) AS {kind})"
    elif kind == "MAP<STRING, STRING>":
        condition = f"map_keys({value}) = array({literal(placeholder)})"
    return None if condition is None else f"coalesce({condition}, false)"


def _texts(placeholder: str) -> tuple[str, ...]:
    """Return the texts by which a placeholder is written."""
    data = placeholder.encode()
    encoded = (base64.b64encode(data), base64.urlsafe_b64encode(data), data.hex().encode())
    # Of a UUID Debezium writes Java's nameUUIDFromBytes.
    identity = str(uuid.UUID(bytes=md5(data, usedforsecurity=False).digest(), version=3))
    map_text = json.dumps({placeholder: placeholder}, separators=(",", ":"))
    return tuple(dict.fromkeys((placeholder, *(each.decode() for each in encoded), identity, map_text)))

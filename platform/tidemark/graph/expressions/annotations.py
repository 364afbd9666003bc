"""Spark types of Python annotations: a dataclass as the columns of rows, or as the states of a key."""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Mapping
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any, Final, Union, get_args, get_origin, get_type_hints

_PLAIN: Final[Mapping[object, str]] = types.MappingProxyType(
    {
        int: "BIGINT",
        float: "DOUBLE",
        str: "STRING",
        bool: "BOOLEAN",
        bytes: "BINARY",
        datetime: "TIMESTAMP",
        date: "DATE",
        Decimal: "DECIMAL(38, 18)",
        timedelta: "INTERVAL DAY TO SECOND",
    }
)

KNOWN: Final = (
    "int, float, str, bool, bytes, datetime, date, Decimal, timedelta, list[...], dict[..., ...], a dataclass, or one of them | None"
)
"""The annotations that have a type."""


def field_types(owner: type) -> dict[str, str | None]:
    """Return the types of a dataclass's fields, None where there is none for an annotation.

    >>> @dataclasses.dataclass
    ... class Tip:
    ...     driver: int
    ...     tags: list[str]
    >>> field_types(Tip)
    {'driver': 'BIGINT', 'tags': 'ARRAY<STRING>'}
    """
    hints = get_type_hints(owner)
    return {field.name: type_of_annotation(hints.get(field.name)) for field in dataclasses.fields(owner)}


def type_of_annotation(annotation: object) -> str | None:
    """Return the Spark type of an annotation, None where there is none."""
    if annotation in _PLAIN:
        return _PLAIN[annotation]
    if isinstance(annotation, type) and dataclasses.is_dataclass(annotation):
        fields = field_types(annotation)
        return f"STRUCT<{', '.join(f'{name}: {kind}' for name, kind in fields.items())}>" if all(fields.values()) else None
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin in (Union, types.UnionType):
        others = [each for each in arguments if each is not type(None)]
        return type_of_annotation(others[0]) if len(others) == 1 else None
    inner: list[Any] = [type_of_annotation(each) for each in arguments]
    if origin is list and len(inner) == 1 and inner[0]:
        return f"ARRAY<{inner[0]}>"
    if origin is dict and len(inner) == 2 and all(inner):
        return f"MAP<{inner[0]}, {inner[1]}>"
    return None

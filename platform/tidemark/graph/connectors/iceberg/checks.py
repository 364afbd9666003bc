"""Checks of what is declared of an Iceberg sink: names, partitions, and the types of its columns."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from tidemark.errors import ColumnError, DefinitionError
from tidemark.graph.connectors.iceberg.node import MAX_NAME, IcebergTable, PartitionBy
from tidemark.graph.expressions.expression_text import shortened
from tidemark.graph.model.schema import Schema

_CATALOG: Final = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,62}", re.ASCII)
_PART: Final = re.compile(rf"[A-Za-z_][A-Za-z0-9_]{{0,{MAX_NAME - 1}}}", re.ASCII)
_CALL: Final = re.compile(r"\s*(?P<transform>\w+)\s*\(\s*(?:(?P<width>\d{1,9})\s*,\s*)?(?P<column>[^(),]+?)\s*\)\s*")
_TIMES: Final = {"year": "year", "years": "year", "month": "month", "months": "month", "day": "day", "days": "day"}
_HOURS: Final = {"hour": "hour", "hours": "hour"}
_WHOLE: Final = ("TINYINT", "SMALLINT", "INT", "BIGINT")
_TEXT: Final = re.compile(r"STRING|(?:VAR)?CHAR\(\d+\)")
_UNKNOWN_TYPES: Final = re.compile(r"\b(INTERVAL[\w ]*|VARIANT|VOID|TIME|GEOMETRY|GEOGRAPHY)\b(?!\s*:)")
_FIELDS: Final = "write columns, or 'year(at)', 'month(at)', 'day(at)', 'hour(at)', 'truncate(4, zone)'"


def checked_table(table: object, catalog: object, place: str) -> IcebergTable:
    """Return the table of a declaration.

    Raises:
        DefinitionError: no such names. What is given for the catalog may be an address with a secret, and the message does not repeat it.
    """
    if not isinstance(catalog, str) or not _CATALOG.fullmatch(catalog):
        raise DefinitionError(
            "iceberg(catalog=...) is no name of a catalog",
            fix="give the name that PyIceberg's configuration has: catalog='lake', with PYICEBERG_CATALOG__LAKE__URI and so on in the "
            "environment, or in .pyiceberg.yaml",
            place=place,
        )
    parts = table.split(".") if isinstance(table, str) else []
    if len(parts) < 2 or not all(_PART.fullmatch(part) for part in parts):
        raise DefinitionError(
            f"iceberg(table={shortened(repr(table))}) names no table with its namespace",
            fix=f"write 'shop.orders': letters, digits and '_', each part with at most {MAX_NAME} of them",
            place=place,
        )
    return IcebergTable(catalog, ".".join(parts))


def checked_partitions(given: object, schema: Schema | None, place: str) -> tuple[PartitionBy, ...]:
    """Return the fields by which a table is partitioned.

    Raises:
        DefinitionError: one is none of those that are supported, or there are two of one kind for one column.
        ColumnError: the stream lacks its column, or the column's type has no such partitions.
    """
    if not isinstance(given, Sequence) or isinstance(given, str) or not all(isinstance(each, str) for each in given):
        raise DefinitionError(f"iceberg(partition_by={shortened(repr(given))}) is no list of texts", fix=_FIELDS, place=place)
    fields = tuple(_field(each, place) for each in given)
    if len(set(fields)) < len(fields):
        raise DefinitionError(f"iceberg(partition_by={shortened(repr(given))}) has a field twice", fix="leave one out", place=place)
    if schema is None:
        return fields
    for field in fields:
        column = schema.find(field.column)
        if column is None or column.name != field.column:
            names = ", ".join(each.name for each in schema.columns)
            raise ColumnError(f"iceberg(partition_by=...): unknown column {field.column!r}", fix=f"the stream has: {names}", place=place)
        fault = partition_fault(field, column.type)
        if fault is not None:
            raise ColumnError(f"iceberg: {fault[0]}", fix=fault[1], place=place)
    return fields


def _field(text: str, place: str) -> PartitionBy:
    call = _CALL.fullmatch(text)
    if call is None:
        name = text.strip().removeprefix("`").removesuffix("`")
        if not name or any(sign in name for sign in "(),`"):
            raise DefinitionError(f"iceberg: {shortened(repr(text))} is no field of partitions", fix=_FIELDS, place=place)
        return PartitionBy(name)
    transform, width = call["transform"].lower(), call["width"]
    column = call["column"].removeprefix("`").removesuffix("`")
    if width is None and transform in (times := {**_TIMES, **_HOURS}):
        return PartitionBy(column, times[transform])
    if transform == "truncate" and width is not None and int(width) > 0:
        return PartitionBy(column, f"truncate[{int(width)}]")
    what = f"iceberg: {shortened(repr(text))} is no field of partitions that a file's statistics show"
    raise DefinitionError(what, fix=_FIELDS, place=place)


def partition_fault(field: PartitionBy, kind: str | None) -> tuple[str, str] | None:
    """Return why a table cannot be partitioned so, and what to write instead; None if it can, as far as is known.

    Args:
        field: of the partitions.
        kind: the column's type as DDL, None if it is not known.
    """
    if kind is None:
        return None
    transform = field.transform.partition("[")[0]
    text = _TEXT.fullmatch(kind) is not None
    allowed = {
        "identity": text or kind in {*_WHOLE, "BOOLEAN", "DATE"},
        "truncate": text or kind in _WHOLE,
        "hour": kind in {"TIMESTAMP", "TIMESTAMP_NTZ"},
    }
    if allowed.get(transform, kind in {"DATE", "TIMESTAMP", "TIMESTAMP_NTZ"}):
        return None
    fix = f"partition by 'day({field.column})'" if kind.startswith("TIMESTAMP") else "partition by a text, a whole number, a date or a time"
    return f"a table cannot be partitioned by {field.text()}: {field.column!r} is {kind}", fix


def column_fault(name: str, kind: str | None) -> tuple[str, str] | None:
    """Return why a column cannot be written to a table of Iceberg, and what to write instead; None if it can, as far as is known.

    Args:
        name: the column's.
        kind: its type as DDL, None if it is not known.

    >>> column_fault("at", "STRUCT<time: BIGINT>") is None, column_fault("v", "ARRAY<VARIANT>") is None
    (True, False)
    """
    if "." in name or not name.strip():
        return f"the column name {shortened(repr(name))} has a dot, by which Iceberg separates fields", "rename it in a select"
    unknown = _UNKNOWN_TYPES.search(kind) if kind is not None else None
    if unknown is None:
        return None
    shown = name if re.fullmatch(r"\w+", name) else f"`{name}`"
    to = "to_json" if kind is not None and "VARIANT" in kind else "string"
    return f"Iceberg has no type for the values of column {name!r}, {kind}", f".with_columns(**{{{name!r}: '{to}({shown})'}})"

"""Reads Spark DDL (``"zone INT, fares ARRAY<DOUBLE>"``) without a JVM."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Sequence

from tidemark.errors import DefinitionError
from tidemark.graph.model.schema import Schema, SchemaColumn
from tidemark.names import is_blank

_TYPES = [
    "TINYINT",
    "SMALLINT",
    "INT",
    "INTEGER",
    "BIGINT",
    "LONG",
    "SHORT",
    "BYTE",
    "FLOAT",
    "DOUBLE",
    "DECIMAL",
    "STRING",
    "BINARY",
    "BOOLEAN",
    "DATE",
    "TIMESTAMP",
    "TIMESTAMP_NTZ",
    "ARRAY",
    "MAP",
    "STRUCT",
    "VARIANT",
    "INTERVAL",
]
_FIX = "write Spark DDL, such as 'zone INT, pickup_at TIMESTAMP, fares ARRAY<DOUBLE>'"


def parse_schema(ddl: str, *, place: str | None = None, what: str = "schema") -> Schema:
    """Return the columns of a DDL text; types are Spark's, in one spelling (``LONG`` and ``BIGINT`` are both ``BIGINT``).

    Args:
        ddl: names and types; ``NOT NULL`` and ``COMMENT`` are ignored.
        place: file and line of the definition, for the error.
        what: name of the argument, for the error.

    Raises:
        DefinitionError: unreadable, an unknown type, no column, or two columns of one name.

    >>> parse_schema("zone long, tags array<string> comment 'x'").columns[1].type
    'ARRAY<STRING>'
    """
    if is_blank(ddl):
        raise DefinitionError(f"{what} {ddl!r} names no column", fix=_FIX, place=place)
    columns: list[SchemaColumn] = []
    for part in _split(ddl, what, place):
        column = _column(part)
        if column is None:
            raise DefinitionError(f"{what} {ddl!r} cannot be read at {part.strip()!r}{_unknown_type(part)}", fix=_FIX, place=place)
        if any(other.name.lower() == column.name.lower() for other in columns):
            raise DefinitionError(f"{what} has column {column.name!r} twice", fix="give each column another name", place=place)
        columns.append(column)
    return Schema(tuple(columns))


def _split(ddl: str, what: str, place: str | None) -> Iterator[str]:
    from sqlglot import TokenError, TokenType, tokenize

    try:
        tokens = tokenize(ddl, read="spark")
    except TokenError as error:
        raise DefinitionError(f"{what} {ddl!r} cannot be read: {error}", fix=_FIX, place=place) from error
    depth, start = 0, 0
    for token in tokens:
        if token.text in {"<", "("}:
            depth += 1
        elif token.text in {">", ")"}:
            depth -= 1
        elif token.token_type == TokenType.COMMA and depth == 0:
            yield ddl[start : token.start]
            start = token.end + 1
    yield ddl[start:]


def _column(part: str) -> SchemaColumn | None:
    from sqlglot import tokenize

    tokens = tokenize(part, read="spark")
    if len(tokens) < 2:
        return None
    name = tokens[0]
    rest = tokens[2:] if tokens[1].text == ":" else tokens[1:]
    # Within a struct both are parts of the type, or a field's name.
    texts = [token.text for token in rest]
    ends = (index for index, text in enumerate(texts) if text.upper() in {"NOT", "COMMENT"} and not _within(texts[:index]))
    end = next(ends, len(rest))
    if not end:
        return None
    kind = parse_type(part[rest[0].start : rest[end - 1].end + 1])
    return SchemaColumn(name.text, kind) if kind else None


def _unknown_type(part: str) -> str:
    """Return which word of a column is no type, and which one may have been meant, if that is clear."""
    words = re.findall(r"\w+", part)
    if len(words) != 2 or words[1].upper() in _TYPES:
        return ""
    near = difflib.get_close_matches(words[1].upper(), _TYPES, n=1)
    return f": there is no type {words[1]!r}" + (f", did you mean {near[0]}?" if near else "")


def _within(texts: Sequence[str]) -> bool:
    """Return whether a type is not closed yet."""
    return texts.count("<") > texts.count(">")


def parse_type(text: str) -> str | None:
    """Return a type in Spark's own spelling, or None if there is no such type.

    >>> parse_type("decimal(10,2)")
    'DECIMAL(10, 2)'
    """
    from sqlglot import ParseError, exp

    try:
        return exp.DataType.build(text, dialect="spark").sql(dialect="spark")
    except (ParseError, ValueError):
        return None

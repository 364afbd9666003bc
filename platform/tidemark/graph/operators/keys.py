"""Keys of operators: checked, typed, and as they stand in definitions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

from tidemark.graph.expressions.expression_types import expression_type
from tidemark.graph.expressions.expressions import Site, check_columns, parse_row_expression
from tidemark.graph.expressions.function_text import function_text, text_hash
from tidemark.graph.model.nodes import Expression
from tidemark.graph.model.schema import Schema, SchemaColumn

Keys = Sequence[tuple[str, Expression]]


def check_keys(keys: Keys, schema: Schema | None, place: str, *, uid: str | None = None) -> None:
    """Check the expressions of keys against a stream's columns.

    Raises:
        ColumnError: or ``ExpressionError``.
    """
    for name, expression in keys:
        site = Site(f"key {name!r}", place, uid)
        check_columns(parse_row_expression(expression, site), expression, schema, site)


def typed(columns: Keys, given: Schema | None) -> list[SchemaColumn]:
    """Return the columns that expressions make, with their types as far as these are certain."""
    return [SchemaColumn(name, expression_type(expression, given)) for name, expression in columns]


def encode_keys(keys: Keys) -> list[dict[str, str]]:
    """Return keys as plain JSON: the name, and the expression or a hash of the function's text."""
    return [{"name": name, "expression": _encoded(expression)} for name, expression in keys]


def decode_keys(definition: Mapping[str, object]) -> tuple[tuple[str, Expression], ...]:
    """Return the keys of a definition."""
    stored = cast("list[Mapping[str, object]]", definition.get("keys", []))
    return tuple((str(entry["name"]), str(entry["expression"])) for entry in stored)


def _encoded(expression: Expression) -> str:
    return expression if isinstance(expression, str) else f"function {text_hash(function_text(expression))}"

"""Keys of operators: checks, types, and their form in definitions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from tidemark.errors import ColumnError, ExpressionError
from tidemark.graph.expressions.expression_types import expression_type, type_of
from tidemark.graph.expressions.expressions import Site, check_columns, parse_row_expression
from tidemark.graph.expressions.function_fingerprint import function_text, text_hash
from tidemark.graph.model.nodes import Expression, Node
from tidemark.graph.model.schema import Schema, SchemaColumn
from tidemark.graph.operators.changes import Definition, entries

Keys = Sequence[tuple[str, Expression]]

NO_MAP_KEYS: Final = "key by an entry of it, .key_by(zone=\"tags['zone']\"), or by its text, .key_by(tags='to_json(tags)')"
"""What to write instead of a MAP as a key, whose entries have no order by which Spark could compare them."""


def check_keys(keys: Keys, schema: Schema | None, place: str, *, uid: str | None = None) -> None:
    """Check the expressions of keys against a stream's columns.

    Raises:
        ColumnError: or ``ExpressionError``.
    """
    for name, expression in keys:
        site = Site(f"key {name!r}", place, uid)
        parsed = parse_row_expression(expression, site)
        check_columns(parsed, expression, schema, site)
        kind = type_of(parsed, schema)
        if kind is not None and "MAP<" in kind:
            raise ExpressionError(f"{site.of(expression)} is of type {kind}, and maps are no keys", fix=NO_MAP_KEYS, uid=uid, place=place)


def named_as_key(names: Iterable[str], keys: Keys) -> str | None:
    """Return the first of some names that a key has, too, in any case of its letters; None where none has."""
    taken = {name.lower() for name, _ in keys}
    return next((name for name in names if name.lower() in taken), None)


def typed(columns: Keys, given: Schema | None) -> list[SchemaColumn]:
    """Return the columns of named expressions, with their types if these are certain."""
    return [SchemaColumn(name, expression_type(expression, given)) for name, expression in columns]


def encode_keys(keys: Keys) -> list[dict[str, str]]:
    """Return keys as plain JSON: the name, and the expression or a hash of the function's text."""
    return [{"name": name, "expression": _encoded(expression)} for name, expression in keys]


def decode_keys(definition: Definition) -> tuple[tuple[str, Expression], ...]:
    """Return the keys of a definition."""
    return tuple((name, str(entry["expression"])) for name, entry in entries(definition, "keys").items())


def _encoded(expression: Expression) -> str:
    return expression if isinstance(expression, str) else f"function {text_hash(function_text(expression))}"


def check_key_column(key: str, what: str, schema: Schema | None, node: Node, *, side: str = "") -> None:
    """Check that a stream has a column that can be part of a key by which rows are found again.

    Args:
        key: the column's name.
        what: that names it, for errors.
        schema: of the stream, None where it is not known.
        node: that has the key.
        side: of the node's inputs, for errors: ``"left "``; nothing where there is one.

    Raises:
        ColumnError: it has none, or one whose values cannot be compared.
    """
    column = None if schema is None else schema.find(key)
    if schema is not None and column is None:
        near = schema.nearest(key)
        raise ColumnError(
            f"{what} names unknown column {key!r}{f'; did you mean {near!r}?' if near else '.'} "
            f"The {side}columns are: {', '.join(schema.names)}",
            fix=f"write {near!r}" if near else f"name columns of the {side}stream",
            uid=node.uid,
            place=node.place,
        )
    if column is not None and column.type is not None and "MAP<" in column.type:
        raise ColumnError(
            f"{what} names {key!r} of type {column.type}, and maps cannot be compared",
            fix="name other columns",
            uid=node.uid,
            place=node.place,
        )

"""What two streams are joined on, and the columns of the results."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from tidemark.errors import ColumnError, DefinitionError
from tidemark.graph.expressions.expression_text import describe_expression
from tidemark.graph.expressions.name_checks import column_names
from tidemark.graph.model.nodes import Expression, Node
from tidemark.graph.model.schema import Schema, SchemaColumn
from tidemark.graph.operators.keys import check_keys, encode_keys, typed

_AND: Final = re.compile(r"\s+and\s+", re.IGNORECASE)
_EQUAL: Final = re.compile(r"\s*(?:\w+\.)?(?P<left>\w+)\s*==?\s*(?:\w+\.)?(?P<right>\w+)\s*")
_NAME: Final = re.compile(r"[^\W\d]\w*|`[^`]+`")


@dataclass(frozen=True)
class JoinKey:
    """One part of a join's key: its name, and the expressions over either side that have to be equal."""

    name: str
    left: Expression
    right: Expression

    @property
    def column(self) -> str | None:
        """The column that both sides have under one name, and results have once; None where the sides differ."""
        left, right = (plain_name(each) for each in (self.left, self.right))
        return left if left is not None and right is not None and left.lower() == right.lower() else None


@dataclass(frozen=True)
class ResultColumn:
    """A column of results: its name, and the columns of the left and right side that it comes from."""

    name: str
    left: str | None = None
    right: str | None = None


def plain_name(expression: Expression) -> str | None:
    """Return the column that an expression is the name of, None for other expressions."""
    text = expression.strip() if isinstance(expression, str) else ""
    return text.strip("`") if _NAME.fullmatch(text) else None


def join_keys(on: object, what: str, place: str) -> tuple[JoinKey, ...]:
    """Return the key of a join: of the name of a column, a list of names, or a mapping of left expressions to right ones.

    Args:
        on: as the user gives it.
        what: the argument, for errors.
        place: the user's file and line.

    Raises:
        DefinitionError: none of these, or nothing.
    """
    if not isinstance(on, Mapping):
        _refuse_conditions(on, what, place)
        on = {name: name for name in column_names(on, what, place)}
    if not on:
        raise DefinitionError(f"{what} is an empty mapping", fix="write on={'ride_id': 'fare_ride_id'}", place=place)
    found: list[JoinKey] = []
    for number, (left, right) in enumerate(on.items()):
        name = plain_name(left) or plain_name(right) or f"on_{number}"
        taken = {key.name.lower() for key in found}
        found.append(JoinKey(name if name.lower() not in taken else f"{name}_{number}", left, right))
    return tuple(found)


def _refuse_conditions(on: object, what: str, place: str) -> None:
    """Refuse conditions, as joins in SQL have, for the columns that they compare."""
    texts = [on] if isinstance(on, str) else on if isinstance(on, Sequence) else []
    parts = [part for text in texts if isinstance(text, str) for part in _AND.split(text)]
    compared = [_EQUAL.fullmatch(part) for part in parts]
    if parts and all(compared):
        names = ", ".join(f'"{found["left"]}": "{found["right"]}"' for found in compared if found)
        raise DefinitionError(
            f"{what} is given a condition, {' AND '.join(part.strip() for part in parts)!r}, not columns",
            fix=f"write on={{{names}}}: the left stream's column, then the right one's",
            place=place,
        )


def left_keys(on: Sequence[JoinKey]) -> tuple[tuple[str, Expression], ...]:
    """Return the expressions of the left side, each with its key's name."""
    return tuple((key.name, key.left) for key in on)


def right_keys(on: Sequence[JoinKey]) -> tuple[tuple[str, Expression], ...]:
    """Return the expressions of the right side, each with its key's name."""
    return tuple((key.name, key.right) for key in on)


def paired_keys(left: Sequence[tuple[str, Expression]], right: Sequence[tuple[str, Expression]]) -> tuple[JoinKey, ...]:
    """Return a key by the expressions of both sides, which have the same names."""
    return tuple(JoinKey(name, one, other) for (name, one), (_, other) in zip(left, right, strict=True))


def shared_names(on: Sequence[JoinKey]) -> frozenset[str]:
    """Return the key columns, in small letters, that both sides have under one name: results have them once."""
    return frozenset(key.column.lower() for key in on if key.column is not None)


def added_names(on: Sequence[JoinKey], right: Sequence[str]) -> list[str]:
    """Return the columns that results have from the right side, of all its columns."""
    return [name for name in right if name.lower() not in shared_names(on)]


def check_join_keys(on: Sequence[JoinKey], schemas: Sequence[Schema | None], node: Node, called: str) -> None:
    """Check the expressions of both sides, which have to be of the same types.

    Args:
        on: the key.
        schemas: the columns of the left and of the right side, None where they are not known.
        node: the operator.
        called: the method, for errors.

    Raises:
        ColumnError: or ``ExpressionError``, or ``DefinitionError`` for types that differ.
    """
    sides = (left_keys(on), right_keys(on))
    for keys, schema in zip(sides, schemas, strict=True):
        check_keys(keys, schema, node.place, uid=node.uid)
    for key, left, right in zip(on, *(typed(keys, schema) for keys, schema in zip(sides, schemas, strict=True)), strict=True):
        if left.type is not None and right.type is not None and left.type != right.type:
            raise types_differ(key, (left.type, right.type), node, called)


def types_differ(key: JoinKey, types: tuple[str, str], node: Node, called: str) -> DefinitionError:
    """Return the error for a key whose sides are of different types."""
    one, other = describe_expression(key.left), describe_expression(key.right)
    return DefinitionError(
        f"{called} compares {one!r} of type {types[0]} with {other!r} of type {types[1]}",
        fix=f"cast one: on={{{one!r}: 'CAST({other} AS {types[0]})'}}",
        uid=node.uid,
        place=node.place,
    )


def result_columns(on: Sequence[JoinKey], left: Sequence[str], right: Sequence[str], *, one_sided: bool) -> list[ResultColumn]:
    """Return the columns of results: those of the left side, then those of the right; key columns of one name once.

    Args:
        on: the key.
        left: the columns of the left side.
        right: the columns of the right side.
        one_sided: whether results have the left columns only.
    """
    if one_sided:
        return [ResultColumn(name, name) for name in left]
    shared = shared_names(on)
    by_name = {name.lower(): name for name in right}
    found = [ResultColumn(name, name, by_name.get(name.lower()) if name.lower() in shared else None) for name in left]
    return found + [ResultColumn(name, None, name) for name in right if name.lower() not in shared]


def check_names(left: Sequence[str], added: Sequence[str], node: Node, called: str) -> None:
    """Check that no column that results have from the right side has the name of one of the left.

    Raises:
        ColumnError: one has.
    """
    taken = {name.lower() for name in left}
    clashing = sorted({name for name in added if name.lower() in taken})
    if clashing:
        first = clashing[0]
        raise ColumnError(
            f"{called}: both sides have {'columns' if len(clashing) > 1 else 'a column'} {', '.join(map(repr, clashing))}, "
            "and a result row has a name once",
            fix=f"rename on one side before: .select(..., right_{first}='{first}'); or leave it out",
            uid=node.uid,
            place=node.place,
        )


def joined_schema(columns: Sequence[ResultColumn], left: Schema, right: Schema) -> Schema:
    """Return the columns of results with their types."""

    def kind(column: ResultColumn) -> str | None:
        schema, name = (left, column.left) if column.left is not None else (right, column.right)
        found = schema.find(name or "")
        return None if found is None else found.type

    return Schema(tuple(SchemaColumn(column.name, kind(column)) for column in columns))


def encode_join_keys(on: Sequence[JoinKey]) -> list[dict[str, str]]:
    """Return a key as plain JSON: the name, and the expressions of the left and the right side."""
    sides = encode_keys(left_keys(on)), encode_keys(right_keys(on))
    return [{**left, "right": right["expression"]} for left, right in zip(*sides, strict=True)]


def decode_join_keys(keys: Mapping[str, Mapping[str, object]]) -> tuple[JoinKey, ...]:
    """Return a key by the entries of a definition."""
    return tuple(JoinKey(name, str(entry["expression"]), str(entry["right"])) for name, entry in keys.items())

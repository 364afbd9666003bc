"""Checks of the newest row of each key against its input."""

from __future__ import annotations

from tidemark.errors import ColumnError, DefinitionError, ExpressionError
from tidemark.graph.expressions.expression_types import type_of
from tidemark.graph.expressions.expressions import Site, check_columns, parse_row_expression
from tidemark.graph.model.nodes import Expression
from tidemark.graph.model.schema import Schema
from tidemark.graph.operators.latest.node import LatestNode


def check_latest(node: LatestNode, given: Schema | None) -> None:
    """Check the key, ``sequence``, ``deleted``, ``unchanged`` and where outdated and incomplete rows go.

    Raises:
        DefinitionError: or one of its kinds; it names the user's line.
    """
    for key in node.by:
        check_key(key, f"{node.method}(by=...)", given, node.place, node.uid)
    if node.sequence is not None:
        check_ordered(node.sequence, f"{node.method} sequence", given, node.place, node.uid)
    if node.deleted is not None:
        check_condition(node.deleted, Site(f"{node.method} deleted", node.place, node.uid), "op = 'd'", given)
    for name, condition in node.unchanged:
        check_column(name, f"{node.method}(unchanged=...)", given, node.place, node.uid)
        if name.lower() in {key.lower() for key in node.by}:
            raise ColumnError(
                f"{node.method}(unchanged=...) names {name!r}, which is a column of the key",
                fix="name columns that the key's rows differ in",
                uid=node.uid,
                place=node.place,
            )
        check_condition(condition, Site(f"{node.method} unchanged {name!r}", node.place, node.uid), f"{name} IS NULL", given)
    if node.incomplete_to is not None and not node.unchanged:
        raise DefinitionError(
            f"{node.method}(incomplete_to=...) takes rows that lack an unchanged column, and no column is named",
            fix="name one, unchanged={'note': 'note IS NULL'}, or leave incomplete_to out",
            uid=node.uid,
            place=node.place,
        )
    if node.outdated_to is not None and node.sequence is None:
        raise DefinitionError(
            f"{node.method}(outdated_to=...) needs a sequence: without one each row is newer than those before it",
            fix="name the column that orders the rows of a key, sequence='version', or leave outdated_to out",
            uid=node.uid,
            place=node.place,
        )


def check_condition(condition: Expression, site: Site, example: str, given: Schema | None) -> None:
    """Check a condition over one row.

    Raises:
        ColumnError: unknown columns.
        ExpressionError: no expression over a row, or not of type BOOLEAN.
    """
    kind = _type(condition, site, given)
    if kind not in {None, "BOOLEAN"}:
        raise ExpressionError(
            f"{site.of(condition)} is of type {kind}, not BOOLEAN",
            fix=f'write a condition, such as "{example}"',
            uid=site.uid,
            place=site.place,
        )


def check_key(key: str, what: str, given: Schema | None, place: str, uid: str | None) -> None:
    """Check that a stream has a column that can be part of a key.

    Raises:
        ColumnError: it has none, or one whose values cannot be compared.
    """
    check_column(key, what, given, place, uid)
    column = None if given is None else given.find(key)
    if column is not None and column.type is not None and "MAP<" in column.type:
        raise ColumnError(
            f"{what} names {key!r} of type {column.type}, and maps cannot be compared", fix="name other columns", uid=uid, place=place
        )


def check_column(name: str, what: str, given: Schema | None, place: str, uid: str | None) -> None:
    """Check that a stream has a column.

    Raises:
        ColumnError: it has none.
    """
    if given is not None and given.find(name) is None:
        near = given.nearest(name)
        raise ColumnError(
            f"{what} names unknown column {name!r}{f'; did you mean {near!r}?' if near else '.'} The columns are: {', '.join(given.names)}",
            fix=f"write {near!r}" if near else "name columns of the stream; an expression becomes one by .with_columns(...)",
            uid=uid,
            place=place,
        )


def check_ordered(expression: Expression, what: str, given: Schema | None, place: str, uid: str | None) -> None:
    """Check an expression over one row whose values have an order.

    Raises:
        ColumnError: unknown columns.
        ExpressionError: no expression over a row, or values without an order.
    """
    site = Site(what, place, uid)
    kind = _type(expression, site, given)
    if kind is not None and ("MAP<" in kind or "VARIANT" in kind):
        raise ExpressionError(
            f"{site.of(expression)} is of type {kind}, and such values have no order",
            fix="take a part of it that can be compared, such as a number or an instant",
            uid=uid,
            place=place,
        )


def _type(expression: Expression, site: Site, given: Schema | None) -> str | None:
    parsed = parse_row_expression(expression, site)
    check_columns(parsed, expression, given, site)
    return type_of(parsed, given)

"""Checks of a state machine in SQL against its input."""

from __future__ import annotations

from collections.abc import Mapping

from tidemark.errors import ColumnError, DefinitionError, ExpressionError, InvalidNameError
from tidemark.graph.expressions.expression_types import keeps_type, type_of
from tidemark.graph.expressions.expressions import Site, check_columns, column_names, parse_row_expression
from tidemark.graph.model.schema import Schema
from tidemark.graph.operators.keys import check_keys, named_as_key
from tidemark.graph.operators.sql_state.expressions import NEW, names_read, seen_by_results, seen_by_updates
from tidemark.graph.operators.sql_state.node import SqlStateNode, StateField


def check_sql_state(node: SqlStateNode, given: Schema | None) -> None:
    """Check the expressions of a state machine, and that fields and columns are distinct.

    Raises:
        DefinitionError: or one of its kinds; it names the user's line.
    """
    check_keys(node.keys, given, node.place, uid=node.uid)
    if node.reduced:
        _check_reduced(node)
        return
    _check_names(node, given)
    seen = seen_by_updates(node, given)
    for field in node.fields:
        _check_update(node, field, seen)
        _check_initial(node, field)
    seen = seen_by_results(node, given)
    if node.emit_when is not None:
        kind = _check_result(node, node.emit_when, "sql_state emit_when", seen)
        if kind not in {None, "BOOLEAN"}:
            raise ExpressionError(
                f"sql_state emit_when {node.emit_when!r} is of type {kind}, not BOOLEAN",
                fix="write a condition, such as emit_when='fare > 2 * last'",
                uid=node.uid,
                place=node.place,
            )
    for name, text in node.returns:
        _check_result(node, text, f"sql_state column {name!r}", seen)


def _check_reduced(node: SqlStateNode) -> None:
    twice = named_as_key((field.name for field in node.fields), node.keys)
    if twice is not None:
        raise InvalidNameError(
            f"reduce makes a column {twice!r}, but the result has the key of that name already",
            fix=f"leave {twice!r} out of reduce(...); elements of a key have the same one",
            uid=node.uid,
            place=node.place,
        )


def _check_names(node: SqlStateNode, given: Schema | None) -> None:
    for field in node.fields:
        if field.name.lower() == NEW:
            raise InvalidNameError(
                f"a field may not be called {field.name!r}: {NEW}.name is the value of a field after the element",
                fix="give the field another name",
                uid=node.uid,
                place=node.place,
            )
        if given is not None and given.find(field.name) is not None:
            raise InvalidNameError(
                f"the field {field.name!r} has the name of a column of the stream, so expressions could not tell them apart",
                fix=f"give the field another name, such as 'last_{field.name}', and read that in the expressions",
                uid=node.uid,
                place=node.place,
            )
    texts = [text for _, text in node.returns] + ([] if node.emit_when is None else [node.emit_when])
    sites = [Site("sql_state", node.place, node.uid)] * len(texts)
    read = any(NEW in _names_in(text, site) for text, site in zip(texts, sites, strict=True))
    if read and given is not None and given.find(NEW) is not None:
        raise ColumnError(
            f"sql_state reads {NEW!r}, which is a column of the stream and the fields' values after the element",
            fix=f"rename the column before: .select('{NEW} AS newest', ...) with every column that is to stay",
            uid=node.uid,
            place=node.place,
        )


def _names_in(text: str, site: Site) -> frozenset[str]:
    parse_row_expression(text, site)
    return names_read(text)


def _check(node: SqlStateNode, text: str, what: str, seen: Schema | None) -> str | None:
    """Check an expression; return its type, None where that is not certain."""
    site = Site(what, node.place, node.uid)
    parsed = parse_row_expression(text, site)
    check_columns(parsed, text, seen, site)
    return type_of(parsed, seen)


def _check_result(node: SqlStateNode, text: str, what: str, seen: Schema | None) -> str | None:
    """Check an expression that sees the fields after the element, too, each by its name; return its type."""
    from sqlglot import exp

    kind, site = _check(node, text, what, seen), Site(what, node.place, node.uid)
    parsed = parse_row_expression(text, site)
    for column in parsed.find_all(exp.Column) if parsed is not None and seen is not None else ():
        name, *fields = (part.name.lower() for part in column.parts)
        if name == NEW and (not fields or fields[0] not in node.field_names):
            raise ColumnError(
                f"{site.of(text)} reads {column.sql(dialect='spark')}, but the fields are: {', '.join(each.name for each in node.fields)}",
                fix=f"write such as {NEW}.{node.fields[0].name}",
                uid=node.uid,
                place=node.place,
            )
    return kind


def _check_update(node: SqlStateNode, field: StateField, seen: Schema | None) -> None:
    site = Site(f"the update of field {field.name!r}", node.place, node.uid)
    parsed = parse_row_expression(field.update, site)
    if parsed is not None and NEW in {name.lower() for name in column_names(parsed)} and (seen is None or seen.find(NEW) is None):
        raise ColumnError(
            f"{site.of(field.update)} reads {NEW!r}, which is not known before all fields are updated",
            fix=f"read the fields as they were before the element: {field.name}",
            uid=node.uid,
            place=node.place,
        )
    kind = _check(node, field.update, site.what, seen)
    _require(node, field, field.update, site, kind)


def _check_initial(node: SqlStateNode, field: StateField) -> None:
    if field.initial is None:
        return
    site = Site(f"the initial value of field {field.name!r}", node.place, node.uid)
    parsed = parse_row_expression(field.initial, site)
    if parsed is not None and column_names(parsed):
        raise ExpressionError(
            f"{site.of(field.initial)} reads the column {column_names(parsed)[0]!r}, and there is no element before the first",
            fix="write a constant, such as '0'; a text is quoted: \"'none'\"",
            uid=node.uid,
            place=node.place,
        )
    _require(node, field, field.initial, site, type_of(parsed, None))


def _require(node: SqlStateNode, field: StateField, text: str, site: Site, kind: str | None) -> None:
    if kind is None or field.type is None or keeps_type(kind, field.type):
        return
    raise ExpressionError(
        f"{site.of(text)} is of type {kind}, but the field is {field.type}",
        fix=f"cast it: CAST({text} AS {field.type}); or declare the field as {kind}",
        uid=node.uid,
        place=node.place,
    )


def require_alone(others: Mapping[str, object], place: str) -> None:
    """Refuse the arguments of process functions beside a state machine, those of ``others`` that are not None.

    Raises:
        DefinitionError: one is given.
    """
    names = [name for name, given in others.items() if given is not None]
    if names:
        raise DefinitionError(
            f"process is given sql_state(...), and {', '.join(names)} beside it, which only functions take",
            fix="leave them out: tm.sql_state(fields=..., returns=..., ttl=...) has all that it needs",
            place=place,
        )

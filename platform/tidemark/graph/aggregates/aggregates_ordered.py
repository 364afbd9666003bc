"""Aggregates that pick or list elements by an order: their own (event time, source position), or that of a value.

Ties never depend on how the input was split or read: they are broken by (event time, source position). Spark sorts the rows of an
epoch by key for these, or keeps one object per key: they cost several times what a sum does.
"""

from __future__ import annotations

from typing import Literal

from tidemark.graph.aggregates.aggregate_arguments import in_template, sql_argument, whole_number
from tidemark.graph.model.aggregates import Aggregate, Partial

MAX_TOP_K = 100_000
"""The greatest ``k`` of ``top_k``; Spark's own limit."""


def first(expression: str, *, ignore_nulls: bool = False) -> Aggregate:
    """Return the value of the earliest element, by (event time, source position).

    A null counts as a value unless ``ignore_nulls``. Result: the expression's type, exact; null where there is no value.
    """
    return _end("first", "min_by", expression, ignore_nulls=ignore_nulls)


def last(expression: str, *, ignore_nulls: bool = False) -> Aggregate:
    """Return the value of the latest element, by (event time, source position).

    A null counts as a value unless ``ignore_nulls``. Result: the expression's type, exact; null where there is no value.
    """
    return _end("last", "max_by", expression, ignore_nulls=ignore_nulls)


def min_by(expression: str, by: str) -> Aggregate:
    """Return the expression's value in the element with the least ``by``, of equal ones in the earliest.

    Elements whose ``by`` is null do not take part; a null value of the expression does. NaN is greater than any number.
    Result: the expression's type, exact; null where no ``by`` has a value.
    """
    return _extreme("min_by", expression, by)


def max_by(expression: str, by: str) -> Aggregate:
    """Return the expression's value in the element with the greatest ``by``, of equal ones in the latest.

    Elements whose ``by`` is null do not take part; a null value of the expression does. NaN is greater than any number.
    Result: the expression's type, exact; null where no ``by`` has a value.
    """
    return _extreme("max_by", expression, by)


def collect_list(expression: str) -> Aggregate:
    """List the values that are not null, in order of (event time, source position).

    Result: ARRAY of the expression's type (which must be orderable: no MAP, no VARIANT), exact, empty where there is no value.
    State holds every value with its position.
    """
    argument = sql_argument("collect_list", expression)
    value = in_template(argument)
    item = f"CASE WHEN {value} IS NOT NULL THEN named_struct('order', {{order}}, 'value', {value}) END"
    partial = Partial("items", f"collect_list({item})", "flatten(collect_list({items}))")
    return Aggregate("collect_list", (argument,), (partial,), "transform(array_sort({items}), item -> item.value)")


def top_k(expression: str, k: int, by: str | None = None) -> Aggregate:
    """List the ``k`` greatest values that are not null, greatest first; or the values in the elements with the ``k`` greatest ``by``.

    With ``by``, elements whose ``by`` is null do not take part, a null value does, and of equal ``by`` the latest elements come first.
    NaN is greater than any number. Result: ARRAY of the expression's type (orderable), at most ``k`` long, exact, empty where there is
    no value. State holds at most ``k`` values.

    Raises:
        DefinitionError: k is not a whole number from 1 to 100,000.
    """
    argument = sql_argument("top_k", expression)
    most = whole_number("top_k", "k", k, minimum=1, maximum=MAX_TOP_K)
    merge = f"slice(sort_array(flatten(collect_list({{top}})), false), 1, {most})"
    value = in_template(argument)
    if by is None:
        partial = Partial("top", f"max_by({value}, {value}, {most})", merge)
        return Aggregate("top_k", (argument,), (partial,), "coalesce({top}, array())")
    order = sql_argument("top_k", by)
    key = _key(order)
    item = f"named_struct('by', {in_template(order)}, 'order', {{order}}, 'value', {value})"
    partial = Partial("top", f"max_by({item}, {key}, {most})", merge)
    return Aggregate("top_k", (argument, order), (partial,), "transform(coalesce({top}, array()), item -> item.value)")


def _end(kind: str, function: Literal["min_by", "max_by"], expression: str, *, ignore_nulls: bool) -> Aggregate:
    argument = sql_argument(kind, expression)
    value = in_template(argument)
    order = f"CASE WHEN {value} IS NOT NULL THEN {{order}} END" if ignore_nulls else "{order}"
    create = f"{function}(named_struct('order', {{order}}, 'value', {value}), {order})"
    partial = _picked("end", create, function, "order")
    return Aggregate(kind, (argument,), (partial,), "{end}.value")


def _extreme(kind: Literal["min_by", "max_by"], expression: str, by: str) -> Aggregate:
    argument, order = sql_argument(kind, expression), sql_argument(kind, by)
    key = _key(order)
    create = f"{kind}(named_struct('key', {key}, 'value', {in_template(argument)}), {key})"
    partial = _picked("best", create, kind, "key")
    return Aggregate(kind, (argument, order), (partial,), "{best}.value")


def _picked(name: str, create: str, function: Literal["min_by", "max_by"], by: str) -> Partial:
    """Return a partial that is merged by taking the one with the least or greatest ``by``."""
    merge = f"{function}({{{name}}}, {{{name}}}.{by})"
    left, right, before = f"{{left_{name}}}", f"{{right_{name}}}", "<=" if function == "min_by" else ">="
    combine = f"CASE WHEN {right} IS NULL OR {left}.{by} {before} {right}.{by} THEN {left} ELSE {right} END"
    return Partial(name, create, merge, f"{merge}{{over}}", combine)


def _key(by: str) -> str:
    """Return the sort key: the value, then the element's order; null if the value is null, so that Spark ignores it."""
    value = in_template(by)
    return f"CASE WHEN {value} IS NOT NULL THEN named_struct('by', {value}, 'order', {{order}}) END"

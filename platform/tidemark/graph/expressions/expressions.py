"""SQL expressions in definitions: parsed and checked without a JVM, by sqlglot's Spark dialect."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from tidemark.errors import ColumnError, ExpressionError
from tidemark.graph.expressions.sql_functions import forbidden_function
from tidemark.graph.model.nodes import Expression
from tidemark.graph.model.schema import Schema

if TYPE_CHECKING:
    from sqlglot import exp

_DEFERRED = "lambda: F.col('fare') + 1"


@dataclass(frozen=True)
class Site:
    """The site of an expression, for errors: what it is (``"filter condition"``), the operator's name if any, file and line."""

    what: str
    place: str
    uid: str | None = None

    def of(self, text: object) -> str:
        """Return what it is together with its text: ``filter condition 'a > 1'``, ``key 'zone' = 'pickup_zone'``, ``key 'zone'``."""
        if self.what.endswith(f" {text!r}"):
            return self.what
        return f"{self.what} = {text!r}" if self.what.endswith("'") else f"{self.what} {text!r}"


def parse_row_expression(expression: Expression, site: Site) -> exp.Expr | None:
    """Return the parsed form of an expression over one row, None for a deferred function.

    Raises:
        ExpressionError: not SQL, or of a kind that is not a value of one row: a statement, a subquery, a star,
            an aggregate, a window function, a generator such as ``explode``.
    """
    if not isinstance(expression, str):
        _check_deferred(expression, site)
        return None
    parsed = parse_sql(expression, site)
    _check_is_expression(parsed, expression, site)
    found = forbidden_function(parsed)
    if found is not None:
        raise ExpressionError(f"{site.of(expression)} uses {found.what}", fix=found.fix, uid=site.uid, place=site.place)
    return parsed


def parse_sql(text: str, site: Site) -> exp.Expr:
    """Return the parsed form of SQL text; it is cached and shared, so do not change it.

    Raises:
        ExpressionError: not SQL; the message has the position and what is wrong there.
    """
    from sqlglot.errors import SqlglotError

    try:
        return _parse(text)
    except (SqlglotError, LookupError, ValueError, TypeError, AttributeError, RecursionError) as error:
        # The latter are sqlglot's own on calls with arguments that it does not expect.
        raise ExpressionError(
            f"{site.of(text)} cannot be parsed{_position(error)}",
            fix="correct the SQL, or pass a function without arguments that returns a Column",
            uid=site.uid,
            place=site.place,
        ) from error


@lru_cache(maxsize=4096)
def _parse(text: str) -> exp.Expr:
    from tidemark.graph.expressions.placed_parser import parse

    return parse(text)


def _position(error: Exception) -> str:
    details = getattr(error, "errors", None)
    if not details:
        return ": there is nothing in it" if "No expression" in str(error) else f": {error}"
    first = details[0]
    near = first.get("highlight") or ""
    # sqlglot counts to the end of what it stumbled over, and names its own classes where an operand is missing.
    column = first.get("col", 0) - max(len(near) - 1, 0)
    description = first.get("description", "")
    reason = "an operand is missing" if description.startswith("Required keyword") else description[:1].lower() + description[1:]
    return f" at line {first.get('line')}, column {column}{f', near {near!r}' if near else ''}: {reason}"


def _check_deferred(expression: object, site: Site) -> None:
    if not callable(expression):
        raise ExpressionError(
            f"{site.what} is {expression!r}, neither SQL text nor a function",
            fix=f"write SQL as text, or defer a Column with a function without arguments: {_DEFERRED}",
            uid=site.uid,
            place=site.place,
        )
    try:
        parameters = inspect.signature(expression).parameters.values()
    except (TypeError, ValueError):
        return
    if any(p.default is p.empty and p.kind in {p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY} for p in parameters):
        raise ExpressionError(
            f"{site.what} is a function that takes arguments",
            fix=f"a deferred expression takes none: {_DEFERRED}; a function of the DataFrame belongs in .transform(...)",
            uid=site.uid,
            place=site.place,
        )


def _check_is_expression(parsed: exp.Expr, text: str, site: Site) -> None:
    from sqlglot import exp

    if isinstance(parsed, exp.Alias):
        wrong = "is followed by a name (alias) or by something that is not an operator"
    elif parsed.find(exp.Query, exp.Subquery):
        wrong = "contains a subquery"
    elif parsed.find(exp.Star):
        wrong = "contains a star, which would take the engine's own columns along"
    elif parsed.find(exp.Placeholder, exp.Parameter):
        wrong = "contains a parameter that nothing fills"
    elif not isinstance(parsed, exp.Condition | exp.Interval | exp.Tuple):
        wrong = "is not an expression over one row"
    else:
        return
    raise ExpressionError(
        f"{site.of(text)} {wrong}",
        fix="write one SQL expression over the stream's columns, such as 'fare_amount / trip_distance'",
        uid=site.uid,
        place=site.place,
    )


def column_names(parsed: exp.Expr) -> tuple[str, ...]:
    """Return the top-level columns that an expression reads, in the order they are written; ``a.b`` reads ``a``.

    >>> column_names(parse_sql("st.x + transform(items, i -> i * rate)", Site("example", "")))
    ('st', 'items', 'rate')
    """
    from sqlglot import exp

    return tuple(dict.fromkeys(column.parts[0].name for column in parsed.find_all(exp.Column, bfs=False)))


def referenced_columns(expression: Expression) -> frozenset[str] | None:
    """Return the columns an expression reads, as it spells them; None if that cannot be known (a deferred function).

    Raises:
        ExpressionError: the SQL cannot be parsed.

    >>> sorted(referenced_columns("trip_distance / hours"))
    ['hours', 'trip_distance']
    """
    if not isinstance(expression, str):
        return None
    return frozenset(column_names(parse_sql(expression, Site("expression", ""))))


def check_columns(parsed: exp.Expr | None, expression: Expression, schema: Schema | None, site: Site) -> None:
    """Check that a stream has the columns which an expression reads; passes if either is unknown.

    Raises:
        ColumnError: it has not; the message lists the columns and the nearest name.
    """
    if parsed is None or schema is None:
        return
    for name in column_names(parsed):
        if schema.find(name) is None:
            raise unknown_column(name, site.of(expression), schema, site)


def unknown_column(name: str, where: str, schema: Schema, site: Site) -> ColumnError:
    """Return the error for a column that a stream does not have."""
    near = schema.nearest(name)
    hint = f"; did you mean {near!r}? The" if near else "; the"
    fix = f"write {near!r}, or add the column before with .with_columns(...)" if near else "use one of the columns, or add it before"
    columns = ", ".join(schema.names) or "none"
    return ColumnError(f"{where} reads unknown column {name!r}{hint} columns are: {columns}", fix=fix, uid=site.uid, place=site.place)


def named_expressions(
    operator: str, columns: Sequence[str], named: Mapping[str, Expression], place: str
) -> tuple[tuple[str, Expression], ...]:
    """Return (name, expression) pairs: of positional columns (``"a"``, ``"a.b"`` is named b, ``"expr AS name"``), then of named ones.

    Raises:
        ExpressionError: a positional column has no name.

    >>> named_expressions("select", ["zone", "trip.id", "fare * 2 AS double_fare"], {}, "")
    (('zone', 'zone'), ('id', 'trip.id'), ('double_fare', 'fare * 2'))
    """
    return (*(_positional(operator, column, place) for column in columns), *named.items())


def _positional(operator: str, column: object, place: str) -> tuple[str, Expression]:
    from sqlglot import exp, tokenize

    site = Site(f"{operator} column", place)
    if isinstance(column, list | tuple):
        listed = ", ".join(repr(each) for each in column if isinstance(each, str)) or "'zone', 'fare'"
        fix = f"name the columns one by one: .{operator}({listed})"
        raise ExpressionError(f"{site.what} is a {type(column).__name__}, not a column", fix=fix, place=place)
    if not isinstance(column, str):
        raise ExpressionError(
            f"{site.what} is {column!r}, which has no name", fix=f"give it one: .{operator}(name={_DEFERRED})", place=place
        )
    parsed = parse_sql(column, site)
    if isinstance(parsed, exp.Column) and not isinstance(parsed.this, exp.Star):
        return parsed.name, column
    if isinstance(parsed, exp.Alias):
        tokens = tokenize(column, read="spark")
        if len(tokens) > 2 and tokens[-2].text.upper() == "AS":
            return parsed.alias, column[: tokens[-2].start].rstrip()
    if isinstance(parsed, exp.Star):
        fix = "name the columns, or keep them all with .with_columns(...)"
    else:
        fix = f"give it one: .{operator}(name={column!r}), or '{column} AS name'"
    raise ExpressionError(f"{site.what} {column!r} has no name", fix=fix, place=place)

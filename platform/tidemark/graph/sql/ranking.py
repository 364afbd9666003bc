"""The first rows of groups: a number of rows by ROW_NUMBER in a subquery, and its bound in the query over it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidemark.graph.sql.refusals import QuerySite, shown

if TYPE_CHECKING:
    from sqlglot import exp


@dataclass(frozen=True)
class Ranking:
    """The first ``n`` rows of the groups ``by`` in an order.

    ``select`` is the subquery, in which the number has no value, and which has the expressions of ``by`` and of ``order`` as further
    columns; ``name`` is the number's, ``rest`` the other conditions of the query over it, and ``is_read`` whether that may read the number.
    """

    select: exp.Select
    name: str
    n: int
    by: tuple[exp.Expr, ...]
    order: tuple[exp.Ordered, ...]
    rest: tuple[exp.Expr, ...]
    is_read: bool


def ranking_of(table: exp.Expr, conditions: Sequence[exp.Expr], site: QuerySite) -> Ranking | None:
    """Return what a subquery with ROW_NUMBER and the conditions of the query over it ask for; None where there is no such number.

    Raises:
        ExpressionError: a number without a bound or an order, or of distinct rows.
    """
    from sqlglot import exp

    inner = table.this if isinstance(table, exp.Subquery) else None
    if not isinstance(inner, exp.Select):
        return None
    numbers = [each for each in inner.expressions if _is_number(each.unalias())]
    if not numbers:
        return None
    number, name = numbers[0].unalias(), numbers[0].alias
    bounds = {id(each): bound for each in conditions if (bound := _bound(each, name, table.alias, site)) is not None}
    if len(numbers) > 1 or not bounds:
        raise site.refused(f"{shown(numbers[-1])} has no bound in the query over it", f"write WHERE {name or 'nth'} <= 3")
    if inner.args.get("distinct"):
        raise site.refused("ROW_NUMBER of SELECT DISTINCT is not covered", "number the rows of a subquery: FROM (SELECT DISTINCT ...)")
    order = number.args.get("order")
    if order is None:
        raise site.refused(f"{shown(numbers[0])} has no ORDER BY", "write ORDER BY price DESC")
    by = tuple(number.args.get("partition_by") or ())
    rest = tuple(each for each in conditions if id(each) not in bounds)
    outer = table.parent_select
    read = [each for each in (*rest, *_read_by(outer)) if each.is_star or _names(each, name)]
    select = _without_number(inner, numbers[0], by, tuple(order.expressions))
    return Ranking(select, name, min(bounds.values()), by, tuple(order.expressions), rest, bool(read))


def _is_number(expression: exp.Expr) -> bool:
    from sqlglot import exp

    return isinstance(expression, exp.Window) and isinstance(expression.this, exp.RowNumber)


def _read_by(outer: exp.Select | None) -> list[exp.Expr]:
    """Return what a query reads besides its conditions."""
    parts = [outer.args.get(part) for part in ("group", "having")] if outer is not None else []
    return [*(outer.expressions if outer is not None else ()), *(part for part in parts if part is not None)]


def _without_number(inner: exp.Select, number: exp.Expr, by: Sequence[exp.Expr], order: Sequence[exp.Ordered]) -> exp.Select:
    """Return a subquery in which a number has no value, with what it is made of as further columns."""
    from sqlglot import exp

    made = inner.copy()
    columns = [exp.alias_(exp.null(), number.alias, quoted=True) if each == number else each for each in made.expressions]
    columns += [exp.alias_(each, f"partition_{place + 1}", quoted=True) for place, each in enumerate(by)]
    columns += [exp.alias_(each.this, f"order_{place + 1}", quoted=True) for place, each in enumerate(order)]
    made.set("expressions", columns)
    return made


def ordered_by(part: exp.Ordered, column: str) -> str:
    """Return SQL of a part of an order, whose values are in a column."""
    from sqlglot import exp

    made = part.copy()
    made.set("this", exp.column(column, quoted=True))
    return made.sql(dialect="spark")


def _names(expression: exp.Expr, name: str) -> bool:
    from sqlglot import exp

    return any(column.name.lower() == name.lower() for column in expression.find_all(exp.Column))


def _bound(condition: exp.Expr, name: str, table: str, site: QuerySite) -> int | None:
    """Return the greatest number that a condition lets pass, None for any other condition.

    Raises:
        ExpressionError: the bound is no whole number from 1.
    """
    from sqlglot import exp

    condition = condition.unnest()
    mirrored: dict[type[exp.Expr], type[exp.Expr]] = {exp.GTE: exp.LTE, exp.GT: exp.LT, exp.EQ: exp.EQ}
    kind: type[exp.Expr] | None = type(condition)
    one, other = condition.args.get("this"), condition.args.get("expression")
    if isinstance(one, exp.Literal):
        one, other, kind = other, one, mirrored.get(type(condition))
    if not isinstance(one, exp.Column) or one.name.lower() != name.lower() or one.table.lower() not in ("", table.lower()):
        return None
    if kind not in (exp.LTE, exp.LT, exp.EQ) or not isinstance(other, exp.Literal):
        return None
    if other.is_string or not other.name.isdecimal():
        raise site.refused(f"the bound {shown(condition)} is no whole number", f"write {name} <= 3")
    value = int(other.name) - (1 if kind is exp.LT else 0)
    if kind is exp.EQ and value != 1:
        return None
    if value < 1:
        raise site.refused(f"the bound {shown(condition)} lets no row pass", f"write {name} <= 3")
    return value

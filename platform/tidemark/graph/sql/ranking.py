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

    ``select`` is the subquery without the number, ``name`` the number's, ``rest`` the other conditions of the query over it, and
    ``is_read`` whether that may read the number.
    """

    select: exp.Select
    name: str
    n: int
    by: tuple[exp.Column, ...]
    order: tuple[exp.Expr, ...]
    rest: tuple[exp.Expr, ...]
    is_read: bool


def ranking_of(table: exp.Expr, conditions: Sequence[exp.Expr], site: QuerySite) -> Ranking | None:
    """Return what a subquery with ROW_NUMBER and the conditions of the query over it ask for; None where there is no such number.

    Raises:
        ExpressionError: a number without a bound, or by expressions that are not covered.
    """
    from sqlglot import exp

    inner = table.this if isinstance(table, exp.Subquery) else None
    if not isinstance(inner, exp.Select):
        return None
    numbers = [each for each in inner.expressions if isinstance(each.unalias(), exp.Window) and each.find(exp.RowNumber)]
    if not numbers:
        return None
    number, name = numbers[0].unalias(), numbers[0].alias
    bounds = {id(each): bound for each in conditions if (bound := _bound(each, name)) is not None}
    if len(numbers) > 1 or not bounds:
        raise site.refused(f"{shown(numbers[0])} has no bound in the query over it", f"write WHERE {name or 'nth'} <= 3")
    by = number.args.get("partition_by") or []
    if not all(isinstance(each, exp.Column) for each in by):
        raise site.refused("PARTITION BY of an expression is not covered", "give it a name in a subquery, and partition by that")
    order = number.args.get("order")
    if order is None:
        raise site.refused(f"{shown(numbers[0])} has no ORDER BY", "write ORDER BY price DESC")
    below = inner.copy()
    below.set("expressions", [each for each in below.expressions if not each.find(exp.RowNumber)])
    rest = tuple(each for each in conditions if id(each) not in bounds)
    outer = table.parent_select
    read = [each for each in (outer.expressions if outer is not None else ()) if each.is_star or _names(each, name)]
    return Ranking(below, name, min(bounds.values()), tuple(by), tuple(order.expressions), rest, bool(read))


def _names(expression: exp.Expr, name: str) -> bool:
    from sqlglot import exp

    return any(column.name.lower() == name.lower() for column in expression.find_all(exp.Column))


def _bound(condition: exp.Expr, name: str) -> int | None:
    """Return the greatest number that a condition lets pass, None for any other condition."""
    from sqlglot import exp

    one, other = condition.args.get("this"), condition.args.get("expression")
    if not isinstance(one, exp.Column) or one.name.lower() != name.lower() or not isinstance(other, exp.Literal) or other.is_string:
        return None
    value = int(other.name)
    if isinstance(condition, exp.LTE):
        return value
    if isinstance(condition, exp.LT):
        return value - 1
    return 1 if isinstance(condition, exp.EQ) and value == 1 else None

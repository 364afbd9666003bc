"""The order of rows, as SQL after ORDER BY: taken apart, so that it can be checked and compared."""

from __future__ import annotations

from dataclasses import dataclass

from tidemark.errors import ExpressionError
from tidemark.graph.expressions.expressions import Site, parse_sql


@dataclass(frozen=True)
class OrderPart:
    """One expression of an order. Nulls come first in ascending order and last in descending order, unless it says otherwise."""

    expression: str
    descending: bool
    nulls_first: bool

    @property
    def sql(self) -> str:
        """The part as SQL."""
        return f"{self.expression} {'DESC' if self.descending else 'ASC'} NULLS {'FIRST' if self.nulls_first else 'LAST'}"


def parse_order(order: object, site: Site) -> tuple[OrderPart, ...]:
    """Return the parts of an order.

    Raises:
        ExpressionError: it is no SQL text, or cannot be parsed.

    >>> [part.sql for part in parse_order("price DESC, at", Site("order", ""))]
    ['price DESC NULLS LAST', 'at ASC NULLS FIRST']
    """
    from sqlglot import exp

    if not isinstance(order, str) or not order.strip():
        raise ExpressionError(
            f"{site.what} is {order!r}, not SQL text", fix="write order='price DESC, sold_at'", uid=site.uid, place=site.place
        )
    parsed = parse_sql(f"SELECT 1 ORDER BY {order}", site)
    found = parsed.args.get("order")
    others = [name for name, value in parsed.args.items() if value and name not in {"expressions", "order", "kind"}]
    if not isinstance(found, exp.Order) or others:
        raise ExpressionError(
            f"{site.of(order)} is more than an order of rows",
            fix="write expressions, each with ASC or DESC where needed: order='price DESC, sold_at'",
            uid=site.uid,
            place=site.place,
        )
    return tuple(_part(each) for each in found.expressions)


def _part(parsed: object) -> OrderPart:
    from sqlglot import exp

    if not isinstance(parsed, exp.Ordered):
        raise TypeError(type(parsed).__name__)
    descending = bool(parsed.args.get("desc"))
    nulls_first = parsed.args.get("nulls_first")
    return OrderPart(parsed.this.sql(dialect="spark"), descending, not descending if nulls_first is None else bool(nulls_first))

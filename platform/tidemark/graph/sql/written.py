"""Parts of a query as they are written there, with other names for their columns: Spark reads what the user wrote."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from sqlglot import exp

    from tidemark.graph.expressions.placed_parser import Place

_INSTEAD: Final = "instead_of"


def instead_of(part: exp.Expr, other: exp.Expr) -> exp.Expr:
    """Return an expression that is to stand where a part of the query does."""
    from tidemark.graph.expressions.placed_parser import place_of

    other.meta[_INSTEAD] = place_of(part)
    return other


def as_written(expression: exp.Expr, query: str, named: Callable[[exp.Column], exp.Column]) -> str:
    """Return SQL of an expression: its text in the query, in which its columns, and what stands instead of parts, are replaced.

    sqlglot writes an expression that was made, or has a part that was made without a place. It knows other databases' functions, too, and
    of Spark's it leaves out arguments and types that those do not have.

    Args:
        expression: a part of the query, or one that was made of its parts.
        query: its text.
        named: returns the column that is written for one.

    Raises:
        UnsupportedError: it was made, and sqlglot cannot write it.
    """
    from sqlglot import ErrorLevel, exp

    from tidemark.graph.expressions.placed_parser import place_of

    def text(node: exp.Expr) -> str:
        if isinstance(node, exp.Column):
            return named(node).sql(dialect="spark")
        place, parts = place_of(node), _replaced_parts(node)
        if place is None or parts is None:
            made = node.transform(lambda each: named(each) if isinstance(each, exp.Column) else each)
            return made.sql(dialect="spark", unsupported_level=ErrorLevel.RAISE)
        found, after = [], place[0]
        for (start, end), part in sorted(parts.items(), key=lambda each: each[0]):
            own = text(part)
            found += [query[after:start], own if isinstance(part, exp.Column) else f"({own})"]
            after = end
        return "".join([*found, query[after : place[1]]])

    return text(expression)


def _replaced_parts(node: exp.Expr) -> dict[Place, exp.Expr] | None:
    """Return the columns within an expression, and what stands instead of its parts, by the place of each; None where one has no place."""
    from sqlglot import exp

    from tidemark.graph.expressions.placed_parser import place_of

    found: dict[Place, exp.Expr] = {}
    for child in node.iter_expressions():
        if isinstance(child, exp.Column) or _INSTEAD in child.meta:
            place = child.meta[_INSTEAD] if _INSTEAD in child.meta else place_of(child)
            if place is None:
                return None
            found[place] = child
            continue
        within = _replaced_parts(child)
        if within is None:
            return None
        found |= within
    return found

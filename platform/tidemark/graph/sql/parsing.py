"""Parses a query."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidemark.errors import ExpressionError
from tidemark.graph.expressions.expressions import Site, parse_sql

if TYPE_CHECKING:
    from sqlglot import exp


def parse_query(query: object, site: Site) -> exp.Expr:
    """Return a parsed query.

    Raises:
        ExpressionError: it is no text, cannot be parsed, or is no query.
    """
    from sqlglot import exp

    if not isinstance(query, str):
        raise ExpressionError(f"tm.sql is given {query!r}, not SQL text", fix="write tm.sql('SELECT ...', rides=rides)", place=site.place)
    parsed = parse_sql(query, site)
    if not isinstance(parsed, exp.Query):
        raise ExpressionError(
            f"tm.sql is given {query.split()[0] if query.split() else 'nothing'}, not a query",
            fix="write a SELECT over the streams: tm.sql('SELECT ... FROM rides', rides=rides)",
            place=site.place,
        )
    return parsed

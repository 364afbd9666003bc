"""Errors of SQL queries over streams."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidemark.errors import ExpressionError
from tidemark.graph.expressions.expression_text import shortened

if TYPE_CHECKING:
    from sqlglot import exp


@dataclass(frozen=True)
class QuerySite:
    """Where a query was written, its text, and the name that its operators begin with, None where it was given none."""

    place: str
    uid: str | None
    query: str

    def refused(self, what: str, fix: str) -> ExpressionError:
        """Return the error for a part of a query that is not covered, or makes no sense."""
        return ExpressionError(f"tm.sql: {what}", fix=fix, uid=self.uid, place=self.place)


def shown(part: exp.Expr) -> str:
    """Return a part of a query as text."""
    return shortened(part.sql(dialect="spark"))

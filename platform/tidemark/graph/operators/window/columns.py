"""The columns that a window's aggregates read, and those of its results."""

from __future__ import annotations

from tidemark.errors import ExpressionError
from tidemark.graph.expressions.expressions import Site, column_names, parse_sql
from tidemark.graph.model.aggregates import Aggregate, Partial
from tidemark.graph.operators.window.node import WindowNode

BOUNDS = ("window_start", "window_end")
PANE_INDEX = "pane_index"
PANE = ("pane_timing", PANE_INDEX)
REPLACES = "replaces"
REPLACED_SESSIONS = "ARRAY<STRUCT<window_start: TIMESTAMP, window_end: TIMESTAMP>>"
"""Result columns beside keys and results: before these, after them, and last, with its type, where windows merge."""

ORDER_COLUMN = "__tm_order"
"""Replaces ``{order}`` while a template is parsed."""


def own_columns(node: WindowNode) -> tuple[str, ...]:
    """Return the columns that a window operator adds to keys and results, in lower case."""
    return (*BOUNDS, *PANE, REPLACES) if node.assigner.merging else (*BOUNDS, *PANE)


def filled_create(partial: Partial, site: Site) -> str:
    """Return a partial's create template as SQL, with a column in place of ``{order}``.

    Raises:
        ExpressionError: the template holds another placeholder, or a brace that is not doubled.
    """
    try:
        return partial.create.format(order=ORDER_COLUMN)
    except (KeyError, IndexError, ValueError) as error:
        raise ExpressionError(
            f"{site.what} has the template {partial.create!r}, whose braces cannot be filled in ({error})",
            fix="only {order} stands in braces there; write braces of SQL itself twice",
            uid=site.uid,
            place=site.place,
        ) from error


def aggregate_columns(aggregate: Aggregate, site: Site) -> tuple[str, ...]:
    """Return the columns that an aggregate reads, in its arguments and in the SQL that makes its partials.

    Raises:
        ExpressionError: an argument or a template cannot be parsed.
    """
    texts = [*aggregate.arguments, *(filled_create(partial, site) for partial in aggregate.partials)]
    names = dict.fromkeys(name for text in texts for name in column_names(parse_sql(text, site)))
    return tuple(name for name in names if name != ORDER_COLUMN)

"""Checks of running results against their input."""

from __future__ import annotations

from tidemark.errors import ColumnError, DefinitionError, ExpressionError
from tidemark.graph.expressions.expression_types import type_of
from tidemark.graph.expressions.expressions import Site, check_columns, parse_row_expression
from tidemark.graph.expressions.name_checks import check_column_names
from tidemark.graph.model.schema import Schema
from tidemark.graph.operators.keys import check_keys
from tidemark.graph.operators.running.node import Extreme, RunningNode
from tidemark.graph.operators.window.checks import check_aggregate


def check_running(node: RunningNode, given: Schema | None) -> None:
    """Check keys, and aggregates or the expression of an extreme.

    Raises:
        DefinitionError: or one of its kinds; it names the user's line.
    """
    check_keys(node.keys, given, node.place, uid=node.uid)
    if node.extreme is not None:
        _check_extreme(node, node.extreme, given)
        return
    if not node.aggregates:
        raise DefinitionError(
            "running_aggregate() is given no aggregate",
            fix="name at least one: .running_aggregate(trips=tm.count())",
            uid=node.uid,
            place=node.place,
        )
    check_column_names([name for name, _ in (*node.keys, *node.aggregates)], "the running result", node.place, uid=node.uid)
    for name, aggregate in node.aggregates:
        check_aggregate(name, aggregate, node, given)
        if aggregate.functions:
            raise DefinitionError(
                f"aggregate {name!r} is a Python function, and running aggregates are computed in SQL for each element",
                fix="write .process(function, state={'so_far': tm.aggregating_state(...)}, returns=...): a process function keeps it",
                uid=node.uid,
                place=node.place,
            )


def _check_extreme(node: RunningNode, extreme: Extreme, given: Schema | None) -> None:
    site = Site(extreme.kind, node.place, node.uid)
    if not isinstance(extreme.by, str):
        raise ExpressionError(
            f"{extreme.kind} is given {extreme.by!r}, not SQL text", fix=f"write .{extreme.kind}('fare')", uid=node.uid, place=node.place
        )
    parsed = parse_row_expression(extreme.by, site)
    check_columns(parsed, extreme.by, given, site)
    kind = type_of(parsed, given)
    if kind is not None and ("MAP<" in kind or "VARIANT" in kind):
        raise ColumnError(
            f"{site.of(extreme.by)} is of type {kind}, and such values have no order",
            fix=f"take a part of it that can be compared, or its text: .{extreme.kind}('to_json({extreme.by})')",
            uid=node.uid,
            place=node.place,
        )

"""Checks of aggregates of groups against their input."""

from __future__ import annotations

from tidemark.errors import DefinitionError
from tidemark.graph.expressions.name_checks import check_column_names
from tidemark.graph.model.schema import Schema
from tidemark.graph.operators.group_aggregate.node import GroupAggregateNode
from tidemark.graph.operators.keys import check_keys
from tidemark.graph.operators.window.checks import check_aggregate


def check_group_aggregate(node: GroupAggregateNode, given: Schema | None) -> None:
    """Check keys and aggregates.

    Raises:
        DefinitionError: or one of its kinds; it names the user's line.
    """
    check_keys(node.keys, given, node.place, uid=node.uid)
    if not node.aggregates:
        raise DefinitionError(
            "aggregate() is given no aggregate", fix="name at least one: .aggregate(trips=tm.count())", uid=node.uid, place=node.place
        )
    check_column_names([name for name, _ in (*node.keys, *node.aggregates)], "the aggregate's result", node.place, uid=node.uid)
    for name, aggregate in node.aggregates:
        check_aggregate(name, aggregate, node, given)
        if aggregate.functions:
            _refuse_function(name, node)


def _refuse_function(name: str, node: GroupAggregateNode) -> None:
    fix = "write .process(function, state={'so_far': tm.aggregating_state(...)}, returns=...): a process function keeps it"
    what = f"aggregate {name!r} is a Python function, and aggregates without a window are computed in SQL"
    if node.takes_back:
        what = f"aggregate {name!r} is a Python function, from which no row of a changelog can be taken back"
        fix = "write it with tm.sql_aggregate, or take the changes as elements: .as_elements().key_by(...).process(...)"
    raise DefinitionError(what, fix=fix, uid=node.uid, place=node.place)

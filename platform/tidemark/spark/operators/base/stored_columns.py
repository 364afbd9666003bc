"""Checks that stored windows have partial results, where an earlier build kept their elements."""

from __future__ import annotations

from tidemark.errors import StateMismatchError
from tidemark.graph.operators.window.node import WindowNode
from tidemark.spark.operators.base.tables import StateTables


def require_partials(tables: StateTables, column: str, node: WindowNode) -> None:
    """Check that an operator's stored state, if any, has partial results.

    Args:
        tables: of the operator.
        column: one that each row of its main table has besides keys and partials.
        node: the operator.

    Raises:
        StateMismatchError: it has elements.
    """
    if tables.schema is None or column in tables.schema.names:
        return
    raise StateMismatchError(
        "the stored windows have elements, as those of an earlier build; this build keeps partial results",
        fix="end the job with that build, or give the operator a new uid and the job a new name",
        uid=node.uid,
        place=node.place,
    )

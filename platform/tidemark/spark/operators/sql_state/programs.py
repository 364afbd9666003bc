"""The form in which a state machine runs: chosen by what its updates read."""

from __future__ import annotations

from tidemark.graph.operators.sql_state.expressions import depends_on_state
from tidemark.graph.operators.sql_state.node import SqlStateNode
from tidemark.spark.operators.sql_state.folded import Folded
from tidemark.spark.operators.sql_state.last_values import LastValues
from tidemark.spark.operators.sql_state.machine import Machine


def program_of(node: SqlStateNode) -> Machine:
    """Return the form of a state machine."""
    return Folded(node) if depends_on_state(node) else LastValues(node)

"""The runtime of state machines in SQL."""

from __future__ import annotations

from functools import partial

from tidemark.graph.operators.keyed_process.state_columns import value_column
from tidemark.graph.operators.sql_state.node import SqlStateNode
from tidemark.spark.columns.expressions import quoted
from tidemark.spark.operators.native_keyed.runtime import NativeKeyedRuntime
from tidemark.spark.operators.sql_state.programs import program_of


def sql_state_runtime(node: SqlStateNode) -> NativeKeyedRuntime:
    """Return the runtime of a state machine."""
    values = {field.name: quoted(value_column(field.name)) for field in node.fields}
    return NativeKeyedRuntime(node, partial(program_of, node), values)

"""The runtime of running results."""

from __future__ import annotations

from functools import partial

from tidemark.graph.operators.running.kind import BEST_COLUMN
from tidemark.graph.operators.running.node import RunningNode
from tidemark.graph.operators.state_names import partial_column
from tidemark.spark.columns.expressions import quoted
from tidemark.spark.operators.native_keyed.runtime import NativeKeyedRuntime
from tidemark.spark.operators.running.running_results import RunningAggregates, RunningExtreme, RunningResults


def running_program(node: RunningNode) -> RunningResults:
    """Return what an operator computes."""
    return RunningAggregates(node) if node.extreme is None else RunningExtreme(node, node.extreme)


def running_runtime(node: RunningNode) -> NativeKeyedRuntime:
    """Return the runtime of an operator; its tables have the result of each aggregate, or the element of an extreme."""
    if node.extreme is not None:
        return NativeKeyedRuntime(node, partial(running_program, node), {"element": f"{quoted(BEST_COLUMN)}.row"})
    values = {}
    for name, aggregate in node.aggregates:
        columns = {part.name: quoted(partial_column(name, part.name)) for part in aggregate.partials}
        values[name] = aggregate.result.format(**columns)
    return NativeKeyedRuntime(node, partial(running_program, node), values)

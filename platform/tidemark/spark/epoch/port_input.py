"""The input of an operator's port in an epoch, counted by the operator where it can, and prepared where it has few rows."""

from __future__ import annotations

from functools import partial

from tidemark.graph.model.nodes import Node
from tidemark.spark.epoch.stateless import StatelessPlan
from tidemark.spark.operators.base.contract import OperatorRuntime, PortInput


def port_input(plan: StatelessPlan, node: Node, runtime: OperatorRuntime) -> PortInput:
    """Return the rows of a port.

    Args:
        plan: the epoch's rows.
        node: that the port reads.
        runtime: of the operator.
    """
    counter = plan.counter_of_group(node) if runtime.can_fuse_counts else None
    if counter is None:
        return PortInput(lambda _: plan.rows(node))
    few = plan.few_rows(node)
    if few is None:
        return PortInput(lambda _: plan.rows_and_filtered(node), counter)
    build = partial(plan.rows_of_intake, node, few)
    return PortInput(build, counter, few.numbers, few.batch.few_files, "strict" if few.strict else "")

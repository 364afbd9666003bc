"""The input of an operator's port in an epoch, counted by the operator where it can, and prepared where it has few rows."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from tidemark.graph.model.nodes import Node
from tidemark.spark.columns.row_counts import RowCounter
from tidemark.spark.epoch.determinism import require_repeatable
from tidemark.spark.epoch.stateless import StatelessPlan
from tidemark.spark.operators.base.contract import OperatorRuntime, PortInput
from tidemark.spark.prepared.prepared_pass import Frame


def port_input(plan: StatelessPlan, node: Node, runtime: OperatorRuntime) -> PortInput:
    """Return the rows of a port.

    Args:
        plan: the epoch's rows.
        node: that the port reads.
        runtime: of the operator.
    """
    counter = plan.counter_of_group(node) if runtime.can_fuse_counts else None
    few = plan.few_rows(node)
    if few is None:
        return PortInput(lambda _: _frame(plan, node, counter, runtime), counter)

    def build(numbers: Sequence[int]) -> Frame:
        return _frame(plan if tuple(numbers) == few.numbers else plan.copy(few.with_numbers(numbers)), node, counter, runtime)

    shape = ["strict"] if few.strict else []
    # A counter of the rows has the known splits in its expressions.
    shape += [f"splits {plan.splits_of(few.node)}"] if counter is None and few.has_splits else []
    return PortInput(build, counter, few.numbers, few.batch.few_files, " ".join(shape), partial(plan.set_counts, node))


def _frame(plan: StatelessPlan, node: Node, counter: RowCounter | None, runtime: OperatorRuntime) -> Frame:
    """Return the rows that an operator counts by their status, or the passing ones, with the observation that counts them."""
    if counter is not None:
        counted = plan.rows_and_filtered(node)
        require_repeatable(runtime.node, node, counted)
        return counted, ()
    rows, own = plan.rows(node), plan.row_counters.get(id(node))
    require_repeatable(runtime.node, node, rows)
    return rows, () if own is None else (own.observation,)

"""The input of an operator's port in an epoch, counted by the operator where it can, and prepared where it has few rows."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from tidemark.graph.model.nodes import Node
from tidemark.spark.columns.row_counts import MAX_OBSERVED_SPLITS, RowCounter
from tidemark.spark.epoch.determinism import require_repeatable
from tidemark.spark.epoch.stateless import StatelessPlan
from tidemark.spark.operators.base.contract import OperatorRuntime, PortInput
from tidemark.spark.prepared.prepared_pass import Frame

_IN_FOLDERS: Final = re.compile(r"/([^/\n]+=)[^/\n]*(?=/)")
"""Columns whose values are in the names of folders: ``year=`` of ``/year=2024/``."""


def port_input(plan: StatelessPlan, node: Node, runtime: OperatorRuntime) -> PortInput:
    """Return the rows of a port.

    Args:
        plan: the epoch's rows.
        node: that the port reads.
        runtime: of the operator.
    """
    counter = plan.counter_of_group(node) if runtime.can_fuse_counts else None
    read, counted = plan.scanned(node), plan.counted_nodes(node)
    if read is None or (counter is not None and counted != [node]):
        return PortInput(lambda _: _frame(plan, node, counter, runtime), counter, alone=plan.reads_input_alone(node))

    def build(numbers: Sequence[int]) -> Frame:
        return _frame(plan if tuple(numbers) == read.numbers else plan.copy(read.with_numbers(numbers)), node, counter, runtime)

    def set_counts(observed: Iterator[Mapping[str, object]]) -> None:
        for each in counted:
            plan.set_counts(each, next(observed))

    shape = ["strict"] if read.strict else []
    # A counter of the rows has the known splits in its expressions, unless they are many.
    splits = plan.splits_of(read.node)
    shape += [f"splits {splits if len(splits) <= MAX_OBSERVED_SPLITS else 'many'}"] if counter is None and read.has_splits else []
    # The reader of a kept plan knows the columns that are in the names of folders.
    shape += sorted(set(_IN_FOLDERS.findall("\n".join(read.batch.scanned))))
    shape += ["one task"] if read.batch.files and not read.batch.few_files else []
    over = PortInput(build, counter, read.numbers, read.batch.scanned, " ".join(shape), set_counts)
    if read.batch.few_files:
        return over
    return PortInput(lambda _: build(over.numbers), counter, alone=plan.reads_input_alone(node), scanned=over, small=read.batch.small)


def _frame(plan: StatelessPlan, node: Node, counter: RowCounter | None, runtime: OperatorRuntime) -> Frame:
    """Return the rows that an operator counts by their status, or the passing ones, with the observations that count them."""
    if counter is not None:
        counted = plan.rows_and_filtered(node)
        require_repeatable(runtime.node, node, counted)
        return counted, ()
    rows = plan.rows(node)
    require_repeatable(runtime.node, node, rows)
    counters = (plan.row_counters.get(id(each)) for each in plan.counted_nodes(node))
    return rows, [own.observation for own in counters if own is not None]

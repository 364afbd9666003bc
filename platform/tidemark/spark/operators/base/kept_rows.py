"""What an operator keeps of the rows of a port: written into a table of its state, of few rows by a prepared pass."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql import Observation

from tidemark.spark.columns.few_rows import in_one_task
from tidemark.spark.operators.base.contract import OperatorContext, PortInput
from tidemark.spark.operators.base.tables import StateTables
from tidemark.spark.prepared.prepared_pass import Frame
from tidemark.state.log.records import StateFile

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Keep = Callable[["DataFrame", Sequence[int], Observation], "DataFrame"]
"""Makes what is kept of rows, as in state, from numbers that differ between epochs; the observation will have its counts."""


def write_kept(
    context: OperatorContext, tables: StateTables, part: str, given: PortInput, *, port: str, numbers: Sequence[int], keep: Keep
) -> tuple[list[StateFile], Mapping[str, Any]]:
    """Write what is kept of a port's rows into a table; one Spark job.

    Args:
        context: of the epoch.
        tables: the operator's.
        part: the table.
        given: the rows.
        port: the name of theirs.
        numbers: that ``keep`` is called with.
        keep: makes what is kept.

    Returns:
        The new files, and what was observed.
    """

    def kept(numbers: Sequence[int]) -> Frame:
        own, others = numbers[:own_numbers], numbers[own_numbers:]
        rows, observations = given.build(others)
        observation = Observation()
        return keep(in_one_task(rows) if given.files else rows, own, observation), (observation, *observations)

    own_numbers, numbers = len(numbers), (*numbers, *given.numbers)
    prepared = context.prepared[f"elements {context.uid} {port} {given.shape}".strip()]
    found = prepared.run(given.scans, numbers, kept) if given.files else None
    if found is None:
        rows, (observation, *_) = kept(numbers)
        return tables.write(rows, part), observation.get
    observed, *others = found.observed
    given.take_counts(others)
    return tables.add_rows(found.table, part), observed

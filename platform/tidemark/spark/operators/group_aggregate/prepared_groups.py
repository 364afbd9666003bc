"""The pass over groups by a plan that is kept between epochs, where there are few groups; its rows are read by the driver."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyspark.sql import Observation

from tidemark.spark.columns.few_rows import FEW_ROWS, in_one_task
from tidemark.spark.operators.base.contract import OperatorContext, PortInput
from tidemark.spark.operators.base.tables import StateTables
from tidemark.spark.operators.group_aggregate.pass_counts import PassCounts
from tidemark.spark.operators.group_aggregate.passes import GroupPasses
from tidemark.spark.operators.group_aggregate.state import GroupState
from tidemark.spark.prepared.prepared_plan import PassRows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_GROWTH: Final = 2
"""An epoch may change so many times as many groups as the one before."""


@dataclass(frozen=True)
class PreparedGroups:
    """The pass of an epoch.

    Input of few rows is processed in one task. Input of many rows is added up by group in several, and the groups are merged in one.

    Args:
        context: of the epoch.
        tables: the operator's files.
        state: its tables.
        passes: its frames.
        counts: what the pass counts.
    """

    context: OperatorContext
    tables: StateTables
    state: GroupState
    passes: GroupPasses
    counts: PassCounts

    def of_few(self, given: PortInput) -> PassRows | None:
        """Return the rows of the pass over input that has few rows; None where it has to be made as a DataFrame."""
        stored = self._stored_files()
        return None if stored is None else self._run(given, stored, ("groups",))

    def of_many(self, given: PortInput, touched: int | None) -> PassRows | None:
        """Return the rows of the pass over input that may have many rows.

        Args:
            given: the input, with the files that one scan reads.
            touched: how many groups the epoch before changed, None where that is not known.

        Returns:
            None where the pass has to be made as a DataFrame: the groups are not known to be few.
        """
        stored = self._stored_files()
        if not stored or touched is None or _GROWTH * touched > FEW_ROWS:
            return None
        return self._run(given, stored, ("groups", "of many rows"))

    def _stored_files(self) -> tuple[str, ...] | None:
        """Return the files of the stored groups; None where they have many rows."""
        files = self.tables.few_files(self.state.groups.files)
        return files if bool(files) == bool(self.state.groups.files) else None

    def _run(self, given: PortInput, files: Sequence[str], kind: tuple[str, ...]) -> PassRows | None:
        several = len(kind) > 1

        def pairs(numbers: Sequence[int]) -> tuple[DataFrame, Sequence[Observation]]:
            counts = Observation()
            rows, observations = given.build(numbers)
            delta = in_one_task(self.passes.delta(rows)) if several else self.passes.delta(in_one_task(rows))
            groups = self.passes.groups(delta, self.state.stored_groups(None))
            return self.counts.observed(self.passes.with_results(groups), counts), (counts, *observations)

        name = " ".join(filter(None, (kind[0], self.context.uid, *kind[1:], given.shape, "stored" if files else "")))
        # An epoch of many rows costs more than to make a plan.
        prepared = self.context.prepared.at_once(name) if several else self.context.prepared[name]
        # In the order of the union that merges them.
        stored = [files] if files else []
        scans = [*stored, *given.scans] if self.passes.layout.merged else [*given.scans, *stored]
        return prepared.run(scans, given.numbers, pairs)

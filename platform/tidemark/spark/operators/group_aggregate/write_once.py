"""The pass that writes the groups of an epoch into the state, each beside what it was before; the changes are read from these files.

Where an epoch changes most of the stored groups, all are written again: then no file has to be merged with others, and of the groups that
the next epoch reads none is outdated.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import Observation

from tidemark.graph.operators.group_aggregate.node import GroupAggregateNode
from tidemark.semantics.keyed_process.declarations import StateTtl
from tidemark.spark.operators.base.contract import OperatorContext, PortInput
from tidemark.spark.operators.base.tables import StateTables
from tidemark.spark.operators.changelog.contents import STORED
from tidemark.spark.operators.group_aggregate.columns import EMITS, INPUT
from tidemark.spark.operators.group_aggregate.pass_counts import PassCounts
from tidemark.spark.operators.group_aggregate.passes import GroupPasses
from tidemark.spark.operators.group_aggregate.state import GroupState, written_dues
from tidemark.state.log.records import StateFile

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

logger = logging.getLogger("tidemark")

MOST_OF: Final = 2
"""Where an epoch changes more than one of so many stored groups, all are written again."""

_BESIDE: Final = (f"if({INPUT} > 0, {STORED}, NULL) AS {STORED}", EMITS)
"""What is written beside the state of a group that input changes, for the changes of results."""


@dataclass(frozen=True)
class WrittenGroups:
    """The files of the groups, what the pass counted, and the values of the input's observations, where its plan was kept.

    ``whole`` is whether each stored group is in these files, once.
    """

    files: Sequence[StateFile]
    counts: Mapping[str, Any]
    others: Sequence[Mapping[str, object]]
    whole: bool


@dataclass(frozen=True)
class WriteOncePass:
    """The pass of an epoch.

    Args:
        context: of the epoch.
        tables: the operator's files.
        state: its tables.
        passes: its frames.
        ttl: of the operator.
        again: whether all stored groups are written, also those that input does not change.
    """

    context: OperatorContext
    tables: StateTables
    state: GroupState
    passes: GroupPasses
    ttl: StateTtl | None
    again: bool

    def of_rows(self, delta: DataFrame, touched: DataFrame | None, clock: int) -> WrittenGroups:
        """Write the groups; one Spark job.

        Args:
            delta: what the input adds.
            touched: the hashes of the groups that are read; None for all.
            clock: that the lifetime of groups is counted from.
        """
        observation = Observation()
        stored = self.state.all_groups() if touched is None else self.state.stored_groups(touched)
        frame = self._written(delta, stored, observation, clock=clock, version=self.state.version)
        older = self.state.groups.files
        return self._written_files(older, self.state.groups.add_ordered(frame), (observation.get,))

    def of_scan(self, given: PortInput) -> WrittenGroups | None:
        """Write the groups by a plan that is kept between epochs, where groups have no lifetime; one Spark job.

        Args:
            given: the input, with the files that one scan reads.

        Returns:
            None where the pass has to be made as a DataFrame.
        """
        files = self.tables.addresses(self.state.groups.files)
        if not files or not self.passes.layout.merged or self.ttl is not None:
            return None

        def build(numbers: Sequence[int]) -> tuple[DataFrame, Sequence[Observation]]:
            counts = Observation()
            rows, observations = given.build(numbers[:-1])
            delta, stored = self.passes.delta(rows), self.state.all_groups()
            return self._written(delta, stored, counts, clock=0, version=numbers[-1]), (counts, *observations)

        few = "few" if self.tables.are_few(self.state.groups.files) else ""
        kinds = ("groups of", self.context.uid, few, "once" if self.state.once else "", "again" if self.again else "", given.shape)
        prepared = self.context.prepared.at_once(" ".join(filter(None, kinds)))
        # In the order of the union that merges them.
        found = prepared.rows([files, *given.scans], (*given.numbers, self.state.version), build)
        if found is None:
            return None
        older = self.state.groups.files
        try:
            written = self.state.groups.add_ordered(found.frame)
        except (Py4JError, PySparkException) as error:
            # The DataFrame of the epoch fails in the same way, with an error that says where, or it does not fail.
            logger.debug("the prepared pass %r failed: %s", prepared.name, error)
            return None
        return self._written_files(older, written, found.observed)

    def _written(self, delta: DataFrame, stored: DataFrame | None, counts: Observation, *, clock: int, version: int) -> DataFrame:
        groups = self.passes.with_numbers(self.passes.groups(delta, stored, others=self.again))
        counted = PassCounts(self.passes.layout, self.passes.overflows()).observed(groups, counts)
        return self.state.written_groups(counted, written_dues(self.ttl, clock), _BESIDE, version=version)

    def _written_files(
        self, older: Sequence[StateFile], files: Sequence[StateFile], observed: Sequence[Mapping[str, object]]
    ) -> WrittenGroups:
        if self.again:
            self.tables.drop(older)
        counts, *others = observed
        return WrittenGroups(files, counts, others, whole=self.again or (not older and self.ttl is None))


def changes_most(node: GroupAggregateNode, state: GroupState, touched: int | None, keys: int) -> bool:
    """Whether an epoch changes most of the stored groups, as far as the one before tells, and all can be written again.

    Args:
        node: the operator.
        state: its tables.
        touched: how many groups the epoch before changed, None where that is not known.
        keys: how many groups there are.
    """
    if touched is None or node.ttl is not None or node.takes_back or not state.groups.files:
        return False
    return MOST_OF * touched > keys

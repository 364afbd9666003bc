"""The results that an operator emitted in an epoch, until they were written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from pyspark.sql import Observation

from tidemark.graph.model.nodes import Node, StatefulNode
from tidemark.spark.columns.few_rows import in_one_task
from tidemark.spark.epoch.stateless import StatelessPlan
from tidemark.spark.operators.base.contract import Observed, Results, rows_of
from tidemark.spark.prepared.prepared_pass import Frame, PreparedPasses
from tidemark.spark.prepared.prepared_plan import PassRows, WrittenRows
from tidemark.spark.sinks.sinks import BoundSink

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True)
class KnownValues:
    """Observed values that are known already."""

    get: Mapping[str, Any]


class Emission:
    """Results that an operator emitted.

    ``counts`` has the values that the operator's ``emitted`` reads, once the results were written; ``observation`` those of the DataFrame.

    Args:
        operator: that emitted them.
        results: as returned by ``emit``.
        observation: that ``emit`` was called with.
        since: when it was called, in seconds.
    """

    def __init__(self, operator: StatefulNode, results: DataFrame | Results, observation: Observation, since: float) -> None:
        self.counts: Observed = observation
        self.since = since
        self._operator = operator
        self._results = results
        self.observation = observation

    def rows(self) -> DataFrame:
        """Return the results as a DataFrame."""
        return rows_of(self._results, self.observation)

    @property
    def few(self) -> Results | None:
        """The results, where they are read from files of few rows; None otherwise."""
        return self._results if isinstance(self._results, Results) and self._results.files else None

    @property
    def many(self) -> Results | None:
        """The results, where they are read from files of many rows; None otherwise."""
        return self._results if isinstance(self._results, Results) and self._results.many else None

    def read_rows(self, output: BoundSink) -> PassRows | None:
        """Return the results as they are, for an output that adds them, where the driver can read them; None otherwise."""
        results = self._results if isinstance(self._results, Results) else None
        return None if results is None or results.read is None or output.changes is not None else results.read()

    def other_plan(self, plan: StatelessPlan, numbers: Sequence[int]) -> tuple[StatelessPlan, Observation]:
        """Return a plan with results that are read from files, as made from numbers, and the observation for their counts."""
        results = self.few or self.many
        if results is None:
            raise ValueError("the results are not read from files")
        counts, other = Observation(), plan.copy()
        built = results.build(numbers, counts)
        made = in_one_task(built) if results.several_tasks else built
        other.set_results(self._operator, lambda: made)
        return other, counts

    def prepared_rows(self, output: BoundSink, node: Node, plan: StatelessPlan, prepared: PreparedPasses, *, epoch: int) -> PassRows | None:
        """Return an output's rows by its prepared pass, and set the counts; None where they are not few, or the pass not yet prepared.

        Args:
            output: that ``takes_rows``.
            node: its rows, computed from these results alone by filters and expressions.
            plan: the epoch's rows.
            prepared: the passes of the run.
            epoch: the current one.
        """
        results = self.few
        if results is None:
            return None
        build = partial(self._taken_rows, output, node, plan)
        found = prepared[f"output {output.name} {results.shape}"].run(results.scans, (*results.numbers, epoch), build)
        if found is not None:
            self.take_counts(found.observed, output, node, plan)
        return found

    def written_rows(
        self, output: BoundSink, node: Node, plan: StatelessPlan, prepared: PreparedPasses, *, epoch: int
    ) -> WrittenRows | None:
        """Return the same of many rows, which several tasks write; their counts are for ``take_counts`` then."""
        results = self.many
        if results is None:
            return None
        build = partial(self._taken_rows, output, node, plan)
        return prepared.at_once(f"output {output.name} many {results.shape}").rows((results.many,), (*results.numbers, epoch), build)

    def _taken_rows(self, output: BoundSink, node: Node, plan: StatelessPlan, numbers: Sequence[int]) -> Frame:
        other, counts = self.other_plan(plan, numbers[:-1])
        rows, counter = other.rows(node), other.row_counters.get(id(node))
        filtered = () if counter is None else (counter.observation,)
        taken, own = output.few_rows(rows, numbers[-1])
        return taken, (counts, *filtered, *own)

    def take_counts(self, observed: Sequence[Mapping[str, Any]], output: BoundSink, node: Node, plan: StatelessPlan) -> None:
        """Take the values of the observations of a prepared pass; arguments as of ``prepared_rows``."""
        emitted, *others = observed
        self.counts = KnownValues(emitted)
        for each in others if output.changes is None else others[:-1]:
            plan.set_counts(node, each)

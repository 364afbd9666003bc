"""An operator over elements in one epoch: what its pass wrote is its results and side outputs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Generic, TypeVar

from tidemark.graph.operators.element_process.node import ElementProcessNode
from tidemark.graph.operators.emitting import FAILED
from tidemark.spark.operators.base.contract import InputCounts, Observed, OperatorContext, OperatorEpoch, OperatorRuntime
from tidemark.spark.operators.base.tables import StateTables
from tidemark.spark.operators.elements.layout import FAILED_ROW, ElementLayout
from tidemark.spark.operators.keyed.columns import OUTPUT
from tidemark.spark.operators.keyed.task_run import TaskOutput
from tidemark.state.log.records import OperatorState

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

N = TypeVar("N", bound=ElementProcessNode)


class ElementRuntime(OperatorRuntime, Generic[N]):
    """An operator over elements of a run, without deadlines.

    Args:
        node: its declaration.
    """

    def __init__(self, node: N) -> None:
        super().__init__(node)
        self.declared: N = node

    def next_timer(self, state: OperatorState) -> int | None:
        """Return nothing: there are no timers."""
        del state
        return None


class ElementEpoch(OperatorEpoch, Generic[N]):
    """An operator over elements in one epoch. A kind sets ``_layout`` and ``_passed`` in ``process_batch`` or ``emit``."""

    runtime: ElementRuntime[N]

    def __init__(self, runtime: ElementRuntime[N], context: OperatorContext) -> None:
        super().__init__(runtime, context)
        self._tables = StateTables(context, runtime.declared.place)
        self._layout: ElementLayout | None = None
        self._passed: TaskOutput | None = None
        self._had_turn = False

    @property
    def node(self) -> N:
        """The operator's declaration."""
        return self.runtime.declared

    @property
    def input_counts(self) -> Mapping[str, InputCounts] | None:
        """The numbers of elements that were processed, and that failed."""
        passed = self._passed
        if passed is None:
            return None
        others = {FAILED: passed.rows(FAILED_ROW)} if self.node.on_error is not None else {}
        return {"elements": InputCounts(passed.count("accepted"), others)}

    @property
    def side_counts(self) -> Mapping[str, int] | None:
        """The numbers of rows that were emitted to side outputs, and of calls that failed."""
        if not self._had_turn:
            return None
        passed, layout = self._passed, self._layout
        if passed is None or layout is None:
            return {}
        return {counter: passed.rows(tag) for counter, tag in layout.tags.items()}

    def side_rows(self, counter: str, inputs: Mapping[str, DataFrame]) -> DataFrame:
        """Return the rows that were emitted to a side output, or the elements that failed."""
        del inputs
        passed, layout = self._passed, self._layout
        if passed is None or layout is None:
            raise ValueError(f"no rows of {counter}")
        tag = layout.tags[counter]
        return layout.emitted_rows(passed.read(self.context, tag), tag)

    def emit(self, watermark: int, observation: Observed) -> DataFrame | None:
        """Return the rows that the pass wrote, None where there are none."""
        del observation  # the pass has its own
        self.watermark, self._had_turn = watermark, True
        passed, layout = self._passed, self._layout
        if passed is None or layout is None or not passed.rows(OUTPUT):
            return None
        return layout.emitted_rows(passed.read(self.context, OUTPUT), OUTPUT)

    def emitted(self, observation: Observed) -> int:
        """Return the number of results."""
        del observation
        return 0 if self._passed is None else self._passed.rows(OUTPUT)

    def compact(self) -> Callable[[], None] | None:
        """Return nothing: there is nothing to merge."""
        return None

    def snapshot(self) -> OperatorState:
        """Return the operator's state after this epoch; what the pass wrote has been read by then, and is deleted."""
        if self._passed is not None:
            self.context.store.delete(tuple(file.path for files in self._passed.files.values() for file in files))
        return self._tables.snapshot(self.watermark, {})

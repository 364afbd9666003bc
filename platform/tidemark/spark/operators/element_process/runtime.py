"""Functions over elements: one pass over an epoch's input calls the function, without a shuffle, and writes its rows once.

With a broadcast stream the operator keeps its map; its rows of an epoch are applied before the pass.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from tidemark.crashpoints import crash_point
from tidemark.graph.operators.element_process.node import BroadcastElementProcessNode, ElementProcessNode
from tidemark.spark.columns.arrow_batches import SMALL_ROW
from tidemark.spark.operators.base.contract import InputCounts, OperatorContext, PortInput
from tidemark.spark.operators.element_process.task import ProcessElements
from tidemark.spark.operators.elements.element_pass import run_pass
from tidemark.spark.operators.elements.epoch import ElementEpoch, ElementRuntime
from tidemark.spark.operators.elements.layout import FAILED_ROW, ElementLayout
from tidemark.spark.operators.keyed.task_run import TaskOutput
from tidemark.spark.operators.keyed_process.broadcast import BroadcastMap, Entries

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class ElementProcessRuntime(ElementRuntime[ElementProcessNode]):
    """A function over elements of a run.

    ``has_small_rows`` says that the elements of the epoch before were small on average.

    Args:
        node: its declaration.
    """

    def __init__(self, node: ElementProcessNode) -> None:
        super().__init__(node)
        self.broadcast = BroadcastMap(node, node.broadcast) if isinstance(node, BroadcastElementProcessNode) else None
        self.has_small_rows = False

    def begin(self, context: OperatorContext) -> ElementProcessEpoch:
        """Return the operator at work on an epoch."""
        return ElementProcessEpoch(self, context)


class ElementProcessEpoch(ElementEpoch[ElementProcessNode]):
    """A function over elements in one epoch."""

    runtime: ElementProcessRuntime

    def __init__(self, runtime: ElementProcessRuntime, context: OperatorContext) -> None:
        super().__init__(runtime, context)
        self._broadcast_rows: int | None = None

    def process_batch(self, inputs: Mapping[str, PortInput]) -> None:
        """Apply the rows of a broadcast stream, then call the function for the elements; one Spark job each."""
        held = self.runtime.broadcast
        if held is not None and "broadcast" in inputs:
            self._broadcast_rows = held.write(inputs["broadcast"].rows, self._tables, self.context)
        if "elements" in inputs:
            rows = inputs["elements"].rows
            layout = self._layout = ElementLayout(self.node, rows.schema)
            self._passed = self._run(rows, layout)
        crash_point("state-staged")

    def _run(self, rows: DataFrame, layout: ElementLayout) -> TaskOutput:
        runtime = self.runtime
        passed = run_pass(
            layout.flat(rows),
            self._task(layout),
            layout,
            context=self.context,
            tables=self._tables,
            small_rows=runtime.has_small_rows,
        )
        read = passed.count("accepted") + passed.rows(FAILED_ROW)
        runtime.has_small_rows = passed.count("bytes") <= SMALL_ROW * read
        return passed

    def _task(self, layout: ElementLayout) -> ProcessElements:
        node, context = self.node, self.context
        return ProcessElements(
            uid=context.uid,
            name=node.function_name,
            function=node.function,
            method=node.method,
            elements=layout.elements,
            tags={tag.name: layout.tags[counter] for counter, tag in node.emitted_tags.items()},
            schema=layout.arrow(),
            shapes=layout.shapes,
            watermark=context.before.watermark,
            processing_time=context.processing_time,
            forgives=node.on_error is not None,
            broadcast=self._broadcast,
        )

    @property
    def _broadcast(self) -> dict[str, Entries]:
        node, held = self.node, self.runtime.broadcast
        if held is None or not isinstance(node, BroadcastElementProcessNode):
            return {}
        return {node.broadcast.name: held.entries(self._tables, self.context)}

    @property
    def input_counts(self) -> Mapping[str, InputCounts] | None:
        """The numbers of elements that were processed, and that failed, and of the rows of the broadcast stream."""
        found = dict(super().input_counts or {})
        if self._broadcast_rows is not None:
            found["broadcast"] = InputCounts(self._broadcast_rows, {})
        return found or None

    def stored_tables(self) -> Mapping[str, DataFrame]:
        """Return ``broadcast``, a row per entry of the map, where there is one."""
        held = self.runtime.broadcast
        return {} if held is None else {"broadcast": held.stored_entries(self._tables, self.context)}

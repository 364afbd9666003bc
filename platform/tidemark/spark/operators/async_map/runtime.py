"""Asynchronous enrichment: an epoch's input is staged, then one pass calls the function, once for each element of the epoch.

The calls are made after the input was read: reading it may be repeated, to set rows aside that are too far ahead of processing time, and
calls cost money.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from tidemark.crashpoints import crash_point
from tidemark.graph.operators.async_map.node import AsyncMapNode
from tidemark.spark.columns.state_files import read_files, write_folder
from tidemark.spark.operators.async_map.task import AsyncElements
from tidemark.spark.operators.base.contract import Observed, OperatorContext, PortInput
from tidemark.spark.operators.base.tables import STATE_COMPRESSION
from tidemark.spark.operators.elements.element_pass import run_pass
from tidemark.spark.operators.elements.epoch import ElementEpoch, ElementRuntime
from tidemark.spark.operators.elements.layout import ElementLayout
from tidemark.spark.operators.keyed.task_run import TaskOutput, have_small_rows
from tidemark.state.log.parquet_files import ParquetSummary

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class AsyncMapRuntime(ElementRuntime[AsyncMapNode]):
    """An asynchronous function of a run."""

    def begin(self, context: OperatorContext) -> AsyncMapEpoch:
        """Return the operator at work on an epoch."""
        return AsyncMapEpoch(self, context)


class AsyncMapEpoch(ElementEpoch[AsyncMapNode]):
    """An asynchronous function in one epoch."""

    runtime: AsyncMapRuntime

    def __init__(self, runtime: AsyncMapRuntime, context: OperatorContext) -> None:
        super().__init__(runtime, context)
        self._staged: tuple[ParquetSummary, ...] = ()

    def process_batch(self, inputs: Mapping[str, PortInput]) -> None:
        """Stage an epoch's input; one Spark job."""
        rows = inputs["elements"].rows
        layout = self._layout = ElementLayout(self.node, rows.schema)
        folder = self._tables.new_folder()
        self._staged = tuple(write_folder(layout.flat(rows), self.context.store, folder, compression=STATE_COMPRESSION))
        crash_point("state-staged")

    def emit(self, watermark: int, observation: Observed) -> DataFrame | None:
        """Call the function for the staged elements; return its rows, None where there are none."""
        if self._layout is not None:
            self._passed = self._call(self._layout)
        return super().emit(watermark, observation)

    def _call(self, layout: ElementLayout) -> TaskOutput:
        context = self.context
        files = [file.as_state_file(context.epoch) for file in self._staged]
        if not files:
            return TaskOutput({}, {}, layout.output)
        staged = read_files(context.spark, context.store, files, layout.input)
        passed = run_pass(staged, self._task(layout), layout, context=context, tables=self._tables, small_rows=have_small_rows(files))
        context.store.delete(tuple(file.path for file in self._staged))
        crash_point("state-staged")
        return passed

    def _task(self, layout: ElementLayout) -> AsyncElements:
        node = self.node
        return AsyncElements(
            uid=self.context.uid,
            name=node.function_name,
            function=node.function,
            settings=node.settings,
            elements=layout.elements,
            schema=layout.arrow(),
            shapes=layout.shapes,
            forgives=node.on_error is not None,
        )

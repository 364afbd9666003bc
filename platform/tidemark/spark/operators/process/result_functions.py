"""A window function after aggregates: called once per pane with its one row of results, whichever runtime computes these.

The function may have keyed state, so the results are passed to tasks key by key, with the state, and each key's panes in the order of
their windows. The tasks return the function's rows and its new state.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from pyspark.sql import Observation
from pyspark.sql import functions as F
from pyspark.sql import types as T

from tidemark.graph.operators.state_names import FUNCTION_PART
from tidemark.graph.operators.window.node import WindowFunction, WindowNode
from tidemark.semantics.watermarks.operator_clock import OperatorClock
from tidemark.spark.columns.expressions import TIME, quoted
from tidemark.spark.columns.replaced_sessions import bounds_of_replaced
from tidemark.spark.columns.schemas import no_rows, nullable
from tidemark.spark.columns.state_files import read_files, write_folder
from tidemark.spark.operators.base.contract import Observed, OperatorContext, PortInput, rows_of, run_in_order
from tidemark.spark.operators.base.partials import Partials
from tidemark.spark.operators.base.tables import STATE_COMPRESSION, StateTables
from tidemark.spark.operators.base.windows import ElementCounts, Panes, WindowEpoch, WindowRuntime
from tidemark.spark.operators.keyed.columns import NEW, ORDER, OUTPUT, SORT, TAG, VERSION
from tidemark.spark.operators.keyed.input import TaskInput
from tidemark.spark.operators.keyed.key_state import ErrorContext
from tidemark.spark.operators.keyed.key_table import Counters, KeyTable
from tidemark.spark.operators.keyed.layout import Layout
from tidemark.spark.operators.keyed.task import KeyTask
from tidemark.spark.operators.keyed.task_run import TaskOutput, have_small_rows, run_task
from tidemark.spark.operators.process.layout import layout_of_results
from tidemark.spark.operators.process.pane_columns import FROM, INDEX, PANE_NUMBER, REPLACES, RESULT_NUMBER, RESULT_TIME, TIMING, TO
from tidemark.spark.operators.process.pane_counts import pane_counts, panes_of
from tidemark.spark.operators.process.results import processed
from tidemark.spark.operators.process.results_task import ResultsFunction
from tidemark.spark.operators.session.session_merging import OUT_KIND
from tidemark.state.log.records import OperatorState

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_PREFIX = "function_"


class ResultFunctionRuntime(WindowRuntime):
    """One operator.

    Args:
        node: its declaration, with aggregates and a function.
        inner: the runtime of the same operator without the function.
    """

    def __init__(self, node: WindowNode, inner: WindowRuntime) -> None:
        super().__init__(node)
        if node.function is None:
            raise TypeError("no function")
        self.function: WindowFunction = node.function
        self.inner = inner
        self.partials = Partials(node)

    @property
    def can_fuse_counts(self) -> bool:
        """As the inner runtime."""
        return self.inner.can_fuse_counts

    def begin(self, context: OperatorContext) -> ResultFunctionEpoch:
        """Return the operator at work on an epoch."""
        return ResultFunctionEpoch(self, context)

    def next_timer(self, state: OperatorState) -> int | None:
        """As the inner runtime: a function's state of expired windows can wait for the next epoch."""
        return self.inner.next_timer(_without_function(state))

    def next_processing_time(self, state: OperatorState) -> int | None:
        """As the inner runtime."""
        return self.inner.next_processing_time(_without_function(state))


class ResultFunctionEpoch(WindowEpoch):
    """Aggregates and a function on their results, in one epoch."""

    runtime: ResultFunctionRuntime

    def __init__(self, runtime: ResultFunctionRuntime, context: OperatorContext) -> None:
        super().__init__(runtime, context)
        self._inner = runtime.inner.begin(dataclasses.replace(context, before=_without_function(context.before)))
        mine = [file for file in context.before.files if file.part == FUNCTION_PART]
        self._tables = StateTables(
            dataclasses.replace(context, before=dataclasses.replace(context.before, files=tuple(mine))), runtime.node.place
        )
        self._before = Counters.of(context.before.counters, _PREFIX)
        self._counters = dataclasses.replace(self._before, clock=context.processing_time)
        self._kept = KeyTable(self._tables, FUNCTION_PART, self._before)
        self._layout: Layout | None = None
        self._passed: TaskOutput | None = None
        self._staged: tuple[str, ...] = ()
        self._inner_fired = Panes()

    @property
    def oldest_open_window(self) -> int | None:
        """As the inner runtime."""
        return self._inner.oldest_open_window

    def process_elements(self, elements: PortInput) -> ElementCounts | None:
        """Take an epoch's input into state."""
        self.counts = self._inner.process_elements(elements)
        return self.counts

    def late_rows(self, rows: DataFrame) -> DataFrame:
        """Return the late rows."""
        return self._inner.late_rows(rows)

    def emit(self, watermark: int, observation: Observation) -> DataFrame | None:
        """Call the function for each pane; return its rows, None where no pane fired."""
        emitted = self._inner.emit(watermark, observation)
        results = None if emitted is None else rows_of(emitted, observation)
        self.watermark, self.counts = self._inner.watermark, self._inner.counts
        clock = OperatorClock(
            self.node.assigner.domain, self.context.epoch, self.context.before.watermark, watermark, self.context.processing_time
        )
        if results is None and not self._before.reached(clock):
            return None
        layout = self._layout = self._layout_of(results)
        new = None if results is None else self._as_input(results, layout)
        feed = TaskInput(layout, keys=self._kept, context=self.context, clock=clock)
        fed, others = feed.rows(new if new is None or feed.takes_all() else self._stage(new))
        passed = self._passed = run_task(
            fed,
            self._task(layout, clock),
            layout.output,
            keys=list(layout.keys.values()),
            context=self.context,
            tables=self._tables,
            counts=pane_counts(merging=self.node.assigner.merging),
            small_rows=have_small_rows(self._tables.files(FUNCTION_PART)),
        )
        self._tables.add(passed.files.get(VERSION, ()), FUNCTION_PART)
        self._counters = passed.counters(self._before, self.context.processing_time, others)
        if results is not None:
            # Also without panes: the inner operator gets from it what is due next.
            self._inner_fired = self._inner.emitted_panes(observation)
        self.context.store.delete(self._staged)
        return processed(self.node, passed.read(self.context, OUTPUT), layout.results) if self._panes_of(passed).panes else None

    def emitted_panes(self, observation: Observed) -> Panes:
        """Return the panes that the function was called for, and its number of rows."""
        del observation  # read together with the results
        if self._passed is None:
            return self._inner_fired
        mine = self._panes_of(self._passed)
        return dataclasses.replace(self._inner_fired, on_time=mine.on_time, late=mine.late, early=mine.early, result_rows=mine.result_rows)

    def _panes_of(self, passed: TaskOutput) -> Panes:
        return panes_of(passed, merging=self.node.assigner.merging)

    def _layout_of(self, results: DataFrame | None) -> Layout:
        """Return the columns; without results there are only keys, which the inner state has, too."""
        keys = {name: column for (name, _), column in zip(self.node.keys, self.runtime.partials.keys, strict=True)}
        if results is not None:
            return layout_of_results(self.node, keys, results.schema)
        schema = StateTables(self.context, self.node.place).schema
        if schema is None:
            raise ValueError("a deadline without state")
        shown = {column: name for name, column in keys.items()}
        return layout_of_results(
            self.node, keys, T.StructType([T.StructField(shown[f.name], f.dataType) for f in schema if f.name in shown])
        )

    def _as_input(self, results: DataFrame, layout: Layout) -> DataFrame:
        """Return results with their names in a task."""
        replaces = bounds_of_replaced("replaces") if self.node.assigner.merging else f"CAST(NULL AS {OUT_KIND})"
        rows = results.selectExpr(
            *(f"{quoted(name)} AS {quoted(column)}" for name, column in (*layout.keys.items(), *layout.elements.items())),
            f"0L AS {PANE_NUMBER}",
            f"unix_millis(window_start) AS {FROM}",
            f"unix_millis(window_end) AS {TO}",
            f"pane_timing AS {TIMING}",
            f"CAST(pane_index AS BIGINT) AS {INDEX}",
            f"{TIME} AS {RESULT_TIME}",
            f"{replaces} AS {REPLACES}",
            f"0L AS {RESULT_NUMBER}",
        )
        return rows.withColumns({TAG: F.lit(NEW), SORT: F.col(FROM), ORDER: F.expr(f"coalesce({TO}, {INDEX})")})

    def _stage(self, new: DataFrame) -> DataFrame:
        """Write results that are read twice, since they are counted when they are computed."""
        context = self.context
        written = write_folder(new, context.store, self._tables.new_folder(), compression=STATE_COMPRESSION)
        self._staged = tuple(file.path for file in written)
        files = [file.as_state_file(context.epoch) for file in written]
        schema = nullable(new.schema)
        return read_files(context.spark, context.store, files, schema) if files else no_rows(context.spark, schema)

    def _task(self, layout: Layout, clock: OperatorClock) -> KeyTask:
        declared, node = self.runtime.function, self.node
        name = getattr(declared.function, "__qualname__", type(declared.function).__qualname__)
        errors = ErrorContext(
            node.uid or "", f"window function {name}", "make it take every element and every window", "the window function"
        )
        function = ResultsFunction(declared, layout.elements, merging=node.assigner.merging, lateness=node.allowed_lateness_ms)
        return KeyTask(function, clock, layout.keys, layout.arrow(layout.output), layout.shapes, errors)

    def compact(self) -> Callable[[], None] | None:
        """Compact the inner operator's state, and the function's."""
        work = [self._inner.compact()]
        if self._kept.files:
            layout = self._layout or self._layout_of(None)
            work.append(self._kept.compact(layout.versions, list(layout.keys.values()), self._counters.keys))
        wanted = [each for each in work if each is not None]
        return partial(run_in_order, wanted) if wanted else None

    def snapshot(self) -> OperatorState:
        """Return the inner operator's state, and the function's."""
        inner, mine = self._inner.snapshot(), self._tables.snapshot(self.watermark, self._counters.named(_PREFIX))
        counters = {**inner.counters, **self._counters.named(_PREFIX)}
        return dataclasses.replace(inner, files=(*inner.files, *mine.files), counters=counters)


def _without_function(state: OperatorState) -> OperatorState:
    """Return the inner operator's state."""
    return dataclasses.replace(state, files=tuple(file for file in state.files if file.part != FUNCTION_PART))

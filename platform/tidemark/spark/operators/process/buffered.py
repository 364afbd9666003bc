"""Windows that keep their elements: process functions, triggers of any kind, evictors, count and global windows.

``semantics.window_process`` decides everything, key by key, in tasks. State is two tables: ``keys``, one row per key and epoch that changed
it, and the elements, written once. An epoch's input is staged before the sources' watermarks are known; then one pass reads the state of
keys that have input or are due, the input, and the stored elements of keys that may fire, and writes panes, late rows and new state
separately. Where there are aggregates, they are native ones over the elements of each pane.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from pyspark.sql import Observation
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from tidemark.crashpoints import crash_point
from tidemark.graph.operators.window.node import WindowNode
from tidemark.graph.operators.window.state_columns import looks_at_rows
from tidemark.semantics.process.window_process import WindowProcess
from tidemark.semantics.watermarks.operator_clock import OperatorClock
from tidemark.semantics.watermarks.shortfalls import least_kept
from tidemark.semantics.watermarks.watermarks import MAX_WATERMARK, MIN_WATERMARK, clamp_watermark
from tidemark.semantics.windows.assigners import DynamicSession
from tidemark.spark.columns.expressions import START, TIME, quoted
from tidemark.spark.columns.state_files import write_folder
from tidemark.spark.operators.aligned.pre_aggregation import EXPIRED
from tidemark.spark.operators.base.contract import Observed, OperatorContext, PortInput, run_in_order
from tidemark.spark.operators.base.partials import Partials
from tidemark.spark.operators.base.tables import MAIN, STATE_COMPRESSION, StateTables, is_current
from tidemark.spark.operators.base.windows import ElementCounts, Panes, WindowEpoch, WindowRuntime
from tidemark.spark.operators.keyed.columns import EPOCH, LATE, OUTPUT, SORT, STORED, TAG, VERSION
from tidemark.spark.operators.keyed.input import FEW_ROWS, TaskInput
from tidemark.spark.operators.keyed.key_state import ErrorContext
from tidemark.spark.operators.keyed.key_table import Counters, KeyTable, rows_of_keys, union_of
from tidemark.spark.operators.keyed.layout import Layout
from tidemark.spark.operators.keyed.task import KeyFunction, KeyTask
from tidemark.spark.operators.keyed.task_run import TaskOutput, have_small_rows, run_task, sorted_by_key
from tidemark.spark.operators.process.compaction_task import HeldElements
from tidemark.spark.operators.process.elements_task import ElementsFunction, ShownElements
from tidemark.spark.operators.process.layout import layout_of_rows, layout_of_state
from tidemark.spark.operators.process.pane_columns import GAP
from tidemark.spark.operators.process.pane_counts import element_counts, late_counts, pane_counts, panes_of
from tidemark.spark.operators.process.results import aggregated, processed
from tidemark.spark.operators.process.stored_elements import StoredElements
from tidemark.spark.operators.process.trigger_rules import expires_by_time, fires_when_due, longest_window, trigger_in_effect
from tidemark.spark.operators.session.session_input import END, SessionInput
from tidemark.spark.prepared.runtime_literals import runtime_literals
from tidemark.state.gc.compaction import plan_compaction
from tidemark.state.log.parquet_files import ParquetSummary
from tidemark.state.log.records import OperatorState, StateFile

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

KEYS = "keys"
_LATENESS = "lateness"


class BufferedRuntime(WindowRuntime):
    """One operator.

    Args:
        node: its declaration, without a function after aggregates.
    """

    def __init__(self, node: WindowNode) -> None:
        super().__init__(node)
        self.partials = Partials(node)
        self.keys = {name: column for (name, _), column in zip(node.keys, self.partials.keys, strict=True)}
        self.fires_when_due = fires_when_due(node)
        self.has_gap = isinstance(node.assigner, DynamicSession)
        self.process = WindowProcess(
            node.assigner, trigger=trigger_in_effect(node), evictor=node.evictor, allowed_lateness_ms=node.allowed_lateness_ms
        )

    @property
    def errors(self) -> ErrorContext:
        """The context for errors of the user's code."""
        rules = [f"trigger {self.process.effective_trigger.describe()}"]
        if self.node.evictor is not None:
            rules.append(f"evictor {self.node.evictor.describe()}")
        return ErrorContext(self.node.uid or "", " or ".join(rules), "make it take every element and every window", "the window function")

    def task(self, layout: Layout, clock: OperatorClock, expired_until: int = MIN_WATERMARK) -> KeyTask:
        """Return the task of an epoch; ``expired_until`` is the last time of the last window that had expired before it."""
        node, process = self.node, dataclasses.replace(self.process, expired_until=expired_until)
        if node.function is not None:
            shown = ShownElements(node.function, layout.elements, layout.arrow(layout.output))
            process = dataclasses.replace(process, function=shown)
        function = ElementsFunction(
            process,
            elements=layout.elements,
            trigger_reads_rows=looks_at_rows(process.trigger),
            evictor_reads_rows=looks_at_rows(node.evictor),
            has_gap=self.has_gap,
            shows_late=node.late_to is not None,
        )
        return self._task_of(function, layout, clock)

    def compaction(self, layout: Layout, clock: OperatorClock) -> KeyTask:
        """Return the task that leaves out the elements that no window holds."""
        return self._task_of(HeldElements(self.process), layout, clock)

    def _task_of(self, function: KeyFunction, layout: Layout, clock: OperatorClock) -> KeyTask:
        return KeyTask(function, clock, layout.keys, layout.arrow(layout.output), layout.shapes, self.errors)

    def begin(self, context: OperatorContext) -> BufferedEpoch:
        """Return the operator at work on an epoch."""
        return BufferedEpoch(self, context)

    def next_timer(self, state: OperatorState) -> int | None:
        """Return the least watermark at which a key is due; the end of input does not count."""
        return Counters.of(state.counters).next_due

    def next_processing_time(self, state: OperatorState) -> int | None:
        """Return the least processing time at which a key is due."""
        return Counters.of(state.counters).next_timer


class BufferedEpoch(WindowEpoch):
    """Windows that keep their elements, in one epoch."""

    runtime: BufferedRuntime

    def __init__(self, runtime: BufferedRuntime, context: OperatorContext) -> None:
        super().__init__(runtime, context)
        self.tables = StateTables(context, runtime.node.place)
        self._before = Counters.of(context.before.counters)
        self._keys = KeyTable(self.tables, KEYS, self._before)
        self._counters = dataclasses.replace(self._before, clock=context.processing_time)
        self._took_input = False
        self._staged: tuple[ParquetSummary, ...] = ()
        self._layout: Layout | None = None
        self._passed: TaskOutput | None = None

    @property
    def oldest_open_window(self) -> int | None:
        """The start of the oldest window that has not expired; None for windows without bounds."""
        oldest = self._counters.oldest
        return None if oldest >= MAX_WATERMARK or not self._counters.keys else clamp_watermark(oldest)

    def process_elements(self, elements: PortInput) -> None:
        """Stage an epoch's input, so that it is read once; one Spark job."""
        rows = elements.rows
        timed = self._with_gap(rows)
        # Selected separately: the stream may have a column of that name.
        keys = dict(zip(self.runtime.partials.keys, self.runtime.partials.key_columns, strict=True))
        key_types = timed.select(*keys.values()).schema
        layout = layout_of_rows(self.node, self.runtime.keys, rows.schema, key_types, has_gap=self.runtime.has_gap)
        self.tables.adopt(layout.stored)
        given = {column: name for name, column in (*layout.elements.items(), *layout.late_only.items())}
        staged = timed.select(*(keys.get(name, F.col(quoted(given.get(name, name))).alias(name)) for name in layout.new.names))
        folder = self.tables.new_folder()
        self._staged = tuple(write_folder(staged, self.context.store, folder, compression=STATE_COMPRESSION, time_column=TIME))
        self._layout, self._took_input = layout, True
        crash_point("state-staged")

    def _with_gap(self, rows: DataFrame) -> DataFrame:
        if not self.runtime.has_gap:
            return rows
        found = SessionInput(self.node, self.runtime.partials).bounded(rows, self.context.processing_time)
        return found.withColumn(GAP, F.expr(f"{END} - {START}")).drop(START, END)

    def late_rows(self, rows: DataFrame) -> DataFrame:
        """Return the late rows that the pass wrote."""
        layout, passed = self._layout, self._passed
        if layout is None or passed is None or not passed.rows(LATE):
            return rows.where("false")
        columns = {**layout.elements, **layout.late_only}
        return passed.read(self.context, LATE).select(*(F.col(quoted(columns.get(name, name))).alias(name) for name in rows.columns))

    def emit(self, watermark: int, observation: Observation) -> DataFrame | None:  # noqa: ARG002 - the pass has its own
        """Process the keys that have input or are due; return the panes, None where there are none."""
        self.watermark = watermark
        if self._took_input:
            self.counts = ElementCounts(0, 0, 0, 0, ())
        clock, before, lateness = self._clock, self.context.before.watermark, self.node.allowed_lateness_ms
        if not self._staged and not self._before.reached(clock):
            return None
        layout = self._layout or self._layout_of_state()
        elements = StoredElements(self.node, self.tables, clock, before, self.runtime.process.element_order, self.runtime.fires_when_due)
        feed = TaskInput(layout, keys=self._keys, context=self.context, clock=clock)
        stored = elements.needed(layout, self._staged, reached=self._before.reached(clock))
        fed, others = feed.rows(feed.new(self._staged), stored)
        passed = run_task(
            fed,
            self.runtime.task(layout, clock, self._windows_expired_before),
            layout.output,
            keys=list(layout.keys.values()),
            context=self.context,
            tables=self.tables,
            counts=[*pane_counts(merging=self.node.assigner.merging), *late_counts(least_kept(before, lateness), self.node.assigner)],
            small_rows=have_small_rows([*self._staged, *self.tables.files(), *self.tables.files(KEYS)]),
        )
        self._layout, self._passed = layout, passed
        self.tables.add(passed.files.get(VERSION, ()), KEYS)
        self.tables.add(passed.files.get(STORED, ()), MAIN)
        self._counters = passed.counters(self._before, self.context.processing_time, others)
        self._forget_input()
        if self._took_input:
            self.counts = element_counts(passed, watermark=before, allowed_lateness_ms=lateness)
        return self._results(passed, layout)

    @property
    def _clock(self) -> OperatorClock:
        context = self.context
        return OperatorClock(
            self.node.assigner.domain, context.epoch, context.before.watermark, self.watermark, processing_time=context.processing_time
        )

    def _layout_of_state(self, *, older: bool = False) -> Layout:
        """Return the columns of the stored elements; with ``older`` also those that the stream no longer has."""
        if self.tables.schema is None:
            raise ValueError("a deadline without state")
        stored = StructType([field for field in self.tables.schema if older or is_current(field)])
        return layout_of_state(self.node, self.runtime.keys, stored, has_gap=self.runtime.has_gap)

    def _results(self, passed: TaskOutput, layout: Layout) -> DataFrame | None:
        if not self._panes_of(passed).panes:
            return None
        panes = passed.read(self.context, OUTPUT)
        return processed(self.node, panes, layout.results) if layout.results else aggregated(self.node, panes, layout)

    def emitted_panes(self, observation: Observed) -> Panes:  # noqa: ARG002
        """Return the counts of the pass; aggregates return one row per pane, a function any number."""
        found = Panes() if self._passed is None else self._panes_of(self._passed)
        return found if self.node.function is not None else dataclasses.replace(found, result_rows=None)

    def _panes_of(self, passed: TaskOutput) -> Panes:
        return panes_of(passed, merging=self.node.assigner.merging)

    def compact(self) -> Callable[[], None] | None:
        """Drop files without needed rows; return the work that merges others into larger ones, None where there is nothing to merge."""
        living = self._counters.keys
        work: list[Callable[[], None]] = []
        if not living or self.watermark >= MAX_WATERMARK:
            self.tables.drop(self.tables.files())
        plan = plan_compaction(self.tables.files(), expired_before=self._expired_before)
        self.tables.drop(plan.drop)
        if plan.merge:
            work.append(partial(self._merge, plan.merge))
        if self.tables.schema is not None:
            layout = self._layout or self._layout_of_state()
            work += filter(None, [self._keys.compact(layout.versions, list(layout.keys.values()), living)])
        return partial(run_in_order, work) if work else None

    @property
    def _lateness(self) -> int:
        """The greatest allowed lateness with which windows in state may have been kept."""
        return max(self.node.allowed_lateness_ms, self.context.before.counters.get(_LATENESS, 0))

    @property
    def _windows_expired_before(self) -> int:
        """The last time of the last window that had expired before this epoch; greater allowed lateness does not bring it back."""
        return self.context.before.counters.get(EXPIRED, MIN_WATERMARK)

    @property
    def _windows_expired(self) -> int:
        """The same after this epoch."""
        return max(
            self._windows_expired_before,
            self.watermark if self.watermark >= MAX_WATERMARK else self.watermark - self.node.allowed_lateness_ms,
        )

    @property
    def _expired_before(self) -> int:
        """The least time of elements that a window may still hold."""
        longest = longest_window(self.node.assigner)
        if longest is not None:
            return clamp_watermark(self.watermark - self._lateness - longest + 2)
        return self._counters.oldest if self.node.assigner.merging else MIN_WATERMARK

    def _merge(self, groups: Sequence[Sequence[StateFile]]) -> None:
        """Merge files of elements, without those that no window holds."""
        for group in groups:
            layout = self._layout_of_state(older=True)
            elements = self.tables.read(group, layout.stored).where(f"{START} >= {runtime_literals(self._expired_before)[0]}")
            if not expires_by_time(self.node):
                elements = self._held(elements, layout)
            self.tables.write(elements.coalesce(1), MAIN, newest=max(file.epoch for file in group))
            self.tables.drop(group)
            crash_point("compaction-staged")

    def held_elements(self) -> tuple[DataFrame, Layout] | None:
        """Return the stored elements that some window holds, for readers of state, and their columns; None if there never was one."""
        if self.tables.schema is None:
            return None
        layout = self._layout_of_state()
        stored = self.tables.read(self.tables.files(), layout.stored)
        return self._held(stored.where(f"{START} >= {runtime_literals(self._expired_before)[0]}"), layout), layout

    def _held(self, elements: DataFrame, layout: Layout) -> DataFrame:
        """Return the elements that some window holds, by the newest versions of their keys."""
        keys = list(layout.keys.values())
        versions = self._keys.read(layout.versions)
        if keys and self._keys.rows > FEW_ROWS:
            versions = rows_of_keys(versions, elements.select(*map(quoted, keys)), keys)
        fed = union_of(
            [
                versions.withColumn(TAG, F.lit(VERSION)).withColumn(SORT, F.expr(f"-{EPOCH}")),
                elements.withColumn(TAG, F.lit(STORED)).withColumn(SORT, F.col(START)),
            ]
        )
        kept = sorted_by_key(fed, keys).mapInArrow(self.runtime.compaction(layout, self._clock), layout.output)
        return kept.select(*map(quoted, layout.stored.names))

    def snapshot(self) -> OperatorState:
        """Return the operator's state after this epoch."""
        return self.tables.snapshot(self.watermark, {**self._counters.named(), _LATENESS: self._lateness, EXPIRED: self._windows_expired})

    def _forget_input(self) -> None:
        """Remove the staged input, which no record will name; files left by a crash are swept."""
        self.context.store.delete(file.path for file in self._staged)

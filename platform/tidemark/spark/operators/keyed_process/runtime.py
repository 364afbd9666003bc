"""Keyed process functions: one pass over the keys that have elements, or a timer that is due, calls the user's function in tasks.

State is one table, a row per key and epoch that changed it, with a column per state. An epoch's input is staged before the sources'
watermarks are known; the pass reads it with the newest state of its keys, and writes results, side outputs and new state separately.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from pyspark.sql import Observation
from pyspark.sql import functions as F
from pyspark.sql.types import StructField, StructType

from tidemark.crashpoints import crash_point
from tidemark.graph.operators.emitting import FAILED
from tidemark.graph.operators.keyed_process.node import BroadcastProcessNode, KeyedProcessNode
from tidemark.graph.operators.keyed_process.state_columns import value_column
from tidemark.semantics.watermarks.operator_clock import OperatorClock
from tidemark.spark.columns.few_rows import FEW_ROWS
from tidemark.spark.operators.base.contract import (
    InputCounts,
    Observed,
    OperatorContext,
    OperatorEpoch,
    OperatorRuntime,
    PortInput,
    Results,
)
from tidemark.spark.operators.base.tables import MAIN, StateTables
from tidemark.spark.operators.keyed.columns import EPOCH, OUTPUT, STATE, VERSION, names_of
from tidemark.spark.operators.keyed.input import NO_OTHER_KEYS
from tidemark.spark.operators.keyed.key_state import ErrorContext
from tidemark.spark.operators.keyed.key_table import Counters, KeyTable
from tidemark.spark.operators.keyed.layout import Layout
from tidemark.spark.operators.keyed.packed_input import PackedInput, Staged, times_of
from tidemark.spark.operators.keyed.packed_task import PackedKeyTask
from tidemark.spark.operators.keyed.python_values import python_values
from tidemark.spark.operators.keyed.task import KeyTask
from tidemark.spark.operators.keyed.task_run import TaskOutput, output_frame, written_output
from tidemark.spark.operators.keyed_process.broadcast import BroadcastMap, Entries
from tidemark.spark.operators.keyed_process.columns import (
    EMPTIED_KEYS,
    EXPIRED,
    EXPIRED_KEYS,
    FAILED_ROW,
    FAILED_TIMER,
    FIRED,
    INPUT,
    SECOND_ACCEPTED,
    SECOND_FAILED,
    TIMERS,
    side_tags,
)
from tidemark.spark.operators.keyed_process.layout import Elements, given_columns, keys_of_node, layout_of, state_types
from tidemark.spark.operators.keyed_process.rows import emitted_rows, failed_rows
from tidemark.spark.operators.keyed_process.staging import ElementStaging, StagedShape, adopt_versions
from tidemark.spark.operators.keyed_process.stored_tables import stored_keys, stored_timers
from tidemark.spark.operators.keyed_process.task import ProcessKeys
from tidemark.spark.prepared.prepared_plan import PassRows, WrittenRows
from tidemark.state.log.progress import OperatorProgress
from tidemark.state.log.records import OperatorState

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_COUNTS: Final = {
    "fired": FIRED,
    "expired": EXPIRED,
    "emptied_keys": EMPTIED_KEYS,
    "expired_keys": EXPIRED_KEYS,
    "timers": TIMERS,
    "second_accepted": SECOND_ACCEPTED,
    "second_failed": SECOND_FAILED,
}
TIMERS_SET: Final = "timers_set"
"""The counter of timers that wait."""


class KeyedProcessRuntime(OperatorRuntime):
    """A process function of a run; ``given`` are the columns of its first input, as far as they are known.

    Args:
        node: its declaration.
    """

    def __init__(self, node: KeyedProcessNode) -> None:
        super().__init__(node)
        self._declared = node
        self.keys = keys_of_node(node)
        self.shapes: dict[str, StagedShape] = {}
        self.broadcast = BroadcastMap(node, node.broadcast) if isinstance(node, BroadcastProcessNode) else None
        self.tags = side_tags(node)
        self.given = given_columns(node)
        self.bound = node.bound_ms

    @property
    def node(self) -> KeyedProcessNode:
        """The operator's declaration."""
        return self._declared

    def begin(self, context: OperatorContext) -> KeyedProcessEpoch:
        """Return the operator at work on an epoch."""
        return KeyedProcessEpoch(self, context)

    def next_timer(self, state: OperatorState) -> int | None:
        """Return the least watermark at which a timer fires, or a key expires."""
        return Counters.of(state.counters).next_due

    def next_processing_time(self, state: OperatorState) -> int | None:
        """Return the least processing time at which a timer fires, or a key expires."""
        return Counters.of(state.counters).next_timer


class KeyedProcessEpoch(OperatorEpoch):
    """A process function in one epoch."""

    runtime: KeyedProcessRuntime

    def __init__(self, runtime: KeyedProcessRuntime, context: OperatorContext) -> None:
        super().__init__(runtime, context)
        self._tables = StateTables(context, runtime.node.place)
        self._before = Counters.of(context.before.counters)
        self._keys = KeyTable(self._tables, MAIN, self._before)
        self._counters = dataclasses.replace(self._before, clock=context.processing_time)
        self._layout: Layout | None = None
        self._staged = Staged()
        self._shape = "no elements"
        self._elements: Elements = ()
        self._ports: tuple[str, ...] = ()
        self._broadcast_rows = 0
        self._had_turn = False
        self._passed: TaskOutput | None = None

    def process_batch(self, inputs: Mapping[str, PortInput]) -> None:
        """Stage an epoch's input, so that it is read once; one Spark job. The rows of a broadcast stream are applied to its map at once."""
        if self.runtime.broadcast is not None and "broadcast" in inputs:
            self._broadcast_rows = self.runtime.broadcast.write(inputs["broadcast"].rows, self._tables, self.context)
        staging = ElementStaging(self.runtime.node, self.runtime.shapes, self.context, self._tables, self._packing())
        given = staging.stage(inputs)
        if given is not None:
            layout = given.layout
            if layout.elements:
                self.runtime.given = StructType([StructField(name, layout.fields[at].dataType) for name, at in layout.elements.items()])
            self._elements, self._staged, self._layout, self._shape = given.elements, given.staged, layout, given.shape
        self._ports = tuple(inputs)
        crash_point("state-staged")

    def _layout_of_state(self) -> Layout:
        """Return the columns in an epoch without input."""
        if self._tables.schema is None:
            raise ValueError("a deadline without state")
        keys = StructType([self._tables.schema[name] for name in self.runtime.keys.values()])
        layout = layout_of(self.runtime.node, keys)
        adopt_versions(layout, self._tables)
        return layout

    @property
    def _clock(self) -> OperatorClock:
        context = self.context
        return OperatorClock("event", context.epoch, context.before.watermark, self.watermark, processing_time=context.processing_time)

    def emit(self, watermark: int, observation: Observed) -> Results | None:
        """Process the keys that have input or are due; return the function's rows, None where there are none."""
        del observation  # the pass has its own
        self.watermark, self._had_turn = watermark, True
        clock = self._clock
        if not self._staged.files and not self._keys.files:
            # Nothing is kept. A recorded deadline may be that of a key that was emptied, and at the end of time all of them are reached.
            self._counters = Counters(clock=self.context.processing_time)
            return None
        if not self._staged.files and not self._before.reached(clock):
            return None
        layout = self._layout or self._layout_of_state()
        passed, others = self._pass(layout, clock)
        self._layout, self._passed = layout, passed
        self._tables.add(passed.files.get(VERSION, ()), MAIN)
        self._counters = passed.counters(self._before, self.context.processing_time, others)
        self.context.store.delete(tuple(file.path for file in self._staged.files))
        self._staged = Staged()
        return self._results(passed, layout) if passed.rows(OUTPUT) else None

    def _pass(self, layout: Layout, clock: OperatorClock) -> tuple[TaskOutput, tuple[int, int, int]]:
        """Process the keys; return what the tasks wrote, and the least deadlines and the oldest time of keys that are not passed."""
        packing, staged, others = self._packing(), self._staged, NO_OTHER_KEYS

        def build(numbers: Sequence[int]) -> tuple[DataFrame, Sequence[Observation]]:
            nonlocal others
            fed, others = packing.rows(staged, layout.versions, clock, numbers)
            handed, counts = fed.mapInArrow(self._task(layout), layout.packed_output), Observation()
            numbers_of_keys = [f"sum({column}) AS {name}" for name, column in _COUNTS.items()]
            return output_frame(handed, counts, counts=numbers_of_keys, packed=layout.packed_tags), [counts]

        def write(rows: WrittenRows) -> TaskOutput:
            packed = {tag: layout.columns_of(tag) for tag in layout.packed_tags}
            return written_output(rows, layout.packed_output, context=self.context, tables=self._tables, packed=packed)

        times = times_of(clock)
        with packing.batch_limit(staged):
            # A map that the function reads is a part of its task.
            scans = packing.scans(staged) if self.runtime.broadcast is None else ()
            name = f"keys {self.context.uid} {packing.shape} {staged.parts} {len(scans)} {self._shape}"
            prepared = self.context.prepared.at_once(name) if staged.rows > FEW_ROWS else self.context.prepared[name]
            found = prepared.rows(scans, times, build, passed_on=True, session=self.context.spark) if scans else None
            if found is not None:
                return write(found), NO_OTHER_KEYS
            frame, (counts,) = build(times)
            return write(WrittenRows(frame, lambda: [counts.get])), others

    def _results(self, passed: TaskOutput, layout: Layout) -> Results:
        """Return the function's rows; few of them are read by the driver, or in one task by a plan that is kept."""

        def rows(_: Sequence[int], counts: Observation) -> DataFrame:
            found = emitted_rows(self.runtime.node, passed.read(self.context, OUTPUT), layout.results)
            return found.observe(counts, F.expr("count(1) AS emitted"))

        read = partial(passed.read_few, self.context, OUTPUT, layout.shapes[OUTPUT].results)
        return Results(rows, files=passed.few_files(self.context, OUTPUT), shape="results", read=read, several_tasks=True)

    def _packing(self) -> PackedInput:
        return PackedInput(self.context, list(self.runtime.keys.values()), self._keys)

    def _task(self, layout: Layout) -> PackedKeyTask:
        """Return the task, the same for all epochs with the layout."""
        node, runtime = self.runtime.node, self.runtime
        function = ProcessKeys(
            job=self.context.job,
            uid=node.uid or "",
            name=node.function_name,
            function=node.function,
            fields=node.fields,
            states=dict(node.states),
            types=state_types(node),
            stored=names_of(layout.version_fields),
            elements=self._elements,
            methods=node.methods,
            by_batch=node.by_batch,
            tags={tag.name: runtime.tags[counter] for counter, tag in node.emitted_tags.items()},
            bound=runtime.bound,
            forgives=node.on_error is not None,
            broadcast=self._broadcast,
        )
        errors = ErrorContext(node.uid or "", node.function_name, "correct the function", node.function_name)
        task = partial(KeyTask, function, keys=layout.keys, schema=layout.arrow(layout.output), shapes=layout.shapes, errors=errors)
        key_types = layout.arrow(StructType([layout.fields[column] for column in layout.keys.values()]))
        # Their position stays with elements that fail.
        return PackedKeyTask(task, key_types, layout.arrow(layout.packed_output), within=(INPUT,), with_position=node.on_error is not None)

    @property
    def _broadcast(self) -> dict[str, Entries]:
        node, held = self.runtime.node, self.runtime.broadcast
        if held is None or not isinstance(node, BroadcastProcessNode):
            return {}
        return {node.broadcast.name: held.entries(self._tables, self.context)}

    @property
    def input_counts(self) -> Mapping[str, InputCounts] | None:
        """The numbers of elements that were processed, and that failed."""
        if not self._ports or not self._had_turn:
            return None
        node, passed = self.runtime.node, self._passed
        found = {"broadcast": InputCounts(self._broadcast_rows, {})} if isinstance(node, BroadcastProcessNode) else {}
        total = [0 if passed is None else passed.count(name) for name in ("accepted", "late")]
        second = [0 if passed is None else passed.count(name) for name in ("second_accepted", "second_failed")]
        first = [one - other for one, other in zip(total, second, strict=True)]
        for port, (accepted, failed) in zip(node.element_ports, (first, second), strict=False):
            found[port] = InputCounts(accepted, {FAILED: failed} if node.on_error is not None else {})
        return {port: counts for port, counts in found.items() if port in self._ports}

    @property
    def side_counts(self) -> Mapping[str, int] | None:
        """The numbers of rows that were emitted to side outputs, and of calls that failed."""
        if not self._had_turn:
            return None
        if self._passed is None:
            return {}
        found = {counter: self._passed.rows(tag) for counter, tag in self.runtime.tags.items()}
        return {**found, FAILED: self._passed.rows(FAILED_ROW) + self._passed.rows(FAILED_TIMER)}

    def side_rows(self, counter: str, inputs: Mapping[str, DataFrame]) -> DataFrame:
        """Return the rows that were emitted to a side output, or the elements that failed."""
        del inputs
        passed, layout = self._passed, self._layout
        if passed is None or layout is None:
            raise ValueError(f"no rows of {counter}")
        if counter == FAILED:
            elements, timers = passed.read(self.context, FAILED_ROW), passed.read(self.context, FAILED_TIMER)
            return failed_rows(elements, timers, layout, self.runtime.given)
        tag = self.runtime.tags[counter]
        return emitted_rows(self.runtime.node, passed.read(self.context, tag), layout.shapes[tag].results, named=True)

    def read_side_rows(self, counter: str) -> PassRows | None:
        """Return few rows that were emitted to a side output; None where there are more, or elements that failed."""
        passed, layout = self._passed, self._layout
        if passed is None or layout is None or counter == FAILED:
            return None
        tag = self.runtime.tags[counter]
        return passed.read_few(self.context, tag, layout.shapes[tag].results)

    def emitted(self, observation: Observed) -> int:
        """Return the number of the function's rows."""
        del observation
        return 0 if self._passed is None else self._passed.rows(OUTPUT)

    def compact(self) -> Callable[[], None] | None:
        """Drop files without keys; return the work that merges others into larger ones, None where there is nothing to merge."""
        if self._tables.schema is None:
            return None
        layout = self._layout or self._layout_of_state()
        return self._keys.compact(layout.versions, list(layout.keys.values()), self._counters.keys)

    def stored_tables(self) -> Mapping[str, DataFrame]:
        """Return ``keys``, a row per key with its states, ``timers``, a row per timer, and ``broadcast``, a row per entry of a map."""
        node, held = self.runtime.node, self.runtime.broadcast
        names = {value_column(name): name for name, _ in node.states}
        rows = None if self._tables.schema is None else self._keys.read(self._layout_of_state().versions)
        found = {"keys": stored_keys(rows, node, names, self.context), "timers": stored_timers(rows, node, self.context)}
        return found if held is None else {**found, "broadcast": held.stored_entries(self._tables, self.context)}

    def stored_version(self, condition: Callable[[StructType], Column]) -> tuple[object, ...] | None:
        """Return the columns of a key's state, as ``read_record`` takes them; None for a key that keeps nothing.

        Args:
            condition: given the columns of keys, returns what holds for the key.
        """
        if self._tables.schema is None:
            return None
        layout = self._layout_of_state()
        keys = StructType([layout.fields[stored] for stored in layout.keys.values()])
        rows = self._keys.read(layout.versions).where(condition(keys))
        found = rows.orderBy(F.col(EPOCH).desc()).limit(1).toArrow().combine_chunks()
        if not found.num_rows or found.column(STATE)[0].as_py() is None:
            return None
        return tuple(python_values(found.column(name).chunk(0))[0] for name in names_of(layout.version_fields))

    def broadcast_entries(self) -> dict[str, Entries]:
        """Return the map that the function reads, by its name; none where there is no broadcast stream."""
        return self._broadcast

    @property
    def _timers_set(self) -> int:
        passed = 0 if self._passed is None else self._passed.count("timers")
        return self.context.before.counters.get(TIMERS_SET, 0) + passed

    def progress(self, common: OperatorProgress) -> OperatorProgress:
        """Return the operator's progress, with the numbers of keys and timers."""
        passed = self._passed
        numbers = {} if passed is None else {name: passed.count(name) for name in ("fired", "expired", "emptied_keys", "expired_keys")}
        return dataclasses.replace(
            common,
            keys=self._counters.keys,
            timers=self._timers_set,
            timers_fired=numbers.get("fired", 0),
            state_expired=numbers.get("expired", 0),
            keys_emptied=numbers.get("emptied_keys", 0),
            keys_expired=numbers.get("expired_keys", 0),
        )

    def snapshot(self) -> OperatorState:
        """Return the operator's state after this epoch."""
        return self._tables.snapshot(self.watermark, {**self._counters.named(), TIMERS_SET: self._timers_set})

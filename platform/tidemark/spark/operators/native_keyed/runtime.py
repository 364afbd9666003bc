"""Kinds that keep one row of each key: one pass of native expressions over the epoch's elements and the stored rows of their keys.

The pass is written once: rows with results, and last rows of keys with their next state. From these files come the results, and the
rows of the table of keys. Where state has a lifetime of event time, it waits for the watermark, and the input is staged before.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import Observation
from pyspark.sql import functions as F
from pyspark.sql import types as T

from tidemark.crashpoints import crash_point
from tidemark.graph.model.nodes import StatefulNode
from tidemark.semantics.watermarks.operator_clock import OperatorClock
from tidemark.semantics.watermarks.watermarks import MAX_WATERMARK
from tidemark.spark.changed_settings import changed_settings
from tidemark.spark.columns.expressions import START, TIME, quoted
from tidemark.spark.columns.few_rows import FEW_ROWS, in_one_task
from tidemark.spark.columns.schemas import no_rows, nullable
from tidemark.spark.columns.state_files import overlapping, read_files, write_folder
from tidemark.spark.operators.base.contract import (
    InputCounts,
    Observed,
    OperatorContext,
    OperatorEpoch,
    OperatorRuntime,
    PortInput,
    Results,
)
from tidemark.spark.operators.base.tables import MAIN, STATE_COMPRESSION, StateTables
from tidemark.spark.operators.keyed.key_table import Counters, KeyTable, rows_of_keys
from tidemark.spark.operators.native_keyed.columns import ENGINE_FIELDS
from tidemark.spark.operators.native_keyed.passes import DEADLINE, KeyedPass
from tidemark.spark.operators.native_keyed.program import KeyedProgram
from tidemark.spark.operators.native_keyed.times import PassTimes
from tidemark.spark.operators.native_keyed.written_rows import WrittenRows
from tidemark.state.log.parquet_files import ParquetSummary
from tidemark.state.log.progress import OperatorProgress
from tidemark.state.log.records import OperatorState

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MANY_ROWS: Final = 200_000
"""Up to so many stored rows, passing all of them costs less than looking up those of the epoch's keys."""


_METHOD_LIMIT: Final = "spark.sql.codegen.hugeMethodLimit"
_COMPILABLE_BYTES: Final = 8_000


@contextmanager
def _compilable_methods(spark: SparkSession) -> Iterator[None]:
    """Have Spark not run a stage as one method that Java never compiles since it has more bytes, as a fold of many fields has.

    Spark then generates code for each step of the stage, in smaller methods.
    """
    with changed_settings(spark, {_METHOD_LIMIT: str(_COMPILABLE_BYTES)}):
        yield


class NativeKeyedRuntime(OperatorRuntime):
    """An operator of a run.

    Args:
        node: its declaration.
        program: makes what it computes, once for each epoch.
        values: names and SQL of the values of state in tables, over its columns.
    """

    def __init__(self, node: StatefulNode, program: Callable[[], KeyedProgram], values: Mapping[str, str]) -> None:
        super().__init__(node)
        self.program = program
        self.values = values
        self.bound = node.bound_ms

    def begin(self, context: OperatorContext) -> NativeKeyedEpoch:
        """Return the operator at work on an epoch."""
        return NativeKeyedEpoch(self, context)

    def next_timer(self, state: OperatorState) -> int | None:
        """Return the least watermark at which state expires."""
        return Counters.of(state.counters).next_due

    def next_processing_time(self, state: OperatorState) -> int | None:
        """Return the least processing time at which state expires."""
        return Counters.of(state.counters).next_timer


class NativeKeyedEpoch(OperatorEpoch):
    """An operator in one epoch."""

    runtime: NativeKeyedRuntime

    def __init__(self, runtime: NativeKeyedRuntime, context: OperatorContext) -> None:
        super().__init__(runtime, context)
        self._program = runtime.program()
        self._tables = StateTables(context, runtime.node.place)
        self._before = Counters.of(context.before.counters)
        self._keys = KeyTable(self._tables, MAIN, self._before, deadline=DEADLINE)
        self._counters = dataclasses.replace(self._before, clock=context.processing_time)
        self._staged: list[ParquetSummary] = []
        self._staged_schema = T.StructType()
        self._written: WrittenRows | None = None
        self._to_delete: list[str] = []
        self._counts: Mapping[str, Any] = {}
        self._ports: tuple[str, ...] = ()

    @property
    def _waits(self) -> bool:
        """Whether the pass needs the watermark."""
        return self._program.ttl is not None and self._program.ttl.domain == "event"

    def process_batch(self, inputs: Mapping[str, PortInput]) -> None:
        """Process an epoch's elements; stage them before, where the pass waits for the watermark or elements are read twice."""
        (given,) = inputs.values()
        self._ports = tuple(inputs)
        self._tables.require_types(self._program.state_schema(given.rows))
        if self._waits or self._keys.rows > MANY_ROWS:
            self._stage(given.rows)
        if not self._waits:
            rows = self._read_staged() if self._staged else given.rows
            self._run(rows, self.context.before.watermark, few=bool(given.files) or self._staged_few)
        crash_point("state-staged")

    def _stage(self, rows: DataFrame) -> None:
        context, folder = self.context, self._tables.new_folder()
        self._staged_schema = nullable(rows.schema)
        self._staged = write_folder(rows, context.store, folder, compression=STATE_COMPRESSION, time_column=TIME)
        self._to_delete += [file.path for file in self._staged]

    def _read_staged(self) -> DataFrame:
        files = [file.as_state_file(self.context.epoch) for file in self._staged]
        rows = read_files(self.context.spark, self.context.store, files, self._staged_schema)
        return in_one_task(rows) if self._staged_few else rows

    @property
    def _staged_few(self) -> bool:
        """Whether there are staged elements, and few."""
        return self.context.native and 0 < sum(file.rows for file in self._staged) <= FEW_ROWS

    def _run(self, rows: DataFrame | None, watermark: int, *, few: bool = False) -> None:
        """Run the pass over elements, if there are any, and keys whose deadlines are reached; two Spark jobs."""
        context, program = self.context, self._program
        times = PassTimes(program.ttl, context.before.watermark, watermark, self.runtime.bound, context.processing_time)
        frames = KeyedPass(program, times)
        schema = program.state_schema(rows) if rows is not None else self._stored_schema
        self._tables.adopt(T.StructType([*schema, *ENGINE_FIELDS, T.StructField(START, T.LongType())]))
        elements = None if rows is None else program.elements(rows, times)
        versions, others = self._versions(elements, times)
        stored = None if versions is None else frames.stored(versions)
        if elements is not None:
            finished = frames.walked(elements, stored, in_one=few and self._keys.rows <= FEW_ROWS)
        elif stored is not None:
            finished = frames.expired(stored)
        else:
            return
        self._write(frames, finished, others)

    def _write(self, frames: KeyedPass, finished: DataFrame, others: tuple[int, int]) -> None:
        context, observation = self.context, Observation()
        made = frames.observed(finished, observation)
        with _compilable_methods(context.spark):
            files = write_folder(made, context.store, self._tables.new_folder(), compression=STATE_COMPRESSION)
        self._to_delete += [file.path for file in files]
        self._counts = counts = observation.get
        if files:
            listed = tuple(file.as_state_file(context.epoch) for file in files)
            self._written = WrittenRows(context, frames, listed, nullable(made.schema))
            if counts["changed"]:
                self._written.write_state(self._tables)
        due, timer = (min(_or_never(counts[name]), other) for name, other in zip(("due", "timer"), others, strict=True))
        keys = self._before.keys + counts["opened"]
        self._counters = dataclasses.replace(self._counters, keys=keys, due=due, timer=timer)

    def _versions(self, elements: DataFrame | None, times: PassTimes) -> tuple[DataFrame | None, tuple[int, int]]:
        """Return the stored rows that the pass needs, and the least deadlines of keys that it does not see."""
        schema, names = self._versions_schema, self._program.stored_keys
        if not self._keys.files:
            return None, (MAX_WATERMARK, MAX_WATERMARK)
        if self._keys.rows <= max(MANY_ROWS, sum(file.rows for file in self._staged)):
            return self._keys.read(schema), (MAX_WATERMARK, MAX_WATERMARK)
        wanted, others = [], (self._before.due, self._before.timer)
        if elements is not None:
            keys = zip(self._program.key_names, names, strict=True)
            wanted.append(elements.select(*(F.col(key).alias(name) for key, name in keys)))
        clock = self._clock(times)
        if self._before.reached(clock):
            wanted.append(self._due(schema, times, clock).select(*map(quoted, names)))
            due, timer, _ = self._keys.next_deadlines(self._keys.read(schema), clock)
            others = due, timer
        if not wanted:
            return None, others
        asked = wanted[0] if len(wanted) == 1 else wanted[0].union(wanted[1])
        return rows_of_keys(self._keys.read(schema), asked.distinct(), names), others

    def _due(self, schema: T.StructType, times: PassTimes, clock: OperatorClock) -> DataFrame:
        """Return the rows whose deadlines were reached since the epoch before, of files that may have such rows."""
        by_watermark = overlapping(self._keys.files, times.before, clock.watermark)
        by_clock = overlapping(self._keys.files, self._before.clock, clock.timers_due_until)
        files = list(dict.fromkeys([*by_watermark, *by_clock]))
        return self._keys.due(self._tables.read(files, schema), times.before, clock)

    def _clock(self, times: PassTimes) -> OperatorClock:
        return OperatorClock("event", self.context.epoch, times.before, times.watermark, processing_time=times.processing_time)

    @property
    def _stored_schema(self) -> T.StructType:
        """The columns of keys and values as they are stored."""
        if self._tables.schema is None:
            raise ValueError("no state was written yet")
        known = self._tables.schema
        names = [*self._program.stored_keys, *self._program.kept]
        return nullable(T.StructType([known[name] for name in names]))

    @property
    def _versions_schema(self) -> T.StructType:
        return T.StructType([*self._stored_schema, *ENGINE_FIELDS])

    @property
    def input_counts(self) -> Mapping[str, InputCounts] | None:
        """The number of elements, all of which are accepted."""
        if not self._ports or not self._counts:
            return None
        return {port: InputCounts(self._counts["accepted"], {}) for port in self._ports}

    def side_rows(self, counter: str, inputs: Mapping[str, DataFrame]) -> DataFrame:
        """Never called: there are no side outputs."""
        raise ValueError(f"{counter} of {list(inputs)}")

    def emit(self, watermark: int, observation: Observation) -> Results | None:
        """Return the results; before, run the pass where it waited for the watermark, or where there was no input and keys are due."""
        del observation  # the pass has its own
        self.watermark = watermark
        times = PassTimes(self._program.ttl, self.context.before.watermark, watermark, 0, self.context.processing_time)
        if self._staged and not self._counts:
            self._run(self._read_staged(), watermark, few=self._staged_few)
        elif not self._counts and self._before.reached(self._clock(times)):
            self._run(None, watermark)
        if self._written is None or not self._counts["emitted"]:
            return None
        return self._written.results()

    def emitted(self, observation: Observed) -> int:
        """Return the number of results."""
        del observation
        return int(self._counts["emitted"]) if self._counts else 0

    def compact(self) -> Callable[[], None] | None:
        """Drop all files where no key is left; return the work that merges others, None where there is nothing to merge."""
        if self._tables.schema is None:
            return None
        return self._keys.compact(self._versions_schema, self._program.stored_keys, self._counters.keys)

    def stored_tables(self) -> Mapping[str, DataFrame]:
        """Return ``keys``: a row per key with the values of its state."""
        names = {name: stored for (name, _), stored in zip(self._program.keys, self._program.stored_keys, strict=True)}
        if self._tables.empty:
            fields = [T.StructField(name, T.StringType()) for name in (*names, *self.runtime.values)]
            return {"keys": no_rows(self.context.spark, T.StructType(fields))}
        times = PassTimes(self._program.ttl, self.context.before.watermark, self.context.before.watermark, 0, self.context.processing_time)
        stored = KeyedPass(self._program, times).live(self._keys.read(self._versions_schema))
        keys = [f"{quoted(column)} AS {quoted(name)}" for name, column in names.items()]
        values = [f"{value} AS {quoted(name)}" for name, value in self.runtime.values.items()]
        return {"keys": stored.selectExpr(*keys, *values)}

    def progress(self, common: OperatorProgress) -> OperatorProgress:
        """Return the operator's progress, with the number of keys, and what became of those that are gone."""
        counts = self._counts or {"expired": 0, "expired_keys": 0, "emptied_keys": 0}
        return dataclasses.replace(
            common,
            keys=self._counters.keys,
            state_expired=counts["expired"],
            keys_expired=counts["expired_keys"],
            keys_emptied=counts["emptied_keys"],
        )

    def snapshot(self) -> OperatorState:
        """Return the operator's state after this epoch."""
        self.context.store.delete(tuple(self._to_delete))
        self._to_delete = []
        return self._tables.snapshot(self.watermark, self._counters.named())


def _or_never(value: int | None) -> int:
    return MAX_WATERMARK if value is None else value

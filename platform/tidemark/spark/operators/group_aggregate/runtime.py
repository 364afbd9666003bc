"""Aggregates of groups: one pass merges what an epoch's rows add with the stored state of their groups, and writes both results.

The pass writes each group that input changes into the state, beside what it was before: the changes are read from these files, so that
there are two Spark jobs. Groups that may be large, and few rows, are staged with their rows of results before and after, from which the
changes and the next state come. Where values are counted or rows kept, the input is staged before, and each of these tables
takes two jobs more. What the input adds is staged where few of many groups change, and where the pass waits for the watermark.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import Observation
from pyspark.sql import functions as F
from pyspark.sql import types as T

from tidemark.crashpoints import crash_point
from tidemark.graph.operators.group_aggregate.node import GroupAggregateNode
from tidemark.graph.operators.group_aggregate.older_sums import require_present_sums
from tidemark.savepoints.model.stored_types import stored_columns
from tidemark.semantics.keyed_process.declarations import StateTtl
from tidemark.semantics.watermarks.watermarks import MAX_WATERMARK, MIN_WATERMARK
from tidemark.spark.columns.few_rows import FEW_ROWS, in_one_task
from tidemark.spark.columns.schemas import no_rows
from tidemark.spark.operators.base.contract import (
    InputCounts,
    Observed,
    OperatorContext,
    OperatorEpoch,
    OperatorRuntime,
    PortInput,
    Results,
)
from tidemark.spark.operators.base.staged_rows import StagedRows
from tidemark.spark.operators.base.tables import StateTables
from tidemark.spark.operators.changelog.contents import HASH, MANY_ROWS, lookup_hash
from tidemark.spark.operators.group_aggregate.columns import NUMBER
from tidemark.spark.operators.group_aggregate.layout import GroupLayout
from tidemark.spark.operators.group_aggregate.live_groups import expired_at, live_groups
from tidemark.spark.operators.group_aggregate.lookups import NUMBER_BEFORE, ROW_AFTER, ROW_BEFORE, CountedValues, KeptRows
from tidemark.spark.operators.group_aggregate.pass_counts import PassCounts
from tidemark.spark.operators.group_aggregate.passes import GroupPasses
from tidemark.spark.operators.group_aggregate.prepared_groups import PreparedGroups
from tidemark.spark.operators.group_aggregate.state import AFTER_INPUT, BEFORE_INPUT, WHOLE, GroupState, first_counter, written_dues
from tidemark.spark.operators.group_aggregate.write_once import WriteOncePass, WrittenGroups, changes_most
from tidemark.spark.operators.keyed.key_table import Counters
from tidemark.spark.prepared.prepared_plan import PassRows
from tidemark.state.log.progress import OperatorProgress
from tidemark.state.log.records import OperatorState, StateFile

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

FEW_OF: Final = 8
"""Where an epoch changes fewer than one of so many stored groups, it costs less to find out which these are than to read all."""

VALUES: Final = "values"
KEPT: Final = "rows"
"""Counters: the numbers of counted values and of kept rows."""


class GroupAggregateRuntime(OperatorRuntime):
    """An operator of a run.

    ``touched`` is how many groups the newest epoch of the run changed, None before one did.

    Args:
        node: its declaration.
    """

    def __init__(self, node: GroupAggregateNode) -> None:
        super().__init__(node)
        self._declared = node
        self.layout = GroupLayout(node)
        self._schemas: dict[str, T.StructType] = {}
        self._shapes: dict[str, T.StructType] = {}
        self.touched: int | None = None

    @property
    def node(self) -> GroupAggregateNode:
        """The operator's declaration."""
        return self._declared

    def schema(self, rows: DataFrame) -> T.StructType:
        """Return all columns of state that users' columns make, from the operator's input."""
        given = rows.schema.json()
        if given not in self._schemas:
            self._schemas[given] = self.layout.schema(rows)
        return self._schemas[given]

    def schema_of(self, given: PortInput) -> T.StructType:
        """Return the same; few rows of files of one shape have the same columns in each epoch."""
        if not given.files:
            return self.schema(given.rows)
        if given.shape not in self._shapes:
            self._shapes[given.shape] = self.schema(given.rows)
        return self._shapes[given.shape]

    def begin(self, context: OperatorContext) -> GroupAggregateEpoch:
        """Return the operator at work on an epoch."""
        return GroupAggregateEpoch(self, context)

    def next_timer(self, state: OperatorState) -> int | None:
        """Return the least watermark at which state expires."""
        return Counters.of(state.counters).next_due

    def next_processing_time(self, state: OperatorState) -> int | None:
        """Return the least processing time at which state expires."""
        return Counters.of(state.counters).next_timer


class GroupAggregateEpoch(OperatorEpoch):
    """An operator in one epoch."""

    runtime: GroupAggregateRuntime

    def __init__(self, runtime: GroupAggregateRuntime, context: OperatorContext) -> None:
        super().__init__(runtime, context)
        self._layout = runtime.layout
        self._tables = StateTables(context, runtime.node.place)
        counters = context.before.counters
        self._before = Counters.of(counters)
        self._counters = dataclasses.replace(self._before, clock=context.processing_time)
        self._first = counters.get(first_counter(runtime.node.ttl), MIN_WATERMARK)
        self._living = {name: counters.get(name, 0) for name in (VALUES, KEPT)}
        self._staged: list[StagedRows] = []
        self._passes: GroupPasses | None = None
        self._delta: DataFrame | None = None
        self._weighted: DataFrame | None = None
        self._once = False
        self._written: Sequence[StateFile] = ()
        self._whole: Mapping[str, int] = {}
        self._changed: int | None = None
        self._pairs: StagedRows | None = None
        self._counts: Mapping[str, Any] = {}
        self._expired = 0
        self._ports: tuple[str, ...] = ()

    @property
    def _waits(self) -> bool:
        """Whether the pass needs the watermark."""
        ttl = self.runtime.node.ttl
        return ttl is not None and ttl.domain == "event"

    def process_batch(self, inputs: Mapping[str, PortInput]) -> None:
        """Process an epoch's rows; stage them before, or what they add, where the pass waits or they are read more than once."""
        (given,), self._ports = inputs.values(), tuple(inputs)
        schema = self.runtime.schema_of(given)
        stored, made = (stored_columns(each and each.jsonValue()) for each in (self._tables.schema, schema))
        require_present_sums(self.runtime.node, stored, made, job=self.context.job)
        self._tables.require_types(schema)
        self._tables.adopt(schema)
        state = self._state(schema)
        few, ttl = bool(given.files), self.runtime.node.ttl
        self._passes = passes = GroupPasses(self._layout, schema, self.runtime.node.uid or "")
        self._once = not few and self._layout.writes_once(schema)
        if not self._layout.several and ttl is None and self._run_prepared(given, state, passes):
            crash_point("state-staged")
            return
        self._expire_by_clock()
        rows = given.rows
        if self._layout.several:
            staged = self._stage(rows)
            rows, few, self._changed = staged.rows, staged.few, staged.count
        if few and sum(file.rows for file in self.context.before.files) <= FEW_ROWS:
            rows = in_one_task(rows)
        if ttl is not None and self._layout.node.takes_back:
            rows = self._state(schema).with_known(rows)
        self._delta = delta = passes.delta(rows)
        if self._layout.several:
            self._weighted = passes.weighted(rows)
        elif self._waits or self._changes_few(state):
            staged = self._stage(delta.selectExpr("*", f"{lookup_hash(self._layout.keys)} AS {HASH}"))
            self._delta, self._changed = staged.rows, staged.count
        if not self._waits:
            self._run(self.context.processing_time)
        crash_point("state-staged")

    def _stage(self, rows: DataFrame | PassRows) -> StagedRows:
        staged = StagedRows(self.context, self._tables, rows)
        self._staged.append(staged)
        return staged

    def _state(self, schema: T.StructType | None = None) -> GroupState:
        known = schema or self._tables.schema
        if known is None:
            raise ValueError("no state was written yet")
        return GroupState(self.context, self._tables, self._layout, known, self._changed)

    def _changes_few(self, state: GroupState) -> bool:
        """Whether the epoch changes few of the stored groups, as far as the one before tells: then only these are read."""
        touched, stored = self.runtime.touched, state.groups.stored_rows
        return stored > MANY_ROWS and (touched is None or FEW_OF * touched < stored)

    def _run(self, clock: int) -> None:
        """Run the pass over what an epoch's rows add."""
        schema, passes, delta = self._tables.schema, self._passes, self._delta
        if schema is None or passes is None or delta is None:
            raise ValueError("no input")
        state, found, touched = self._state(), [], None
        if self._weighted is not None:
            touched = state.touched(self._weighted)
            if state.values is not None:
                found.append(self._count(state, CountedValues(self._layout, schema), self._weighted, touched))
            if state.kept is not None:
                found.append(self._keep(state, KeptRows(self._layout), self._weighted, touched))
        elif self._changed is not None and FEW_OF * self._changed < state.groups.stored_rows:
            touched = delta.select(HASH)
        if self._once:
            self._take_written(self._write_once(state, passes, all_read=touched is None).of_rows(delta, touched, clock), passes)
            return
        counts, observation = PassCounts(self._layout, passes.overflows()), Observation()
        groups = passes.with_results(passes.groups(delta, state.stored_groups(touched), found))
        self._pairs = self._stage(counts.observed(groups, observation))
        self._counts = observation.get
        counts.check_sums(self._counts, self.context.job)
        state.write_groups(self._pairs.rows, written_dues(self.runtime.node.ttl, clock))
        if self.runtime.node.ttl is not None and self._counts["emptied"]:
            self._state().forget(self._pairs.rows)
        self._count_keys()

    def _write_once(self, state: GroupState, passes: GroupPasses, *, all_read: bool) -> WriteOncePass:
        node, touched = self.runtime.node, self.runtime.touched
        again = all_read and changes_most(node, state, touched, self._counters.keys)
        return WriteOncePass(self.context, self._tables, state, passes, node.ttl, again)

    def _take_written(self, found: WrittenGroups, passes: GroupPasses) -> None:
        self._written, self._counts = found.files, found.counts
        PassCounts(self._layout, passes.overflows()).check_sums(self._counts, self.context.job)
        self._whole = {WHOLE: self.context.epoch} if found.whole else {}
        self._count_keys()

    def _count_keys(self) -> None:
        self._counters = dataclasses.replace(self._counters, keys=self._counters.keys + self._counts["opened"])
        self.runtime.touched = self._counts["touched"]

    def _run_prepared(self, given: PortInput, state: GroupState, passes: GroupPasses) -> bool:
        """Run the pass over few groups by the plan that was prepared for it; return whether it could be."""
        counts = PassCounts(self._layout, passes.overflows())
        prepared = PreparedGroups(self.context, self._tables, state, passes, counts)
        over = given if given.files else given.scanned
        if over is None or not (given.files or (self._once and not self._changes_few(state))):
            return False
        found = prepared.of_few(over) if given.files else prepared.of_many(over, self.runtime.touched)
        if found is None:
            return not given.files and self._run_written(over, state, passes)
        self._counts, *others = found.observed
        counts.check_sums(self._counts, self.context.job)
        over.take_counts(others)
        self._pairs = self._stage(found)
        state.write_few_groups(found.table)
        self._count_keys()
        return True

    def _run_written(self, over: PortInput, state: GroupState, passes: GroupPasses) -> bool:
        """Run the pass over many groups by the plan that was prepared for it; return whether it could be."""
        found = self._write_once(state, passes, all_read=True).of_scan(over)
        if found is not None:
            self._take_written(found, passes)
            over.take_counts(found.others)
        return found is not None

    def _count(self, state: GroupState, values: CountedValues, weighted: DataFrame, touched: DataFrame) -> DataFrame:
        """Write the values that the input changes; return what was found of their groups."""
        if state.values is None:
            raise ValueError("no aggregate counts values")
        observation = Observation()
        merged = values.merged(weighted, state.looked_up(state.values, touched))
        opened = f"coalesce(sum(CAST({NUMBER} <> 0 AS INT) - CAST({NUMBER_BEFORE} <> 0 AS INT)), 0) AS opened"
        staged = self._stage(merged.observe(observation, F.expr(opened)))
        self._living[VALUES] += observation.get["opened"]
        state.write_values(staged.rows)
        return values.found(staged.rows)

    def _keep(self, state: GroupState, kept: KeptRows, weighted: DataFrame, touched: DataFrame) -> DataFrame:
        """Write the rows that the input changes; return what was found of their groups."""
        if state.kept is None:
            raise ValueError("no aggregate keeps rows")
        observation = Observation()
        merged = kept.merged(weighted, state.looked_up(state.kept, touched))
        opened = f"coalesce(sum(CAST({ROW_AFTER} IS NOT NULL AS INT) - CAST({ROW_BEFORE} IS NOT NULL AS INT)), 0) AS opened"
        staged = self._stage(merged.observe(observation, F.expr(opened)))
        self._living[KEPT] += observation.get["opened"]
        state.write_kept(staged.rows)
        return kept.found(staged.rows)

    def _expire_by_clock(self) -> None:
        """Drop what a lifetime of processing time ended, before input is merged with it."""
        ttl, clock = self.runtime.node.ttl, self.context.processing_time
        if ttl is None or ttl.domain != "processing" or self._tables.schema is None:
            return
        due = self._before.timer
        if due <= clock and self._state().groups.files:
            due = self._expire(ttl, clock, BEFORE_INPUT)
        if self._ports or self._first == MIN_WATERMARK:
            due = min(due, clock + ttl.ms)
        self._first = clock if self._first == MIN_WATERMARK else self._first
        self._counters = dataclasses.replace(self._counters, timer=due)

    def _expire_by_watermark(self, watermark: int) -> None:
        """Drop what a lifetime of event time ended, once the watermark is known."""
        ttl = self.runtime.node.ttl
        if ttl is None or self._tables.schema is None or watermark == MIN_WATERMARK:
            return
        begins = self._first == MIN_WATERMARK
        self._first = watermark if begins else self._first
        due = self._before.due
        if self._ports or begins:
            due = min(due, min(watermark, MAX_WATERMARK - ttl.ms) + ttl.ms)
        if due <= watermark and self._state().groups.files:
            due = self._expire(ttl, watermark, AFTER_INPUT)
        self._counters = dataclasses.replace(self._counters, due=due)

    def _expire(self, ttl: StateTtl, clock: int, part: int) -> int:
        gone = self._state().expire(ttl, clock, self._first, part)
        self._expired += gone.groups
        self._counters = dataclasses.replace(self._counters, keys=self._counters.keys - gone.groups)
        return gone.next_due

    @property
    def input_counts(self) -> Mapping[str, InputCounts] | None:
        """The number of rows, all of which are accepted."""
        if not self._ports or not self._counts:
            return None
        return {port: InputCounts(self._counts["accepted"], {}) for port in self._ports}

    def side_rows(self, counter: str, inputs: Mapping[str, DataFrame]) -> DataFrame:
        """Never called: there are no side outputs."""
        raise ValueError(f"{counter} of {list(inputs)}")

    def emit(self, watermark: int, observation: Observation) -> DataFrame | Results | None:
        """Return the changes; before, run the pass where it waited for the watermark, and drop what expired."""
        del observation  # the results are given theirs
        self.watermark = watermark
        if self._waits and self._delta is not None:
            self._run(watermark)
        if self._waits:
            self._expire_by_watermark(watermark)
        elif not self._ports:
            self._expire_by_clock()
        if not self._ports or not self._counts["emitted"]:
            return None

        def changes(_: Sequence[int], observation: Observation) -> DataFrame:
            # Their number is known; but the results of a prepared pass have the observation.
            return self._changes().observe(observation, F.expr("count(1) AS rows"))

        if self._pairs is None:
            few, files = self._tables.are_few(self._written), self._tables.addresses(self._written)
            return Results(changes, files=files if few else (), many=() if few else files, shape="changes of state")
        return Results(changes, files=self._pairs.few_files, shape="changes")

    def _changes(self) -> DataFrame:
        """Return the changes of results of the groups that input changed."""
        if self._pairs is not None:
            return GroupPasses.changes(self._pairs.rows)
        if self._passes is None:
            raise ValueError("no input")
        return self._passes.changes_of(self._state().changed_groups(self._written))

    def emitted(self, observation: Observed) -> int:
        """Return the number of rows of changes."""
        del observation
        return int(self._counts["emitted"]) if self._counts else 0

    def compact(self) -> Callable[[], None] | None:
        """Drop the tables where nothing is left; return the work that merges files, None where there is nothing to merge."""
        if self._tables.schema is None:
            return None
        return self._state().compact((self._counters.keys, *self._living_rows()))

    def _living_rows(self) -> tuple[int, int]:
        # Of groups that expired it is not known how many rows they had: these count until a table is empty.
        return (self._living[VALUES], self._living[KEPT]) if self._counters.keys else (0, 0)

    def stored_tables(self) -> Mapping[str, DataFrame]:
        """Return ``groups``: keys and results."""
        node = self.runtime.node
        if self._tables.schema is None:
            fields = [T.StructField(name, T.StringType()) for name in (*(name for name, _ in node.keys), *dict(node.aggregates))]
            return {"groups": no_rows(self.context.spark, T.StructType(fields))}
        return {"groups": live_groups(self._layout, self._tables.schema, self._state(), expired_at(node.ttl, self.context, self._first))}

    def progress(self, common: OperatorProgress) -> OperatorProgress:
        """Return the operator's progress, with the number of groups, and what became of those that are gone."""
        emptied = self._counts.get("emptied", 0)
        return dataclasses.replace(
            common, keys=self._counters.keys, keys_expired=self._expired, state_expired=self._expired, keys_emptied=emptied
        )

    def snapshot(self) -> OperatorState:
        """Return the operator's state after this epoch."""
        for staged in self._staged:
            staged.delete()
        self._staged = []
        living = self._living if self._counters.keys else dict.fromkeys(self._living, 0)
        first = {} if self._first == MIN_WATERMARK else {first_counter(self.runtime.node.ttl): self._first}
        return self._tables.snapshot(self.watermark, {**self._counters.named(), **living, **first, **self._whole})

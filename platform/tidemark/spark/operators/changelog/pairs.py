"""Operators that make a changelog of rows: an epoch's rows and the stored ones of their keys give what was there, and what is there now.

The pairs are staged by one Spark job, with what changes in the state; from these files come the results, and by a second job the rows of
the state. Where the state is large, the input is staged first, since it is also read to find which stored rows are needed. Few rows of
files go through a plan that was prepared, and their rows of state are written from what it returned.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Observation
from pyspark.sql import functions as F
from pyspark.sql import types as T

from tidemark.crashpoints import crash_point
from tidemark.graph.model.nodes import StatefulNode
from tidemark.semantics.watermarks.watermarks import MIN_WATERMARK
from tidemark.spark.columns.changes import AFTER, BEFORE, as_changes
from tidemark.spark.columns.expressions import START, quoted
from tidemark.spark.columns.few_rows import FEW_ROWS
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
from tidemark.spark.operators.base.tables import MAIN, StateTables
from tidemark.spark.operators.changelog.contents import ENGINE_FIELDS, EPOCH, GONE, HASH, MANY_ROWS, Contents, lookup_hash
from tidemark.spark.operators.changelog.frames import ACCEPTED, HAD, KEPT, OTHERS, PairsFrames
from tidemark.spark.operators.changelog.lifetimes import EXPIRED, Lifetime, drop_expired, stored_columns, with_expired
from tidemark.spark.operators.changelog.written_once import WrittenOnce
from tidemark.spark.prepared.prepared_pass import Frame
from tidemark.spark.prepared.prepared_plan import PassRows
from tidemark.state.log.progress import OperatorProgress
from tidemark.state.log.records import OperatorState

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

FEW_OF: Final = 8
"""Where an epoch changes fewer than one of so many stored rows, it costs less to find out which these are than to read all."""

FINAL_ROWS: Final = 10_000
"""Rows that can change no more are dropped when so many rows were written since the last time, and half as many as are stored."""


class PairsRuntime(OperatorRuntime):
    """An operator of a run.

    Args:
        node: its declaration.
        frames: of its kind.
        other: the counter of rows that it does not accept, None where it accepts all.
        more: further counters of such rows, each with the column of ``pairs`` that has their number.
    """

    def __init__(self, node: StatefulNode, frames: PairsFrames, other: str | None = None, more: Mapping[str, str] | None = None) -> None:
        super().__init__(node)
        self.frames = frames
        self.other = other
        self.more = more or {}
        self._shapes: dict[str, T.StructType] = {}
        self.touched: int | None = None

    def columns_of(self, given: PortInput) -> T.StructType:
        """Return the columns of the state; few rows of files of one shape have the same in each epoch."""
        if not given.files:
            return self.frames.columns(given.rows)
        if given.shape not in self._shapes:
            self._shapes[given.shape] = self.frames.columns(given.rows)
        return self._shapes[given.shape]

    def begin(self, context: OperatorContext) -> PairsEpoch:
        """Return the operator at work on an epoch."""
        return PairsEpoch(self, context)

    def next_timer(self, state: OperatorState) -> None:
        """Return None: a row counts in the epoch that reads it, and expired state emits nothing."""
        del state


class PairsEpoch(OperatorEpoch):
    """An operator in one epoch."""

    runtime: PairsRuntime

    def __init__(self, runtime: PairsRuntime, context: OperatorContext) -> None:
        super().__init__(runtime, context)
        self._tables = StateTables(context, runtime.node.place)
        self._staged: list[StagedRows] = []
        self._pairs: StagedRows | None = None
        self._few_pairs: pa.Table | None = None
        self._once: WrittenOnce | None = None
        self._counts: Mapping[str, Any] = {}
        self._before = context.before.counters
        self._living = self._before.get("keys", 0)
        self._written = self._before.get("written", 0)
        self._lifetime = Lifetime(runtime.frames.ttl, context)
        self._expired = 0

    def _contents(self, columns: T.StructType) -> Contents:
        frames = self.runtime.frames
        return Contents(self._tables, MAIN, columns, frames.identity, frames.lookup)

    @property
    def _stored_columns(self) -> T.StructType:
        """The columns of the state as they are stored."""
        return stored_columns(self._tables, self.runtime.frames.ttl)

    def process_batch(self, inputs: Mapping[str, PortInput]) -> None:
        """Stage the pairs of the epoch's keys; one Spark job, and one more where the state is large."""
        (given,) = inputs.values()
        frames, context = self.runtime.frames, self.context
        columns = self.runtime.columns_of(given)
        self._tables.adopt(T.StructType([*columns, *ENGINE_FIELDS, T.StructField(START, T.LongType())]))
        contents, hashes, keys = self._contents(columns), None, None
        if self._run_prepared(given, contents):
            crash_point("state-staged")
            return
        rows = given.rows
        if self._changes_few(contents):
            input_rows = StagedRows(context, self._tables, rows)
            self._staged.append(input_rows)
            rows = input_rows.rows
            keys = input_rows.count
            hashes = frames.lookup_values(rows).select(F.expr(lookup_hash(frames.lookup)).alias(HASH))
        stored = self._with_expired(contents.current(hashes, keys=keys)) if contents.files else None
        few = context.native and bool(given.files) and contents.stored_rows <= FEW_ROWS
        made = frames.pairs(rows, stored, in_one=few)
        observation = Observation()
        counted = self._counted(made, observation)
        if not few and frames.writes_once(columns):
            self._once = WrittenOnce(contents, counted, self.context.epoch)
            self._tables.added = self._once.files
        else:
            self._stage(counted)
        self._note_counts(observation.get)
        crash_point("state-staged")

    def _changes_few(self, contents: Contents) -> bool:
        """Whether the epoch changes few of many stored rows, as far as the one before tells: then it costs less to look them up."""
        touched, stored = self.runtime.touched, contents.stored_rows
        return stored > MANY_ROWS and (touched is None or FEW_OF * touched < stored)

    def _run_prepared(self, given: PortInput, contents: Contents) -> bool:
        """Run the pass over few rows by the plan that was prepared for it; return whether it could be."""
        frames, files = self.runtime.frames, self._tables.few_files(contents.files)
        if not given.files or frames.ttl is not None or bool(files) != bool(contents.files):
            return False

        def pairs(numbers: Sequence[int]) -> Frame:
            counts = Observation()
            rows, observations = given.build(numbers)
            stored = self._with_expired(contents.current()) if files else None
            return self._counted(frames.pairs(rows, stored, in_one=True), counts), (counts, *observations)

        name = ("pairs", self.context.uid, given.shape, "stored" if files else "")
        prepared = self.context.prepared[" ".join(filter(None, name))]
        found = prepared.run([given.files, files] if files else [given.files], given.numbers, pairs)
        if found is None:
            return False
        counts, *others = found.observed
        given.take_counts(others)
        self._stage(found)
        self._few_pairs = found.table
        self._note_counts(counts)
        return True

    def _counted(self, made: DataFrame, observation: Observation) -> DataFrame:
        """Return the pairs that change something, with the hashes of rows of state; the observation will have the numbers of rows."""
        more = self.runtime.more.values()
        sums = (*_COUNTS, *(f"coalesce(sum({column}), 0) AS {column}" for column in more))
        counted = made.observe(observation, *map(F.expr, sums)).where(f"{KEPT} IS NOT NULL OR {BEFORE} IS NOT NULL OR {AFTER} IS NOT NULL")
        hashed = counted.withColumn(HASH, F.expr(lookup_hash(self.runtime.frames.lookup, f"{KEPT}.")))
        return hashed.drop(ACCEPTED, OTHERS, HAD, EXPIRED, *more)

    def _stage(self, pairs: DataFrame | PassRows) -> None:
        self._pairs = StagedRows(self.context, self._tables, pairs)
        self._staged.append(self._pairs)

    def _note_counts(self, counts: Mapping[str, Any]) -> None:
        self._counts = counts
        self._living += counts["opened"]
        self._written += counts["kept"]
        self._expired += counts["expired"]
        self.runtime.touched = counts["touched"]

    @property
    def input_counts(self) -> Mapping[str, InputCounts] | None:
        """The numbers of accepted rows, and of others."""
        if not self._counts:
            return None
        others = {} if self.runtime.other is None else {self.runtime.other: int(self._counts["others"])}
        others |= {counter: int(self._counts[column]) for counter, column in self.runtime.more.items()}
        return {port.name: InputCounts(int(self._counts["accepted"]), others) for port in self.node.ports}

    def side_rows(self, counter: str, inputs: Mapping[str, DataFrame]) -> DataFrame:
        """Never called: there are no side outputs."""
        raise ValueError(f"{counter} of {list(inputs)}")

    def emit(self, watermark: int, observation: Observation) -> Results | None:
        """Write the state, drop what has expired, and return the changes; a Spark job or two, unless the pass was prepared."""
        del observation  # the results are given theirs
        self.watermark = watermark
        if self._pairs is not None and self._counts["kept"]:
            contents = self._contents(self._stored_columns)
            if self._few_pairs is not None:
                self._tables.added = contents.add_few(self._few_state_rows(self._few_pairs))
            else:
                self._tables.added = contents.add(self._state_rows(self._pairs.rows))
        self._sweep()
        pairs = self._once or self._pairs
        if pairs is None or not self._counts["emitted"]:
            return None

        def changes(_: Sequence[int], observation: Observation) -> DataFrame:
            found = pairs.pairs(self.runtime.frames) if isinstance(pairs, WrittenOnce) else pairs.rows
            made = as_changes(found.where(f"{BEFORE} IS NOT NULL OR {AFTER} IS NOT NULL").select(BEFORE, AFTER))
            # Their number is known; but the results of a prepared pass have the observation.
            return made.observe(observation, F.expr("count(1) AS rows"))

        return Results(changes, files=pairs.few_files, shape="changes" if self._once is None else "written once")

    def _state_rows(self, pairs: DataFrame) -> DataFrame:
        kept = pairs.where(f"{KEPT} IS NOT NULL").select(f"{KEPT}.*", GONE, HASH)
        kept = self._lifetime.renewed(kept, self.watermark)
        whole = kept.withColumn(EPOCH, F.lit(self.context.epoch).cast("bigint"))
        return whole.select(*map(quoted, self._stored_columns.names), GONE, EPOCH, HASH)

    def _few_state_rows(self, pairs: pa.Table) -> pa.Table:
        """Return the same of pairs that are read already."""
        some = pairs.filter(pc.is_valid(pairs[KEPT]))
        fields = dict(zip((field.name for field in some[KEPT].type), some[KEPT].flatten(), strict=True))
        epochs = pa.repeat(self.context.epoch, some.num_rows)
        columns = {name: fields[name] for name in self._stored_columns.names}
        return pa.table({**columns, GONE: some[GONE], EPOCH: epochs, HASH: some[HASH]})

    def _with_expired(self, stored: DataFrame) -> DataFrame:
        """Return stored rows with ``EXPIRED``, at the time at which the epoch reads them."""
        return with_expired(stored, self._lifetime.expired(self._lifetime.now_before), self.runtime.frames.together)

    def _sweep(self) -> None:
        """Drop stored rows that have expired, and those that are final; one Spark job, now and then."""
        frames, now = self.runtime.frames, self._lifetime.now(self.watermark)
        if not self._tables.files() or now == MIN_WATERMARK:
            return
        contents = self._contents(self._stored_columns)
        if frames.ttl is not None:
            if self._lifetime.sweeps(now):
                dropped = drop_expired(contents, self._lifetime.expired(now), frames.together, self.context.epoch)
                self._living -= dropped
                self._expired += dropped
            return
        final = frames.final(self.watermark)
        if final is not None and self._written > max(FINAL_ROWS, self._living // 2):
            gone = contents.current(before=self.context.epoch).where(final)
            marked = gone.selectExpr("*", f"true AS {GONE}", f"{self.context.epoch}L AS {EPOCH}")
            self._living -= sum(file.rows for file in contents.add(marked))
            self._written = 0

    @property
    def knows_emitted(self) -> bool:
        """Whether the number of changes is known: the pass over the input counted them."""
        return True

    def emitted(self, observation: Observed) -> int:
        """Return the number of changes."""
        del observation
        return int(self._counts["emitted"]) if self._counts else 0

    def compact(self) -> Callable[[], None] | None:
        """Drop all files where no row is left; return the work that merges others, None where there is nothing to merge."""
        return None if self._tables.empty else self._contents(self._stored_columns).compact(self._living)

    def stored_tables(self) -> Mapping[str, DataFrame]:
        """Return ``rows``: the rows that are there."""
        frames = self.runtime.frames
        if self._tables.empty:
            return {"rows": no_rows(self.context.spark, T.StructType([T.StructField(name, T.StringType()) for name in frames.names]))}
        stored = self._contents(self._stored_columns).current()
        live = self._with_expired(stored).where(f"NOT {EXPIRED}").drop(EXPIRED)
        final = frames.final(self.context.before.watermark)
        return {"rows": frames.shown(live if final is None else live.where(f"NOT coalesce({final}, false)"))}

    def progress(self, common: OperatorProgress) -> OperatorProgress:
        """Return the operator's progress, with the number of keys, and how many expired."""
        return dataclasses.replace(common, keys=self._living, keys_expired=self._expired, state_expired=self._expired)

    def snapshot(self) -> OperatorState:
        """Return the operator's state after this epoch."""
        while self._staged:
            self._staged.pop().delete()
        counters = {"keys": self._living, "written": self._written}
        counters |= self._lifetime.counters(self.watermark)
        return self._tables.snapshot(self.watermark, counters)


_COUNTS: Final = (
    f"coalesce(sum({ACCEPTED}), 0) AS accepted",
    f"coalesce(sum({OTHERS}), 0) AS others",
    f"count_if({KEPT} IS NOT NULL) AS kept",
    f"count_if({ACCEPTED} > 0 OR {OTHERS} > 0) AS touched",
    f"coalesce(sum(if({KEPT} IS NULL, 0, if({GONE}, 0, 1) - if({HAD}, 1, 0))), 0) AS opened",
    f"count_if({KEPT} IS NOT NULL AND {EXPIRED}) AS expired",
    f"count_if({BEFORE} IS NOT NULL) + count_if({AFTER} IS NOT NULL) AS emitted",
)

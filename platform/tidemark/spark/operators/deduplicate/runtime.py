"""Deduplication: one pass compares an epoch's elements with the kept ones of their keys, and emits the first ones.

State is one row per kept element: its key and its time, until no element that is not late can be within its range.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final

from pyspark.sql import Observation
from pyspark.sql import types as T
from pyspark.storagelevel import StorageLevel

from tidemark.crashpoints import crash_point
from tidemark.graph.operators.deduplicate.node import DeduplicateNode
from tidemark.semantics.watermarks.shortfalls import Shortfalls
from tidemark.semantics.watermarks.watermarks import MIN_WATERMARK, clamp_watermark
from tidemark.spark.columns.expressions import START, TIME
from tidemark.spark.columns.schemas import no_rows, nullable
from tidemark.spark.columns.state_files import read_files, write_folder
from tidemark.spark.operators.base.contract import LATE, InputCounts, Observed, OperatorContext, OperatorEpoch, OperatorRuntime, PortInput
from tidemark.spark.operators.base.late_metrics import observed_shortfalls
from tidemark.spark.operators.base.tables import MAIN, STATE_COMPRESSION, StateTables
from tidemark.spark.operators.base.touched_times import CORRECTED, LATE_TIMES, listed_times
from tidemark.spark.operators.deduplicate.frames import DeduplicateFrames
from tidemark.spark.operators.keyed.key_table import rows_of_keys
from tidemark.spark.prepared.runtime_literals import runtime_literals
from tidemark.state.gc.compaction import plan_compaction
from tidemark.state.log.progress import OperatorProgress
from tidemark.state.log.records import OperatorState, StateFile

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

DUPLICATES: Final = "duplicates"
LATE_UNTIL: Final = "late_until"
"""The greatest time that was late, which greater allowed lateness does not bring back: the state that it needs has expired."""

EXPIRED: Final = "expired"
"""The greatest expired time of state, which a longer ``within`` does not bring back, whether a file still has it or not."""

FEW_ROWS: Final = 200_000
"""Up to so many rows of state, reading all of them costs less than selecting those of the epoch's keys."""


class DeduplicateRuntime(OperatorRuntime):
    """A deduplication of a run.

    Args:
        node: its declaration.
    """

    def __init__(self, node: DeduplicateNode) -> None:
        super().__init__(node)
        self._declared = node
        self.rule = node.rule
        self.frames = DeduplicateFrames(node)

    @property
    def node(self) -> DeduplicateNode:
        """The operator's declaration."""
        return self._declared

    def begin(self, context: OperatorContext) -> DeduplicateEpoch:
        """Return the operator at work on an epoch."""
        return DeduplicateEpoch(self, context)

    def next_timer(self, state: OperatorState) -> None:
        """Return None: an element is emitted in the epoch that reads it."""
        del state


class DeduplicateEpoch(OperatorEpoch):
    """A deduplication in one epoch."""

    runtime: DeduplicateRuntime

    def __init__(self, runtime: DeduplicateRuntime, context: OperatorContext) -> None:
        super().__init__(runtime, context)
        self._tables = StateTables(context, runtime.node.place)
        self._before = self._tables.files()
        self._counts: InputCounts | None = None
        self._shortfalls: Shortfalls | None = None
        self._touched: Mapping[str, tuple[int, ...]] = {}
        self._staged: DataFrame | None = None
        self._staged_files: tuple[str, ...] = ()
        self._persisted: list[DataFrame] = []

    @property
    def input_counts(self) -> Mapping[str, InputCounts] | None:
        """The numbers of kept, duplicate and late elements."""
        return None if self._counts is None else {port.name: self._counts for port in self.node.ports}

    @property
    def _late_until(self) -> int:
        return self._late_bound(self.context.before.watermark)

    def _late_bound(self, watermark: int) -> int:
        return max(
            clamp_watermark(watermark - self.runtime.rule.allowed_lateness_ms), self.context.before.counters.get(LATE_UNTIL, MIN_WATERMARK)
        )

    def process_batch(self, inputs: Mapping[str, PortInput]) -> None:
        """Classify the epoch's elements, and write the kept ones: whole for ``emit``, and their keys and times as state."""
        (given,) = inputs.values()
        frames, context, observation = self.runtime.frames, self.context, Observation()
        before, lateness = context.before.watermark, self.runtime.rule.allowed_lateness_ms
        kept = frames.kept(frames.counted(self._classified(given.rows), observation, watermark=before))
        self._tables.require_types(frames.state_rows(kept).schema)
        written = write_folder(kept, context.store, self._tables.new_folder(), compression=STATE_COMPRESSION)
        found = observation.get
        self._counts = InputCounts(found["kept"], {DUPLICATES: found["judged"] - found["kept"], LATE: found["late"]})
        self._shortfalls = observed_shortfalls(found, found["late"], watermark=before, allowed_lateness_ms=lateness)
        self._touched = {name: listed_times(found[name]) for name in (LATE_TIMES, CORRECTED) if name in found}
        self._staged_files = tuple(file.path for file in written)
        if written:
            files = [file.as_state_file(context.epoch) for file in written]
            self._staged = read_files(context.spark, context.store, files, nullable(kept.schema))
            self._tables.write_input(frames.state_rows(self._staged))
        else:
            self._tables.adopt(frames.state_rows(kept).schema)
        crash_point("state-staged")

    def _classified(self, rows: DataFrame) -> DataFrame:
        files = self._before
        if not files:
            return self.runtime.frames.classified(rows, None, self._late_until)
        state = self._live(self._tables.read(files), self._expired_before)
        if sum(file.rows for file in files) > FEW_ROWS:
            # Cached, since both the elements and their keys are read.
            rows = rows.persist(StorageLevel.MEMORY_AND_DISK)
            self._persisted.append(rows)
            state = rows_of_keys(state, rows.select(*self.runtime.frames.key_columns).distinct(), self.runtime.frames.keys)
        return self.runtime.frames.classified(rows, state, self._late_until)

    def side_rows(self, counter: str, inputs: Mapping[str, DataFrame]) -> DataFrame:
        """Return late elements, or duplicates; both follow from the input and the state before the epoch."""
        (rows,) = inputs.values()
        if counter == LATE:
            return rows.where(f"{TIME} <= {runtime_literals(self._late_until, varying=TIME)[0]}")
        if counter == DUPLICATES:
            return self.runtime.frames.duplicates(self._classified(rows))
        raise ValueError(counter)

    def emit(self, watermark: int, observation: Observation) -> DataFrame | None:
        """Return the kept elements; they do not wait for the watermark."""
        del observation  # emitted elements were counted when they were classified
        self.watermark = watermark
        return None if self._staged is None else self.runtime.frames.elements(self._staged)

    def emitted(self, observation: Observed) -> int:
        """Return the number of kept elements."""
        del observation
        return self._counts.accepted if self._counts is not None else 0

    @property
    def _expired_before(self) -> int:
        """The greatest time in state that had expired before this epoch."""
        return self._expired_at(self.context.before.watermark)

    @property
    def _expired(self) -> int:
        """The greatest time in state that is expired after this epoch."""
        return self._expired_at(self.watermark)

    def _expired_at(self, watermark: int) -> int:
        expired = clamp_watermark(self._late_bound(watermark) - self.runtime.rule.within_ms + 1)
        return max(expired, self.context.before.counters.get(EXPIRED, MIN_WATERMARK))

    @staticmethod
    def _live(state: DataFrame, expired: int) -> DataFrame:
        return state.where(f"{START} > {runtime_literals(expired)[0]}")

    def compact(self) -> Callable[[], None] | None:
        """Drop fully expired files; return the work that merges others."""
        plan = plan_compaction(self._tables.files(), expired_before=self._expired + 1)
        self._tables.drop(plan.drop)
        return partial(self._merge, plan.merge) if plan.merge else None

    def _merge(self, groups: Sequence[Sequence[StateFile]]) -> None:
        for group in groups:
            live = self._live(self._tables.read(group), self._expired)
            self._tables.write(live.coalesce(1), MAIN, newest=max(file.epoch for file in group))
            self._tables.drop(group)
            crash_point("compaction-staged")

    def _release(self) -> None:
        """Drop the copy of emitted elements, which other passes may read until the epoch's last one, and unpersist frames."""
        self.context.store.delete(self._staged_files)
        self._staged_files = ()
        while self._persisted:
            self._persisted.pop().unpersist()

    def stored_tables(self) -> Mapping[str, DataFrame]:
        """Return ``kept``: keys with the event times of emitted elements that may still have duplicates."""
        if self._tables.empty:
            return {"kept": self._nothing_kept()}
        frames = self.runtime.frames
        rows = self._live(self._tables.read(self._tables.files()), self._expired)
        keys = {name.lower() for name, _ in self.runtime.node.keys}
        time = () if "event_time" in keys else (f"timestamp_millis({START}) AS event_time",)
        return {"kept": rows.selectExpr(*frames.key_results, *time)}

    def _nothing_kept(self) -> DataFrame:
        """Return an empty frame; if the job never had an element, the types of keys are not known."""
        names = [T.StructField(name, T.StringType()) for name, _ in self.runtime.node.keys]
        return no_rows(self.context.spark, T.StructType([*names, T.StructField("event_time", T.TimestampType())]))

    def progress(self, common: OperatorProgress) -> OperatorProgress:
        """Return the operator's progress: the times and shortfalls of late elements, and the times of those kept behind the watermark."""
        late, corrected = (self._touched.get(name, ()) for name in (LATE_TIMES, CORRECTED))
        shortfalls = {} if self._shortfalls is None else {LATE: self._shortfalls}
        return replace(common, shortfalls=shortfalls, late_windows=late, refired_windows=corrected)

    def snapshot(self) -> OperatorState:
        """Return the operator's state after this epoch."""
        self._release()
        return self._tables.snapshot(self.watermark, {LATE_UNTIL: self._late_bound(self.watermark), EXPIRED: self._expired})

"""Sliding and cumulative windows: rows are aggregated into slices, and windows fire from prefixes and suffixes of blocks of slices.

The main table has one row per (key, slice, staging), as for tumbling windows. Where slices are many, two tables are computed from it
when windows fire: ``prefix``, each key's slices of the current block merged as far as windows have fired, and ``suffix``, computed once
per block. So a firing reads new rows and writes one row per key, whatever the number of slices in a window. Windows that late rows touch
after they fired, and aggregates that cannot be merged that way, are merged from the slices themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial, reduce

from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as F
from pyspark.sql.types import BooleanType, LongType, StructField, StructType

from tidemark.crashpoints import crash_point
from tidemark.semantics.watermarks.watermarks import MAX_WATERMARK, MIN_WATERMARK, clamp_watermark
from tidemark.spark.columns.expressions import START, quoted
from tidemark.spark.columns.state_files import overlapping
from tidemark.spark.operators.aligned.pre_aggregation import EXPIRED, FIRST_START, AlignedEpoch, Thresholds
from tidemark.spark.operators.aligned.slice_frames import INDEX, MARKS, SINCE, SliceFrames
from tidemark.spark.operators.aligned.two_stacks import BLOCK, END, FIRST, LAST, LOW, REAL, Ends
from tidemark.spark.operators.base.contract import Observed, OperatorContext, run_in_order
from tidemark.spark.operators.base.tables import count_in_spans
from tidemark.spark.operators.base.windows import MAX_LISTED_WINDOWS, Panes
from tidemark.spark.prepared.runtime_literals import runtime_literals
from tidemark.state.gc.compaction import plan_compaction
from tidemark.state.log.records import OperatorState, StateFile

PREFIX = "prefix"
SUFFIX = "suffix"
STACKS = ("block", "reached", "prefix_epoch", "suffix_epoch")
"""The counters that describe the contents of the tables of prefixes and suffixes."""

_TOUCHED = "__tm_touched"
MANY_ROWS = 2_000_000
"""From so many rows of slices in a firing's windows on, prefixes and suffixes are kept; fewer are merged at each firing."""

SUFFIX_ROWS_PER_FILE = 500_000
"""Suffixes are sorted by slice, so that a firing opens few of their files."""


@dataclass(frozen=True)
class Stacks:
    """The contents of the tables of prefixes and suffixes: of block ``block``, slices before ``reached``, of files up to an epoch each."""

    block: int
    reached: int
    prefix_epoch: int
    suffix_epoch: int

    @staticmethod
    def of(state: OperatorState) -> Stacks | None:
        """Return the contents by a state's counters, None where there are no such tables."""
        found = [state.counters.get(name) for name in STACKS]
        numbers = [number for number in found if number is not None]
        return Stacks(*numbers) if len(numbers) == len(found) and numbers[1] != MIN_WATERMARK else None


class SlicedRuntime(SliceFrames):
    """Sliding or cumulative windows of a run."""

    def begin(self, context: OperatorContext) -> SlicedEpoch:
        """Return the operator at work on an epoch."""
        return SlicedEpoch(self, context)


class SlicedEpoch(AlignedEpoch):
    """Sliding or cumulative windows in one epoch."""

    runtime: SlicedRuntime

    def __init__(self, runtime: SlicedRuntime, context: OperatorContext) -> None:
        super().__init__(runtime, context)
        self._slices = runtime.slices
        self._stacks = Stacks.of(context.before)
        self._after = self._stacks
        self._ends: Ends | None = None
        self._again: Observation | None = None

    @cached_property
    def thresholds(self) -> Thresholds:
        """Bounds of the epoch before, by slices."""
        fired = max(FIRST_START, self._slices.last_fired(self.context.before.watermark))
        return Thresholds(
            max(FIRST_START, self._slices.last_expired(self.expired_before - 1, 0)),
            fired,
            reached=fired + self.runtime.width,
            least_kept=self.least_kept,
        )

    @property
    def expired_before(self) -> int:
        """The end of the last window that had expired before this epoch."""
        return self.forgotten(self._slices.last_end(self.context.before.watermark - self.runtime.lateness))

    @property
    def fired_before(self) -> int:
        """The end of the last window that had fired before this epoch."""
        return self._slices.last_end(self.context.before.watermark)

    @property
    def expired_end(self) -> int:
        """The end of the last window that is expired after this epoch."""
        return max(self.expired_before, self._slices.last_end(self.watermark - self.runtime.lateness))

    @property
    def expired(self) -> int:
        """The last slice all of whose windows are expired after this epoch."""
        return self._slices.last_expired(self.expired_end - 1, 0)

    def emit(self, watermark: int, observation: Observation) -> DataFrame | None:
        """Return the panes due at a watermark, None where there cannot be any. Nothing runs yet."""
        self.watermark = watermark
        if self.tables.empty:
            return None
        parts = []
        self._ends = self._due_ends()
        if self._ends is not None:
            parts.append(self.runtime.results(self._due(self._ends, observation), "ON_TIME"))
        again = Ends(self.expired_before + self._slices.ends, self.fired_before)
        if self.counts and self.counts.refired_groups and again.first <= again.last:
            # An observation can be used in one place of a plan only.
            self._again = observation if not parts else Observation()
            touched = self._touched(again).observe(self._again, F.expr("count(1) AS late"), F.expr(f"collect_set({END}) AS refired"))
            parts.append(self.runtime.results(touched, "LATE"))
        return reduce(DataFrame.union, parts) if parts else None

    def emitted_panes(self, observation: Observed) -> Panes:
        """Read the counts of results that were written."""
        again = self._again.get if self._again is not None else {}
        # Cumulative windows share their starts.
        refired = sorted(set(map(self._slices.start_of, again.get("refired") or ())))[-MAX_LISTED_WINDOWS:]
        on_time, closed = (0, 0) if self._ends is None else (observation.get["on_time"] or 0, self._closed(self._ends))
        return Panes(on_time=on_time, late=again.get("late") or 0, closed=closed, refired=tuple(refired))

    def _closed(self, ends: Ends) -> int:
        """Return the number of windows that ended and had elements, by the bounds of files."""
        slices = self._slices
        held = [
            replace(file, min_time=slices.first_end_of(file.min_time), max_time=slices.last_end_of(file.max_time))
            for file in self.context.before.files + tuple(self.tables.added)
            if not file.part and file.min_time is not None and file.max_time is not None
        ]
        return count_in_spans(held, ends.first, ends.last, slices.ends)

    def _due_ends(self) -> Ends | None:
        """Return the ends of the windows that are due and may have elements."""
        first, last = self.fired_before + self._slices.ends, self._slices.last_end(self.watermark)
        held = [
            (self._slices.first_end_of(file.min_time), self._slices.last_end_of(file.max_time))
            for file in self.tables.files()
            if file.min_time is not None and file.max_time is not None
        ]
        waiting = [(low, high) for low, high in held if high >= first and low <= last]
        if not waiting:
            return None
        first, last = max(first, min(low for low, _ in waiting)), min(last, max(high for _, high in waiting))
        return Ends(first, last) if first <= last else None

    def _due(self, ends: Ends, observation: Observation) -> DataFrame:
        """Return partials of due windows, one row per key and ``END``, counted."""
        runtime, slices = self.runtime, self._slices
        if runtime.partials.can_run:
            rows = self._run(ends)
            # Counted while a row still stands for many windows.
            panes = F.expr(f"CAST(sum(({LAST} - {FIRST}) div {slices.ends}L + 1L) AS BIGINT) AS on_time")
            return runtime.two_stacks.at_each_end(rows.observe(observation, panes))
        covered = self._read(self.tables.files(), slices.start_of(ends.first), ends.last - slices.width)
        merged = runtime.partials.grouped(runtime.in_windows(covered, ends), END)
        return merged.observe(observation, F.expr("count(1) AS on_time"))

    def _run(self, ends: Ends) -> DataFrame:
        """Return partials of due windows, each row for consecutive windows."""
        runtime, slices = self.runtime, self._slices
        low, high = slices.start_of(ends.first), ends.last - slices.width
        stacks, block = self._stacks, slices.block_of(ends.first - 1)
        if stacks is None or stacks.block != block:
            raw = None if slices.growing else self._read(self.tables.files(), low, slices.block_of(high) - slices.width)
            return runtime.two_stacks.results(ends, prefix=self._read(self.tables.files(), block, high), raw=raw)
        older, newer = self._apart(stacks.prefix_epoch)
        prefix = self._read(older, stacks.reached, high).unionByName(self._read(newer, block, high))
        if slices.growing:
            return runtime.two_stacks.results(ends, prefix=prefix, grown=self._table(PREFIX))
        older, newer = self._apart(stacks.suffix_epoch)
        last = slices.block_of(high) - slices.width
        raw = self._read(newer, low, last)
        if last >= block:
            raw = raw.unionByName(self._read(older, block, last))
        return runtime.two_stacks.results(ends, prefix=prefix, grown=self._table(PREFIX), stored=self._table(SUFFIX, ends), raw=raw)

    def _touched(self, ends: Ends) -> DataFrame:
        """Return partials of fired windows that accepted late rows in this epoch, with ``INDEX``."""
        runtime, slices = self.runtime, self._slices
        low, high = slices.start_of(ends.first), ends.last - slices.width
        added = self._read(self.tables.added, low, high)
        keys = [quoted(key) for key in runtime.partials.keys]
        older = self._read([file for file in self.tables.files() if file not in self.tables.added], low, high)
        if keys:
            wanted = added.select(*keys).distinct().toDF(*(f"__tm_wanted_{number}" for number in range(len(keys))))
            same = reduce(lambda a, b: a & b, (older[key].eqNullSafe(wanted[name]) for key, name in zip(keys, wanted.columns, strict=True)))
            older = older.join(wanted, same, "left_semi")
        marked = (runtime.in_windows(rows, ends).withColumn(_TOUCHED, F.lit(flag)) for rows, flag in ((older, 0), (added, 1)))
        merged = runtime.merged(reduce(DataFrame.unionByName, marked), END, extra=[F.expr(f"max({_TOUCHED}) AS {_TOUCHED}")])
        again = f"size(filter({MARKS}, mark -> mark.fired >= {END}))"
        index = F.expr(f"CAST({again} + if({SINCE} < {END}, 1, 0) - 1 AS BIGINT)")
        return merged.where(f"{_TOUCHED} = 1").withColumn(INDEX, index).drop(_TOUCHED, SINCE, MARKS)

    def compact(self) -> Callable[[], None] | None:
        """Drop fully expired files; return the work that updates prefixes and suffixes and merges files."""
        self.tables.drop(file for file in self.tables.files() if file.max_time is not None and file.max_time <= self.expired)
        work: list[Callable[[], None]] = []
        if not self.tables.files():
            self.tables.drop([*self.tables.files(PREFIX), *self.tables.files(SUFFIX)])
            self._after = None
            return None
        if self._ends is not None and self.runtime.partials.can_run:
            ends = self._ends
            if self._stacks is not None or self._rows_in(self._slices.start_of(ends.first), ends.last) >= MANY_ROWS:
                work.append(partial(self._renew, ends.last))
        if self._groups():
            work.append(self._compact_groups)
        return partial(run_in_order, work) if work else None

    def snapshot(self) -> OperatorState:
        """Return the operator's state after this epoch."""
        stacks = self._after or Stacks(MIN_WATERMARK, MIN_WATERMARK, -1, -1)
        held = dict(zip(STACKS, (stacks.block, stacks.reached, stacks.prefix_epoch, stacks.suffix_epoch), strict=True))
        counters = {EXPIRED: self.expired_end, **(held if self._after or self._stacks else {})}
        return self.tables.snapshot(self.watermark, counters)

    def _renew(self, reached: int) -> None:
        """Update the tables of prefixes and suffixes up to where windows have fired."""
        slices, stacks = self._slices, self._stacks
        replaced = [*self.tables.files(PREFIX)]
        block = slices.block_of(reached)
        epoch = self.context.epoch
        if stacks is None or stacks.block != block:
            replaced += self.tables.files(SUFFIX)
            low = block - slices.span
            if self._rows_in(low, reached) < MANY_ROWS:
                self.tables.drop(replaced)
                self._after = None
                return
            if not slices.growing:
                made = self.runtime.two_stacks.suffixes(self._read(self.tables.files(), low, block - slices.width))
                self.tables.write(made.sortWithinPartitions(START), SUFFIX, options={"maxRecordsPerFile": str(SUFFIX_ROWS_PER_FILE)})
            prefix, suffix_epoch = self._read(self.tables.files(), block, reached - slices.width), epoch
        else:
            older, newer = self._apart(stacks.prefix_epoch)
            high = reached - slices.width
            prefix = self._read(older, stacks.reached, high).unionByName(self._read(newer, block, high))
            columns = [quoted(name) for name in (*self.runtime.partials.keys, *self.runtime.partials.columns)]
            prefix = prefix.select(*columns).unionByName(self._table(PREFIX).select(*columns))
            suffix_epoch = stacks.suffix_epoch
        merged = self.runtime.partials.grouped(prefix)
        at, of = F.lit(reached).cast("bigint").alias(START), F.lit(block).cast("bigint").alias(BLOCK)
        self.tables.write(merged.select("*", at, of), PREFIX)
        self.tables.drop(replaced)
        self._after = Stacks(block, reached, epoch, suffix_epoch)
        crash_point("state-staged")

    def _apart(self, epoch: int) -> tuple[list[StateFile], list[StateFile]]:
        """Return the main files up to an epoch, and those after it."""
        files = self.tables.files()
        return [file for file in files if file.epoch <= epoch], [file for file in files if file.epoch > epoch]

    def _read(self, files: Sequence[StateFile], low: int, high: int) -> DataFrame:
        """Return the rows of slices in [low, high] of files of the main table."""
        first, last = runtime_literals(low, high)
        return self.tables.read(overlapping(files, low, high)).where(f"{START} BETWEEN {first} AND {last}")

    def _table(self, part: str, ends: Ends | None = None) -> DataFrame:
        """Return prefixes, or the suffixes that windows with these ends may need."""
        if self.tables.schema is None:
            raise ValueError("no state was written yet")
        kept = {*self.runtime.partials.keys, *self.runtime.partials.columns, START}
        fields = [field for field in self.tables.schema if field.name in kept]
        more = [
            StructField(BLOCK, LongType()),
            *([StructField(LOW, LongType()), StructField(REAL, BooleanType())] if part == SUFFIX else []),
        ]
        files = self.tables.files(part)
        if ends is not None:
            files = [file for file in files if file.max_time is None or file.max_time >= ends.first - self._slices.span]
        return self.tables.read(files, StructType([*fields, *more]))

    def _rows_in(self, low: int, high: int) -> int:
        return sum(file.rows for file in overlapping(self.tables.files(), low, high))

    def _groups(self) -> list[list[StateFile]]:
        """Return the main files that may be merged with each other: those contained in prefixes and suffixes, and the others."""
        stacks = self._after
        marks = sorted({stacks.suffix_epoch, stacks.prefix_epoch}) if stacks else []
        groups: dict[int, list[StateFile]] = {}
        for file in self.tables.files():
            groups.setdefault(sum(file.epoch > mark for mark in marks), []).append(file)
        return [list(group) for files in groups.values() for group in plan_compaction(files).merge]

    def _compact_groups(self) -> None:
        for group in self._groups():
            newest = max(file.epoch for file in group)
            self.tables.write(self.merged_for_compaction(group).coalesce(1), newest=newest)
            self.tables.drop(group)
            crash_point("compaction-staged")

    def merged_for_compaction(self, files: Sequence[StateFile]) -> DataFrame:
        """Return the rows of files, merged, without those of slices that are no longer needed."""
        return self.runtime.merged(self._read(files, self.expired + 1, MAX_WATERMARK), START)

    @property
    def oldest_open_window(self) -> int | None:
        """The start of the oldest window that has not expired."""
        oldest = min((file.min_time for file in self.tables.files() if file.min_time is not None), default=None)
        if oldest is None:
            return None
        end = max(self._slices.first_end_of(oldest), self.expired_end + self._slices.ends)
        return clamp_watermark(self._slices.start_of(end))

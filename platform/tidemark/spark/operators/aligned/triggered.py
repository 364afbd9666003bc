"""Aligned and global windows that fire by a trigger with a rule: early, at counts, at steps of time, each epoch.

State is one row per (key, window, staging) with partials and counts of elements, and one per pane that fired, in the table ``panes``. An
epoch collects the windows that elements touched or that time may fire, decides by the rule, and writes the panes; results are read
from there. Slices are assigned to their windows as they come, since any window may fire at any time. Where panes purge their windows,
see ``purge_marks``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property, partial, reduce

from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as F
from pyspark.sql.types import IntegerType, StructField, StructType

from tidemark.crashpoints import crash_point
from tidemark.semantics.watermarks.watermarks import MAX_WATERMARK, MIN_WATERMARK
from tidemark.spark.columns.expressions import START, quoted
from tidemark.spark.columns.state_files import overlapping
from tidemark.spark.operators.aligned.firing_rules import BEFORE, LATE_BEFORE, LATE_NOW, NOW, Times, fires, waits
from tidemark.spark.operators.aligned.pre_aggregation import EXPIRED, FIRST_START, AlignedEpoch, Thresholds
from tidemark.spark.operators.aligned.purge_marks import HAD, HAD_LATE, MARK_FIELDS, after_marks, newest_marks, unmarked, with_mark
from tidemark.spark.operators.aligned.trigger_frames import CLOCK, EPOCH, INDEX, TAKEN, TAKEN_LATE, TriggerFrames
from tidemark.spark.operators.aligned.two_stacks import END
from tidemark.spark.operators.base.contract import Observed, OperatorContext
from tidemark.spark.operators.base.stored_columns import require_partials
from tidemark.spark.operators.base.tables import MAIN
from tidemark.spark.operators.base.windows import MAX_LISTED_WINDOWS, Panes
from tidemark.spark.prepared.runtime_literals import runtime_literals
from tidemark.state.gc.compaction import plan_compaction
from tidemark.state.log.records import OperatorState, StateFile

PANES = "panes"
_PANE = "__tm_pane"
_ADDED = "__tm_added"


class TriggeredRuntime(TriggerFrames):
    """Windows with a trigger of a run."""

    def begin(self, context: OperatorContext) -> TriggeredEpoch:
        """Return the operator at work on an epoch."""
        return TriggeredEpoch(self, context)


class TriggeredEpoch(AlignedEpoch):
    """Windows with a trigger in one epoch."""

    runtime: TriggeredRuntime

    def __init__(self, runtime: TriggeredRuntime, context: OperatorContext) -> None:
        super().__init__(runtime, context)
        require_partials(self.tables, END, runtime.node)
        self._counts: Observation | None = None

    @cached_property
    def thresholds(self) -> Thresholds:
        """Bounds of the epoch before, by slices, and the end of the last window that had expired."""
        slices = self.runtime.slices
        expired = self.expired_before
        if slices is None:
            ended = expired >= MAX_WATERMARK
            return Thresholds(MAX_WATERMARK if ended else FIRST_START, FIRST_START, expired)
        fired = max(FIRST_START, slices.last_fired(self.context.before.watermark))
        last = max(FIRST_START, slices.last_expired(expired - 1, 0))
        return Thresholds(last, fired, expired, fired + self.runtime.width, self.least_kept)

    @property
    def expired_before(self) -> int:
        """The end of the last window that had expired before this epoch."""
        return self.forgotten(self.expired_at(self.context.before.watermark))

    @property
    def expired(self) -> int:
        """The end of the last window that is expired after this epoch."""
        return max(self.expired_before, self.expired_at(self.watermark))

    def expired_at(self, watermark: int) -> int:
        """Return the end of the last window that accepts no elements any more at a watermark."""
        if self.runtime.slices is None:
            return MAX_WATERMARK if watermark == MAX_WATERMARK else MIN_WATERMARK
        return self.runtime.slices.last_end(watermark - self.runtime.lateness)

    @cached_property
    def times(self) -> Times:
        """The epoch's times; available once its watermark is known."""
        clock = self.context.processing_time
        return Times(self.context.before.watermark, self.watermark, self.context.before.counters.get(CLOCK, clock), clock)

    def emit(self, watermark: int, observation: Observation) -> DataFrame | None:
        """Write and return the panes of an epoch, None where there are none."""
        del observation
        self.watermark = watermark
        if self.tables.empty:
            return None
        gathered = self._candidates()
        if gathered is None:
            return None
        self._counts = Observation()
        due_before, due = runtime_literals(
            *(min(at, MAX_WATERMARK - 1) + 1 for at in (self.times.watermark_before, watermark)), varying=END
        )
        counted = self._firing_windows(gathered).observe(
            self._counts,
            F.expr(f"count_if({END} > {due}) AS early"),
            F.expr(f"count_if({END} <= {due} AND {END} > {due_before}) AS on_time"),
            F.expr(f"count_if({END} <= {due_before}) AS late"),
            F.expr(f"collect_set(CASE WHEN {END} <= {due} AND {END} > {due_before} THEN {END} END) AS closed"),
            F.expr(f"collect_set(CASE WHEN {END} <= {due_before} THEN {START} END) AS refired"),
        )
        written = self.tables.write(counted, PANES)
        crash_point("state-staged")
        return self.runtime.results(self.tables.read(written, counted.schema), self.times) if written else None

    def emitted_panes(self, observation: Observed) -> Panes:
        """Return the counts of panes that were written."""
        del observation
        found = self._counts.get if self._counts is not None else {}
        refired = tuple(sorted(found.get("refired") or ())[-MAX_LISTED_WINDOWS:])
        counts = {name: found.get(name) or 0 for name in ("early", "on_time", "late")}
        return Panes(**counts, closed=len(found.get("closed") or ()), refired=refired)

    def _candidates(self) -> DataFrame | None:
        """Return the state rows of windows that may fire; ``_ADDED`` marks those of this epoch. None where there are none."""
        first_open = self.expired_before + 1
        added = self.tables.added if self.counts is not None else []
        older = [file for file in overlapping(self.tables.files(), first_open, MAX_WATERMARK) if file not in added]
        parts = []
        span = waits(self.runtime.trigger, self.times)
        low, high = (max(first_open, span[0] + 1), span[1]) if span else (1, 0)
        timely = overlapping(older, low, high) if low <= high else []
        if timely:
            parts.append(self._between(timely, low, high).withColumn(_ADDED, F.lit(False)))
        if added:
            new = self.tables.read(added)
            parts.append(new.withColumn(_ADDED, F.lit(True)))
            touched = self._same_windows(self.tables.read(older), new)
            if timely:
                first, last = runtime_literals(low, high, varying=END)
                touched = touched.where(f"{END} NOT BETWEEN {first} AND {last}")
            parts.append(touched.withColumn(_ADDED, F.lit(False)))
        return reduce(DataFrame.unionByName, parts) if parts else None

    def _firing_windows(self, gathered: DataFrame) -> DataFrame:
        """Return merged windows that fire, with the index of the pane; where it purges them, with its mark."""
        purges = self.runtime.purges
        had, had_late = (f"max({HAD})", f"max({HAD_LATE})") if purges else ("0L", "0L")
        texts = [
            f"{had} + coalesce(sum(CASE WHEN NOT {_ADDED} THEN {TAKEN} END), 0L) AS {BEFORE}",
            f"coalesce(sum(CASE WHEN {_ADDED} THEN {TAKEN} END), 0L) AS {NOW}",
            f"{had_late} + coalesce(sum(CASE WHEN NOT {_ADDED} THEN {TAKEN_LATE} END), 0L) AS {LATE_BEFORE}",
            f"coalesce(sum(CASE WHEN {_ADDED} THEN {TAKEN_LATE} END), 0L) AS {LATE_NOW}",
            *([f"max({INDEX}) AS {INDEX}"] if purges else []),
        ]
        merged = self.runtime.merged(self._since_purge(gathered) if purges else gathered, extra=[*map(F.expr, texts)])
        alive = f"{END} > {runtime_literals(self.expired_before, varying=END)[0]}"
        firing = merged.where(f"{alive} AND ({fires(self.runtime.trigger, self.times)})").drop(TAKEN, TAKEN_LATE, EPOCH)
        made = with_mark(firing, self.context.epoch) if purges else self._numbered(firing)
        return made.withColumn(_PANE, F.lit(1))

    def _since_purge(self, rows: DataFrame) -> DataFrame:
        """Return the rows in windows since their last purge, with the counts from before it."""
        panes = self.tables.files(PANES)
        return after_marks(rows, self._marks(panes), self._window_columns, _PANE) if panes else unmarked(rows)

    def _marks(self, panes: Sequence[StateFile]) -> DataFrame:
        return newest_marks(self._panes(panes), self._window_columns, _PANE)

    def _numbered(self, firing: DataFrame) -> DataFrame:
        """Return windows that fire, with the index of the pane, where panes leave no marks."""
        before = self.tables.files(PANES)
        if not before:
            return firing.selectExpr("*", f"0L AS {INDEX}")
        keys = self._window_columns
        panes = self._panes(before).groupBy(*keys).agg(F.expr(f"sum({_PANE}) AS {INDEX}"))
        named = panes.toDF(*(f"__tm_of_{number}" for number in range(len(keys))), INDEX)
        same = reduce(lambda a, b: a & b, (firing[key].eqNullSafe(named[f"__tm_of_{number}"]) for number, key in enumerate(keys)))
        joined = firing.join(named, same, "left").drop(*named.columns[:-1])
        return joined.withColumn(INDEX, F.coalesce(F.col(INDEX), F.lit(0).cast("bigint")))

    @property
    def _window_columns(self) -> list[str]:
        return [*map(quoted, self.runtime.partials.keys), START, END]

    def _same_windows(self, rows: DataFrame, others: DataFrame) -> DataFrame:
        """Return the rows whose key and window others have, too."""
        keys = self._window_columns
        wanted = others.select(*keys).distinct().toDF(*(f"__tm_of_{number}" for number in range(len(keys))))
        same = reduce(lambda a, b: a & b, (rows[key].eqNullSafe(wanted[name]) for key, name in zip(keys, wanted.columns, strict=True)))
        return rows.join(wanted, same, "left_semi")

    def _between(self, files: Sequence[StateFile], low: int, high: int) -> DataFrame:
        first, last = runtime_literals(low, high, varying=END)
        return self.tables.read(files).where(f"{END} BETWEEN {first} AND {last}")

    def _panes(self, files: Sequence[StateFile]) -> DataFrame:
        if self.tables.schema is None:
            raise ValueError("no state was written yet")
        kept = {*self.runtime.partials.keys, START, END}
        columns = [field for field in self.tables.schema if field.name in kept]
        marks = MARK_FIELDS if self.runtime.purges else ()
        return self.tables.read(files, StructType([*columns, StructField(_PANE, IntegerType()), *marks]))

    def compact(self) -> Callable[[], None] | None:
        """Drop files of expired windows; return the work that merges others into larger ones."""
        expired = [
            file
            for part in (MAIN, PANES)
            for file in self.tables.files(part)
            if file.max_time is not None and file.max_time <= self.expired
        ]
        self.tables.drop(expired)
        plans = [(part, group) for part in (MAIN, PANES) for group in plan_compaction(self.tables.files(part)).merge]
        return partial(self._merge_files, plans) if plans else None

    def _merge_files(self, plans: Sequence[tuple[str, tuple[StateFile, ...]]]) -> None:
        for part, group in plans:
            merged = self.merged_for_compaction(group) if part == MAIN else self._merged_panes(group)
            self.tables.write(merged.coalesce(1), part, newest=max(file.epoch for file in group))
            self.tables.drop(group)
            crash_point("compaction-staged")

    def _merged_panes(self, files: Sequence[StateFile]) -> DataFrame:
        first, last = runtime_literals(self.expired + 1, MAX_WATERMARK, varying=END)
        rows = self._panes(files).where(f"{END} BETWEEN {first} AND {last}")
        if self.runtime.purges:
            return newest_marks(rows, self._window_columns, _PANE)
        return rows.groupBy(*self._window_columns).agg(F.expr(f"CAST(sum({_PANE}) AS INT) AS {_PANE}"))

    def merged_for_compaction(self, files: Sequence[StateFile]) -> DataFrame:
        """Return the rows of files, merged, without those of windows that have expired or are purged."""
        rows = self._between(files, self.expired + 1, MAX_WATERMARK)
        return self.runtime.merged(self._since_purge(rows) if self.runtime.purges else rows)

    def snapshot(self) -> OperatorState:
        """Return the operator's state after this epoch."""
        return self.tables.snapshot(self.watermark, {EXPIRED: self.expired, CLOCK: self.context.processing_time})

    @property
    def oldest_open_window(self) -> int | None:
        """The start of the oldest window that has not expired; None for the global window, which has none."""
        slices = self.runtime.slices
        # All elements of a window may be purged, and dropped by a merge, before it expires.
        files = [*self.tables.files(), *self.tables.files(PANES)]
        oldest = min((file.min_time for file in files if file.min_time is not None), default=None)
        if slices is None or oldest is None:
            return None
        return slices.start_of(max(oldest, self.expired + slices.ends))

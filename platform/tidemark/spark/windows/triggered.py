"""Aligned and global windows that fire by a trigger with a rule: early, at counts, at steps of time, each epoch.

State is one row per (key, window, staging) with partials and counts of elements, and one per pane that fired, in the table ``panes``. An
epoch gathers the windows that elements touched or that time may fire, decides by the rule, and writes what fires; results are read
from there. Slices are spread over their windows as they come, since any window may fire at any time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property, partial, reduce
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as F
from pyspark.sql.types import IntegerType, StructField, StructType

from tidemark.crashpoints import crash_point
from tidemark.graph.nodes import WindowNode
from tidemark.semantics.assigners import Cumulative, GlobalWindows, Sliding, Tumbling
from tidemark.semantics.builtin_triggers import EventTimeTrigger
from tidemark.semantics.slices import Slices
from tidemark.semantics.triggers import Trigger
from tidemark.semantics.watermarks import MAX_WATERMARK, MIN_WATERMARK
from tidemark.spark.expressions import POSITION, START, TIME, quoted
from tidemark.spark.state_files import overlapping
from tidemark.spark.windows.absorbing import EXPIRED, FIRST_START, AbsorbingRun, AbsorbingStep, Thresholds
from tidemark.spark.windows.contract import MAX_LISTED_WINDOWS, EpochSetting, Fired
from tidemark.spark.windows.firing_rules import (
    BEFORE,
    FIRST_TIME,
    LATE_BEFORE,
    LATE_NOW,
    NOW,
    Times,
    fires,
    has_rule,
    next_step,
    next_tick,
    waits,
)
from tidemark.spark.windows.parameters import parameters
from tidemark.spark.windows.running import END
from tidemark.spark.windows.tables import MAIN
from tidemark.state.compaction import plan_compaction
from tidemark.state.records import OperatorState, StateFile

if TYPE_CHECKING:
    from pyspark.sql import Column

PANES = "panes"
_CLOCK = "processing_time"
_TAKEN, _TAKEN_LATE, _NEWEST, _EPOCH, _PANE, _INDEX, _ADDED = (
    "__tm_taken",
    "__tm_taken_late",
    "__tm_newest",
    "__tm_epoch",
    "__tm_pane",
    "__tm_index",
    "__tm_added",
)
_YEARS = 10**15
"""Longer than all of event time: the one slice of a global window."""


def is_triggered(node: WindowNode) -> bool:
    """Return whether a window's panes are aggregates that a trigger with a rule fires, so that no elements are kept."""
    aligned = isinstance(node.assigner, Tumbling | Sliding | Cumulative | GlobalWindows) and node.assigner.domain == "event"
    ruled = node.trigger is not None and node.trigger != EventTimeTrigger() and has_rule(node.trigger)
    return aligned and ruled and node.evictor is None and bool(node.aggregates)


class TriggeredStep(AbsorbingStep):
    """The DataFrames of one operator.

    Args:
        node: the operator; one that ``is_triggered``.
    """

    def __init__(self, node: WindowNode) -> None:
        if node.trigger is None:
            raise TypeError("no trigger is given")
        self.slices = _slices_of(node)
        width, offset = (_YEARS, -_YEARS // 2) if self.slices is None else (self.slices.width, self.slices.offset)
        super().__init__(node, width, offset)
        self.trigger: Trigger = node.trigger
        self.further = (f"min({TIME}) AS {FIRST_TIME}", f"max({TIME}) AS {_NEWEST}", f"count(1) AS {_TAKEN}")

    @property
    def time_column(self) -> str:
        """The column whose bounds the record keeps of each state file: the windows' ends."""
        return END

    def begin(self, setting: EpochSetting) -> TriggeredRun:
        """Return the operator at work on an epoch."""
        return TriggeredRun(self, setting)

    def next_due(self, state: OperatorState) -> int | None:
        """Return the watermark at which a window may come to its end or its next step, as far as the files' bounds tell."""
        reached = min(state.watermark, MAX_WATERMARK - 1) + 1
        open_files = [file for file in state.files if file.part == MAIN and (file.max_time is None or file.max_time > reached)]
        if not open_files:
            return None
        waiting = waits(self.trigger, Times(MIN_WATERMARK, MAX_WATERMARK - 1, 0, 0)) is not None
        first = min(reached + 1 if file.min_time is None else max(file.min_time, reached + 1) for file in open_files) - 1
        if self.slices is not None:
            first = max(first, self.slices.last_end(state.watermark) + self.slices.ends - 1)
        step = next_step(self.trigger, state.watermark) if state.watermark > MIN_WATERMARK else None
        due = [at for at in (first if waiting else None, step) if at is not None]
        return min(due, default=None)

    def next_processing_time(self, state: OperatorState) -> int | None:
        """Return the processing time at which a window may come to its end or its next step."""
        clock = state.counters.get(_CLOCK)
        files = [file for file in state.files if file.part == MAIN]
        if clock is None or not files:
            return None
        ends = []
        if waits(self.trigger, Times(0, 0, clock, MAX_WATERMARK)) is not None and next_tick(self.trigger, clock) is None:
            ends = [max(file.min_time, clock + 1) for file in files if file.min_time is not None and (file.max_time or clock) > clock]
        return min([at for at in (*ends, next_tick(self.trigger, clock)) if at is not None], default=None)

    def outside_windows(self, start: str) -> str | None:
        """Return the condition of rows between windows, where the slide is greater than the size."""
        slices = self.slices
        return f"pmod({start} - {slices.offset}L, {slices.starts}L) >= {slices.span}L" if slices and slices.gaps else None

    def last_window_of(self, start: int) -> int | None:
        """Return the start of the last window that covers a slice, None where none does."""
        return None if self.slices is None else self.slices.last_window_of(start)

    def marks(self, fired: str, bounds: Thresholds, epoch: int) -> list[str]:  # noqa: ARG002
        """Return the number of the epoch, which tells a window's first elements."""
        return [f"{parameters(epoch)[0]} AS {_EPOCH}"]

    def spread(self, groups: DataFrame, bounds: Thresholds) -> DataFrame:
        """Return groups once for each window that takes them, with its ``END`` and how many of their elements came when it was due."""
        slices = self.slices
        if slices is None:
            return groups.selectExpr("*", f"{MAX_WATERMARK}L AS {END}", f"0L AS {_TAKEN_LATE}")
        (ended,) = parameters(bounds.window_expired)
        (due,) = parameters(bounds.fired + self.width, varying=END)
        grid = slices.last_end(0)
        first = f"greatest({START} + {slices.width}L, {ended} + 1L)"
        last = f"{START} - pmod({START} - {slices.offset}L, {slices.starts}L) + {slices.span}L"
        each = f"sequence({first} + pmod({grid}L - {first}, {slices.ends}L), {last}, {slices.ends}L)"
        start = f"{END} - 1L - pmod({END} - 1L - {slices.offset}L, {slices.span}L)" if slices.growing else f"{END} - {slices.span}L"
        windows = groups.selectExpr("*", f"explode({each}) AS {END}").drop(START)
        return windows.selectExpr("*", f"{start} AS {START}", f"if({END} <= {due}, {_TAKEN}, 0L) AS {_TAKEN_LATE}")

    def merged(self, state: DataFrame, *, extra: Sequence[Column] = ()) -> DataFrame:
        """Return state rows merged to one per key and window."""
        kept = (f"min_by({FIRST_TIME}, {_EPOCH}) AS {FIRST_TIME}", f"max({_NEWEST}) AS {_NEWEST}", f"min({_EPOCH}) AS {_EPOCH}")
        counts = (f"sum({_TAKEN}) AS {_TAKEN}", f"sum({_TAKEN_LATE}) AS {_TAKEN_LATE}")
        return self.partials.grouped(state, START, END, extra=[*map(F.expr, (*kept, *counts)), *extra])

    def results(self, fired: DataFrame, times: Times) -> DataFrame:
        """Return the result rows of windows that fired: keys, bounds, aggregates, pane, and the hidden result time."""
        due_before, due = parameters(*(min(at, MAX_WATERMARK - 1) + 1 for at in (times.watermark_before, times.watermark)), varying=END)
        bounded = self.slices is not None
        time = f"{END} - 1L" if bounded else _NEWEST
        return fired.selectExpr(
            *self.partials.key_results,
            f"timestamp_millis({START}) AS window_start" if bounded else "CAST(NULL AS TIMESTAMP) AS window_start",
            f"timestamp_millis({END}) AS window_end" if bounded else "CAST(NULL AS TIMESTAMP) AS window_end",
            *self.partials.results,
            f"CASE WHEN {END} <= {due_before} THEN 'LATE' WHEN {END} <= {due} THEN 'ON_TIME' ELSE 'EARLY' END AS pane_timing",
            f"CAST({_INDEX} AS INT) AS pane_index",
            f"{time} AS {TIME}",
            f"struct('{self.node.uid}' AS origin, {time} AS block, {self.partials.key_hash} AS row) AS {POSITION}",
        )


class TriggeredRun(AbsorbingRun):
    """Windows with a trigger in one epoch."""

    step: TriggeredStep

    def __init__(self, step: TriggeredStep, setting: EpochSetting) -> None:
        super().__init__(step, setting)
        self._counts: Observation | None = None

    @cached_property
    def thresholds(self) -> Thresholds:
        """Bounds of the epoch before, by slices, and the end of the last window that was gone."""
        slices = self.step.slices
        if slices is None:
            return Thresholds(FIRST_START, FIRST_START, MIN_WATERMARK)
        gone = self.expired_before
        fired = max(FIRST_START, slices.last_fired(self.setting.before.watermark))
        return Thresholds(max(FIRST_START, slices.last_expired(gone - 1, 0)), fired, gone)

    @property
    def expired_before(self) -> int:
        """The end of the last window that was gone before this epoch."""
        return self.forgotten(self._gone_at(self.setting.before.watermark))

    @property
    def expired(self) -> int:
        """The end of the last window that is gone after this epoch."""
        return max(self.expired_before, self._gone_at(self.watermark))

    def _gone_at(self, watermark: int) -> int:
        if self.step.slices is None:
            return MAX_WATERMARK if watermark == MAX_WATERMARK else MIN_WATERMARK
        return self.step.slices.last_end(watermark - self.step.lateness)

    @cached_property
    def times(self) -> Times:
        """Of the epoch; to be asked for when its watermark is known."""
        clock = self.setting.processing_time
        return Times(self.setting.before.watermark, self.watermark, self.setting.before.counters.get(_CLOCK, clock), clock)

    def fire(self, watermark: int, observation: Observation) -> DataFrame | None:
        """Return the panes of an epoch, None where there are none; decides and writes them."""
        del observation
        self.watermark = watermark
        if self.tables.empty:
            return None
        gathered = self._gathered()
        if gathered is None:
            return None
        self._counts = Observation()
        due_before, due = parameters(*(min(at, MAX_WATERMARK - 1) + 1 for at in (self.times.watermark_before, watermark)), varying=END)
        counted = self._decided(gathered).observe(
            self._counts,
            F.expr(f"count_if({END} > {due}) AS early"),
            F.expr(f"count_if({END} <= {due} AND {END} > {due_before}) AS on_time"),
            F.expr(f"count_if({END} <= {due_before}) AS late"),
            F.expr(f"collect_set(CASE WHEN {END} <= {due} AND {END} > {due_before} THEN {END} END) AS closed"),
            F.expr(f"collect_set(CASE WHEN {END} <= {due_before} THEN {START} END) AS refired"),
        )
        written = self.tables.write(counted, PANES)
        crash_point("state-staged")
        return self.step.results(self.tables.read(written, counted.schema), self.times) if written else None

    def fired(self, observation: Observation) -> Fired:
        """Return the counts of panes that were written."""
        del observation
        found = self._counts.get if self._counts is not None else {}
        refired = tuple(sorted(found.get("refired") or ())[-MAX_LISTED_WINDOWS:])
        counts = {name: found.get(name) or 0 for name in ("early", "on_time", "late")}
        return Fired(**counts, closed=len(found.get("closed") or ()), refired=refired)

    def _gathered(self) -> DataFrame | None:
        """Return the state rows of windows that may fire; ``_ADDED`` tells those of this epoch. None where there are none."""
        alive = self.expired_before + 1
        added = self.tables.added if self.absorbed is not None else []
        older = [file for file in overlapping(self.tables.files(), alive, MAX_WATERMARK) if file not in added]
        parts = []
        span = waits(self.step.trigger, self.times)
        low, high = (max(alive, span[0] + 1), span[1]) if span else (1, 0)
        timely = overlapping(older, low, high) if low <= high else []
        if timely:
            parts.append(self._between(timely, low, high).withColumn(_ADDED, F.lit(False)))
        if added:
            new = self.tables.read(added)
            parts.append(new.withColumn(_ADDED, F.lit(True)))
            touched = self._same_windows(self.tables.read(older), new)
            if timely:
                first, last = parameters(low, high, varying=END)
                touched = touched.where(f"{END} NOT BETWEEN {first} AND {last}")
            parts.append(touched.withColumn(_ADDED, F.lit(False)))
        return reduce(DataFrame.unionByName, parts) if parts else None

    def _decided(self, gathered: DataFrame) -> DataFrame:
        """Return merged windows that fire, with the index of the pane."""
        counts = [
            f"coalesce(sum(CASE WHEN NOT {_ADDED} THEN {_TAKEN} END), 0L) AS {BEFORE}",
            f"coalesce(sum(CASE WHEN {_ADDED} THEN {_TAKEN} END), 0L) AS {NOW}",
            f"coalesce(sum(CASE WHEN NOT {_ADDED} THEN {_TAKEN_LATE} END), 0L) AS {LATE_BEFORE}",
            f"coalesce(sum(CASE WHEN {_ADDED} THEN {_TAKEN_LATE} END), 0L) AS {LATE_NOW}",
        ]
        merged = self.step.merged(gathered, extra=[F.expr(sql) for sql in counts])
        alive = f"{END} > {parameters(self.expired_before, varying=END)[0]}"
        firing = merged.where(f"{alive} AND ({fires(self.step.trigger, self.times)})").drop(_TAKEN, _TAKEN_LATE, _EPOCH)
        before = self.tables.files(PANES)
        if not before:
            return firing.selectExpr("*", f"0L AS {_INDEX}", f"1 AS {_PANE}")
        keys = self._window_columns
        panes = self._panes(before).groupBy(*keys).agg(F.expr(f"sum({_PANE}) AS {_INDEX}"))
        named = panes.toDF(*(f"__tm_of_{number}" for number in range(len(keys))), _INDEX)
        same = reduce(lambda a, b: a & b, (firing[key].eqNullSafe(named[f"__tm_of_{number}"]) for number, key in enumerate(keys)))
        joined = firing.join(named, same, "left").drop(*named.columns[:-1])
        return joined.withColumns({_INDEX: F.coalesce(F.col(_INDEX), F.lit(0).cast("bigint")), _PANE: F.lit(1)})

    @property
    def _window_columns(self) -> list[str]:
        return [*map(quoted, self.step.partials.keys), START, END]

    def _same_windows(self, rows: DataFrame, others: DataFrame) -> DataFrame:
        """Return the rows whose key and window others have, too."""
        keys = self._window_columns
        wanted = others.select(*keys).distinct().toDF(*(f"__tm_of_{number}" for number in range(len(keys))))
        same = reduce(lambda a, b: a & b, (rows[key].eqNullSafe(wanted[name]) for key, name in zip(keys, wanted.columns, strict=True)))
        return rows.join(wanted, same, "left_semi")

    def _between(self, files: Sequence[StateFile], low: int, high: int) -> DataFrame:
        first, last = parameters(low, high, varying=END)
        return self.tables.read(files).where(f"{END} BETWEEN {first} AND {last}")

    def _panes(self, files: Sequence[StateFile]) -> DataFrame:
        if self.tables.schema is None:
            raise ValueError("no state was written yet")
        kept = {*self.step.partials.keys, START, END}
        columns = [field for field in self.tables.schema if field.name in kept]
        return self.tables.read(files, StructType([*columns, StructField(_PANE, IntegerType())]))

    def upkeep(self) -> Callable[[], None] | None:
        """Forget files of windows that are gone; return the merging of others into larger ones."""
        gone = [
            file
            for part in (MAIN, PANES)
            for file in self.tables.files(part)
            if file.max_time is not None and file.max_time <= self.expired
        ]
        self.tables.drop(gone)
        plans = [(part, group) for part in (MAIN, PANES) for group in plan_compaction(self.tables.files(part)).merge]
        return partial(self._merge_files, plans) if plans else None

    def _merge_files(self, plans: Sequence[tuple[str, tuple[StateFile, ...]]]) -> None:
        low = self.expired + 1
        for part, group in plans:
            if part == MAIN:
                merged = self.merged_for_compaction(group)
            else:
                first, last = parameters(low, MAX_WATERMARK, varying=END)
                rows = self._panes(group).where(f"{END} BETWEEN {first} AND {last}")
                merged = rows.groupBy(*self._window_columns).agg(F.expr(f"CAST(sum({_PANE}) AS INT) AS {_PANE}"))
            self.tables.write(merged.coalesce(1), part, newest=max(file.epoch for file in group))
            self.tables.drop(group)
            crash_point("compaction-staged")

    def merged_for_compaction(self, files: Sequence[StateFile]) -> DataFrame:
        """Return the rows of files, merged, without those of windows that are gone."""
        return self.step.merged(self._between(files, self.expired + 1, MAX_WATERMARK))

    def after(self) -> OperatorState:
        """Return the operator's state after this epoch."""
        return self.tables.after(self.watermark, {EXPIRED: self.expired, _CLOCK: self.setting.processing_time})

    @property
    def oldest_open_window(self) -> int | None:
        """The start of the oldest window that is not gone; None for the global window, which has none."""
        slices = self.step.slices
        oldest = min((file.min_time for file in self.tables.files() if file.min_time is not None), default=None)
        if slices is None or oldest is None:
            return None
        return slices.start_of(max(oldest, self.expired + slices.ends))


def _slices_of(node: WindowNode) -> Slices | None:
    match node.assigner:
        case Sliding() | Cumulative():
            return Slices.of(node.assigner)
        case Tumbling(size, offset):
            return Slices(size, size, size, size, offset, growing=False)
        case GlobalWindows():
            return None
    raise TypeError(f"no step for windows of kind {type(node.assigner).__name__}")

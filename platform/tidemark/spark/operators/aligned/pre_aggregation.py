"""Pre-aggregation of aligned windows: one pass that groups an epoch's input by key and start, and counts it."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import astuple, dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from pyspark.sql import Observation

from tidemark.crashpoints import crash_point
from tidemark.graph.operators.window.node import WindowNode
from tidemark.semantics.watermarks.shortfalls import least_kept
from tidemark.semantics.watermarks.watermarks import MIN_WATERMARK
from tidemark.spark.columns.expressions import ROW_STATUS, ROWS, START, TIME
from tidemark.spark.columns.row_counts import FILTERED_START, PASSING, RowCounter
from tidemark.spark.frame_steps import FrameSteps
from tidemark.spark.operators.base.contract import OperatorContext, PortInput
from tidemark.spark.operators.base.late_metrics import (
    SHORTFALL,
    most_late,
    observed_shortfalls,
    observed_starts,
    observed_windows,
    shortfall_metrics,
    shortfall_sql,
    window_metric,
)
from tidemark.spark.operators.base.partials import Partials
from tidemark.spark.operators.base.tables import MAIN, StateTables
from tidemark.spark.operators.base.touched_times import late_metric, listed_starts
from tidemark.spark.operators.base.windows import ElementCounts, WindowEpoch, WindowRuntime
from tidemark.spark.prepared.runtime_literals import runtime_literals
from tidemark.state.gc.compaction import CompactionPlan, plan_compaction
from tidemark.state.log.records import OperatorState, StateFile

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

LATEST = "__tm_latest"
FIRST_START = FILTERED_START + 10**6
EXPIRED = "expired"


@dataclass(frozen=True)
class Thresholds:
    """Bounds of an epoch: rows up to the start ``expired`` are late, those up to ``fired`` belong to a window that has fired.

    ``window_expired`` is the end of the last window that accepts no more elements, ``reached`` the start after ``fired``;
    ``least_kept`` the least ``end - 1`` of a window whose elements are not late.
    """

    expired: int
    fired: int
    window_expired: int = MIN_WATERMARK
    reached: int = MIN_WATERMARK
    least_kept: int = MIN_WATERMARK

    @property
    def starts(self) -> list[str]:
        """SQL of ``expired`` and ``fired``, of one array: where both are the same, Spark would find conditions on two arrays to be one."""
        return runtime_literals(self.expired, self.fired)


class AlignedRuntime(WindowRuntime):
    """Groups rows by key and the start of their window, or of their slice of several windows.

    Args:
        node: the operator.
        width: length of a slice, milliseconds.
        offset: of the slices from 1970-01-01.

    ``further`` are additional columns of a group, as aggregate expressions over its rows.
    """

    def __init__(self, node: WindowNode, width: int, offset: int) -> None:
        super().__init__(node)
        self.partials = Partials(node)
        self.width = width
        self.offset = offset
        self.lateness = node.allowed_lateness_ms
        self.further: tuple[str, ...] = ()

    def time(self, now: int) -> str:
        """Return the SQL of a row's time; ``now`` is the epoch's processing time."""
        return TIME if self.node.assigner.domain == "event" else runtime_literals(now, varying=TIME)[0]

    def start(self, now: int) -> str:
        """Return the SQL of the start of the slice that a row lies in; ``now`` is the epoch's processing time."""
        time = self.time(now)
        return f"{time} - pmod({time} - {self.offset}L, {self.width}L)"

    @property
    def grouped_by(self) -> tuple[str, ...]:
        """Columns of ``started`` rows by which they are grouped besides the keys and the start."""
        return ()

    def started(self, rows: DataFrame, now: int) -> FrameSteps:
        """Return rows with the start of their slice."""
        return FrameSteps(rows).select("*", f"{self.start(now)} AS {START}")

    @property
    def time_column(self) -> str:
        """The column whose bounds are recorded for each state file."""
        return START

    @property
    def can_fuse_counts(self) -> bool:
        """Whether rows that were filtered out before the window can be grouped together with the others."""
        return self.partials.can_fuse_counts

    def outside_windows(self, start: str) -> str | None:
        """Return the condition of rows that are in no window, None where there are none; ``start`` is that of their slice."""
        del start
        return None

    def bounded(self, groups: FrameSteps) -> FrameSteps:
        """Return groups with the columns that the conditions below use."""
        return groups

    def accepted(self, bounds: Thresholds) -> str:
        """Return the condition of groups that a window accepts."""
        kept = f"{START} > {bounds.starts[0]}"
        nowhere = self.outside_windows(START)
        return f"({kept} AND NOT ({nowhere}))" if nowhere else kept

    def late_rows(self, rows: DataFrame, bounds: Thresholds, now: int) -> DataFrame:
        """Return the rows that no window accepts; ``now`` is the epoch's processing time."""
        # The threshold is the start of a slice, so the rows' slices need not be computed.
        late = f"{self.time(now)} < {runtime_literals(bounds.expired + self.width, varying=TIME)[0]}"
        nowhere = self.outside_windows(f"({self.start(now)})")
        return rows.where(f"{late} OR {nowhere}" if nowhere else late)

    @property
    def end_of_late(self) -> str | None:
        """SQL of the end of the last window of a group of late rows; None where no window ends."""
        return f"{START} + {self.width}L"

    @property
    def window_of_late(self) -> str:
        """SQL of what ``last_window_of`` is given for a group of late rows."""
        return START

    def last_window_of(self, start: int) -> int | None:
        """Return the start of the last window that covers a slice, None where none does."""
        return start

    @abstractmethod
    def marks(self, fired: str, bounds: Thresholds, epoch: int) -> list[str]:
        """Return the additional columns of a state row; ``fired`` is the condition of rows of a window that has fired."""

    def pre_aggregate(
        self,
        rows: DataFrame,
        bounds: Thresholds,
        observation: Observation,
        counter: RowCounter | None = None,
        *,
        now: int = 0,
        epoch: int = 0,
    ) -> DataFrame:
        """Return the state rows that an epoch's input adds.

        Args:
            rows: passing rows; with ``counter``, which requires ``can_fuse_counts``, all rows with their status.
            bounds: of the epoch.
            observation: will have the counts, for ``counted``, after the rows were written.
            counter: of the rows; its counts come with the observation.
            now: the epoch's processing time.
            epoch: its number.
        """
        grouped = self.bounded(self._grouped(rows, now) if counter is None else self._grouped_with_filtered(rows, now))
        passing, kept, fired = f"{START} >= {FIRST_START}L", self.accepted(bounds), f"{START} <= {bounds.starts[1]}"
        late = f"{passing} AND NOT ({kept})"
        nowhere, end = self.outside_windows(START), self.end_of_late
        missed = f"{late} AND NOT ({nowhere})" if nowhere else late
        last = None if end is None else f"{end} - 1L"
        shortfall = shortfall_sql(missed, last, runtime_literals(bounds.least_kept)[0])
        groups = grouped.select("*", f"{shortfall} AS {SHORTFALL}").observe(
            observation,
            f"sum(CASE WHEN {kept} THEN {ROWS} END) AS accepted",
            f"sum(CASE WHEN {late} THEN {ROWS} END) AS late",
            f"count_if({kept}) AS groups",
            f"count_if({fired} AND {kept}) AS refired",
            late_metric(f"{SHORTFALL} IS NOT NULL", self.window_of_late, SHORTFALL, step=self.width),
            *shortfall_metrics(ROWS),
            *window_metric(missed, self.window_of_late, end, ROWS),
            *(counter.group_metrics(LATEST, observation) if counter else ()),
        )
        state = f"* EXCEPT ({ROWS}, {SHORTFALL}{f', {LATEST}' if counter else ''})"
        return self.in_windows_of(groups.where(kept).select(state, *self.marks(fired, bounds, epoch)).frame(), bounds)

    def in_windows_of(self, groups: DataFrame, bounds: Thresholds) -> DataFrame:
        """Return the state rows of groups: the groups, or one row for each window that they are in."""
        del bounds
        return groups

    def counted(self, found: Mapping[str, Any], watermark: int) -> ElementCounts:
        """Return the counts of a pass that was written, by what it observed; ``watermark`` is W(n-1)."""
        # Those of long ago may be the begin of a day, which no window has.
        windows = [(start, self.last_window_of(start)) for start in observed_starts(found)]
        late = found["late"] or 0
        of_windows = [(rows, self.last_window_of(start), end) for rows, start, end in observed_windows(found)]
        return ElementCounts(
            accepted=found["accepted"] or 0,
            late=late,
            groups=found["groups"],
            refired_groups=found["refired"],
            late_windows=listed_starts(start if window is None else window for start, window in windows),
            shortfalls=observed_shortfalls(found, late, watermark=watermark, allowed_lateness_ms=self.lateness),
            most_late=most_late(of_windows),
        )

    def _grouped(self, rows: DataFrame, now: int) -> FrameSteps:
        keyed = self.started(rows, now)
        keys: list[str | Column] = [*self.partials.key_columns, START, *self.grouped_by]
        return keyed.group(keys, *self.partials.creations, f"count(1) AS {ROWS}", *self.further)

    def _grouped_with_filtered(self, rows: DataFrame, now: int) -> FrameSteps:
        passing = f"{ROW_STATUS} = {PASSING}"
        with_status = FrameSteps(rows).select(
            *(f"if({passing}, {name}, NULL) AS {name}" for name in sorted(self.partials.columns_read)),
            f"if({passing}, {self.start(now)}, {FILTERED_START}L + {ROW_STATUS}) AS {START}",
            TIME,
        )
        counts = (f"count(1) AS {ROWS}", f"max({TIME}) AS {LATEST}", *self.further)
        return with_status.group([*self.partials.key_columns, START], *self.partials.creations, *counts)


class AlignedEpoch(WindowEpoch):
    """Windows whose state is rows of partials, in one epoch."""

    runtime: AlignedRuntime

    def __init__(self, runtime: AlignedRuntime, context: OperatorContext) -> None:
        super().__init__(runtime, context)
        self.tables = StateTables(context, runtime.node.place, runtime.time_column)

    @property
    @abstractmethod
    def thresholds(self) -> Thresholds:
        """Bounds that decide which of the epoch's rows are late or refire a window."""

    @property
    @abstractmethod
    def expired(self) -> int:
        """The last start whose state is not needed after this epoch."""

    @abstractmethod
    def merged_for_compaction(self, files: Sequence[StateFile]) -> DataFrame:
        """Return the rows of files of the main table, merged, without those that are no longer needed."""

    @property
    def least_kept(self) -> int:
        """The least ``end - 1`` of a window whose elements are not late in this epoch."""
        return least_kept(self.context.before.watermark, self.runtime.lateness)

    def forgotten(self, start: int) -> int:
        """Return the last expired start of the epoch before, which greater allowed lateness does not bring back."""
        return max(start, self.context.before.counters.get(EXPIRED, MIN_WATERMARK))

    def process_elements(self, elements: PortInput) -> ElementCounts:
        """Process an epoch's input into state; one Spark job."""

        def state_rows(numbers: Sequence[int]) -> tuple[DataFrame, Sequence[Observation]]:
            (*bounds, now, epoch), given = numbers[:own], numbers[own:]
            counts = Observation()
            rows, observations = elements.build(given)
            state = self.runtime.pre_aggregate(rows, Thresholds(*bounds), counts, elements.counter, now=now, epoch=epoch)
            return state, (counts, *observations)

        numbers: tuple[int, ...] = (*astuple(self.thresholds), self.context.processing_time, self.context.epoch)
        own, numbers = len(numbers), numbers + elements.numbers
        prepared = self.context.prepared[f"process {self.context.uid} {elements.shape}".strip()]
        found = prepared.run(elements.scans, numbers, state_rows) if elements.files else None
        if found is not None:
            self.tables.write_rows(found.table, found.schema)
            counts, *others = found.observed
            if elements.counter is not None:
                elements.counter.set_counts(counts)
            else:
                elements.take_counts(others)
        else:
            rows, (observation, *_) = state_rows(numbers)
            self.tables.write_input(rows)
            counts = observation.get
        self.counts = self.runtime.counted(counts, self.context.before.watermark)
        crash_point("state-staged")
        return self.counts

    def late_rows(self, rows: DataFrame) -> DataFrame:
        """Return the rows in windows up to the last expired one, or in none."""
        return self.runtime.late_rows(rows, self.thresholds, self.context.processing_time)

    def compact(self) -> Callable[[], None] | None:
        """Drop fully expired files; return the work that merges others into larger ones, None where there is nothing to merge."""
        plan = plan_compaction(self.tables.files(), expired_before=self.expired + 1)
        self.tables.drop(plan.drop)
        return partial(self.merge_files, plan) if plan.merge else None

    def merge_files(self, plan: CompactionPlan) -> None:
        """Merge files into larger ones; a Spark job for each merge."""
        merged: set[StateFile] = set()
        for group in plan.merge:
            newest = max(file.epoch for file in group)
            self.tables.write(self.merged_for_compaction(group).coalesce(1), MAIN, newest=newest)
            merged |= set(group)
            crash_point("compaction-staged")
        self.tables.drop(merged)

    def snapshot(self) -> OperatorState:
        """Return the operator's state after this epoch."""
        return self.tables.snapshot(self.watermark, {EXPIRED: self.expired})

"""What tumbling and sliced windows share: one pass that groups an epoch's input by key and start, and counts it."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from pyspark.sql import Observation
from pyspark.sql import functions as F

from tidemark.crashpoints import crash_point
from tidemark.graph.operators.window.node import WindowNode
from tidemark.semantics.watermarks.watermarks import MIN_WATERMARK
from tidemark.spark.columns.expressions import ROWS, START, TIME, VERDICT, quoted
from tidemark.spark.columns.tallies import ALIVE, DEAD, Tally
from tidemark.spark.operators.base.contract import OperatorContext
from tidemark.spark.operators.base.partials import Partials
from tidemark.spark.operators.base.runtime_literals import parameters
from tidemark.spark.operators.base.tables import MAIN, StateTables
from tidemark.spark.operators.base.windows import MAX_LISTED_WINDOWS, ElementCounts, WindowEpoch, WindowRuntime
from tidemark.state.gc.compaction import CompactionPlan, plan_compaction
from tidemark.state.log.records import OperatorState, StateFile

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

LATEST = "__tm_latest"
FIRST_START = DEAD + 10**6
EXPIRED = "expired"


@dataclass(frozen=True)
class Thresholds:
    """Bounds of an epoch: rows up to the start ``expired`` are late, those up to ``fired`` belong to a window that has fired.

    ``window_expired`` is the end of the last window that takes nothing any more.
    """

    expired: int
    fired: int
    window_expired: int = MIN_WATERMARK


class AbsorbingStep(WindowRuntime):
    """Groups rows by key and the start of what they lie in: a window, or a slice of several windows.

    Args:
        node: the operator.
        width: length of a slice, milliseconds.
        offset: of the slices from 1970-01-01.

    ``further`` are more columns that a group is given, as aggregate expressions over its rows.
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
        return TIME if self.node.assigner.domain == "event" else parameters(now, varying=TIME)[0]

    def start(self, now: int) -> str:
        """Return the SQL of the start of the slice that a row lies in; ``now`` is the epoch's processing time."""
        time = self.time(now)
        return f"{time} - pmod({time} - {self.offset}L, {self.width}L)"

    @property
    def time_column(self) -> str:
        """The column whose bounds the record keeps of each state file."""
        return START

    @property
    def can_fuse_counts(self) -> bool:
        """Whether rows that dropped out before the window can be grouped beside the others."""
        return self.partials.plain

    def outside_windows(self, start: str) -> str | None:
        """Return the condition of rows that lie in no window at all, None where there are none; ``start`` is of their slice."""
        del start
        return None

    def last_window_of(self, start: int) -> int | None:
        """Return the start of the last window that covers a slice, None where none does."""
        return start

    @abstractmethod
    def marks(self, fired: str, bounds: Thresholds, epoch: int) -> list[str]:
        """Return the further columns of a state row; ``fired`` is the condition of those that belong to a window that has fired."""

    def absorb(
        self, rows: DataFrame, bounds: Thresholds, observation: Observation, tally: Tally | None = None, *, now: int = 0, epoch: int = 0
    ) -> DataFrame:
        """Return the state rows that an epoch's input adds.

        Args:
            rows: living rows; with ``tally``, which asks that the step ``can_fuse_counts``, all rows with their verdicts.
            bounds: of the epoch.
            observation: will hold the counts, to be read by ``counted`` after the rows were written.
            tally: of the rows; its counts come with the observation.
            now: the epoch's processing time.
            epoch: its number.
        """
        grouped = self._grouped(rows, now) if tally is None else self._grouped_with_dead(rows, now)
        last, fired_last = parameters(bounds.expired, bounds.fired)
        alive, kept, fired = f"{START} >= {FIRST_START}L", f"{START} > {last}", f"{START} <= {fired_last}"
        if nowhere := self.outside_windows(START):
            kept = f"({kept} AND NOT ({nowhere}))"
        late = f"{alive} AND NOT ({kept})"
        groups = grouped.observe(
            observation,
            F.expr(f"sum(CASE WHEN {kept} THEN {ROWS} END) AS accepted"),
            F.expr(f"sum(CASE WHEN {late} THEN {ROWS} END) AS late"),
            F.expr(f"count_if({kept}) AS groups"),
            F.expr(f"count_if({fired} AND {kept}) AS refired"),
            F.expr(f"collect_set(CASE WHEN {late} THEN {START} END) AS late_starts"),
            *(tally.of_groups(LATEST, observation) if tally else ()),
        )
        state = [quoted(name) for name in grouped.columns if name not in (ROWS, LATEST)]
        return self.spread(groups.where(kept).selectExpr(*state, *self.marks(fired, bounds, epoch)), bounds)

    def spread(self, groups: DataFrame, bounds: Thresholds) -> DataFrame:
        """Return the state rows of groups: themselves, or one for each window that they are in."""
        del bounds
        return groups

    def counted(self, observation: Observation) -> ElementCounts:
        """Read the counts of a pass that was written."""
        found = observation.get
        windows = set(map(self.last_window_of, found["late_starts"] or ()))
        return ElementCounts(
            accepted=found["accepted"] or 0,
            late=found["late"] or 0,
            groups=found["groups"],
            refired_groups=found["refired"],
            late_windows=tuple(sorted(start for start in windows if start is not None)[-MAX_LISTED_WINDOWS:]),
        )

    def _grouped(self, rows: DataFrame, now: int) -> DataFrame:
        keyed = rows.withColumn(START, F.expr(self.start(now)))
        counts = map(F.expr, (f"count(1) AS {ROWS}", *self.further))
        return keyed.groupBy(*self.partials.key_columns, START).agg(*self.partials.creations, *counts)

    def _grouped_with_dead(self, rows: DataFrame, now: int) -> DataFrame:
        alive = f"{VERDICT} = {ALIVE}"
        judged = rows.selectExpr(
            *(f"if({alive}, {name}, NULL) AS {name}" for name in sorted(self.partials.columns_read)),
            f"if({alive}, {self.start(now)}, {DEAD}L + {VERDICT}) AS {START}",
            TIME,
        )
        counts = map(F.expr, (f"count(1) AS {ROWS}", f"max({TIME}) AS {LATEST}", *self.further))
        return judged.groupBy(*self.partials.key_columns, START).agg(*self.partials.creations, *counts)


class AbsorbingRun(WindowEpoch):
    """Windows whose state is rows of partials, in one epoch."""

    step: AbsorbingStep

    def __init__(self, step: AbsorbingStep, setting: OperatorContext) -> None:
        super().__init__(step, setting)
        self.tables = StateTables(setting, step.node.place, step.time_column)

    @property
    @abstractmethod
    def thresholds(self) -> Thresholds:
        """Bounds by which the epoch's rows are judged."""

    @property
    @abstractmethod
    def expired(self) -> int:
        """The last start of which nothing is needed any more after this epoch."""

    @abstractmethod
    def merged_for_compaction(self, files: Sequence[StateFile]) -> DataFrame:
        """Return the rows of files of the main table, merged, without those that are needed no more."""

    def forgotten(self, start: int) -> int:
        """Return the last expired start of the epoch before, which greater lateness does not bring back."""
        return max(start, self.setting.before.counters.get(EXPIRED, MIN_WATERMARK))

    def take(self, rows: DataFrame, tally: Tally | None = None) -> ElementCounts:
        """Take an epoch's input into state; one Spark job."""
        observation = Observation()
        now, epoch = self.setting.processing_time, self.setting.epoch
        self.tables.absorb(self.step.absorb(rows, self.thresholds, observation, tally, now=now, epoch=epoch))
        self.counts = self.step.counted(observation)
        crash_point("state-staged")
        return self.counts

    def late_rows(self, rows: DataFrame) -> DataFrame:
        """Return which rows lie in windows up to the last expired one, or in none."""
        now, step = self.setting.processing_time, self.step
        # The threshold is the start of a slice, so no row's own slice need be worked out.
        late = f"{step.time(now)} < {parameters(self.thresholds.expired + step.width, varying=TIME)[0]}"
        nowhere = step.outside_windows(f"({step.start(now)})")
        return rows.where(f"{late} OR {nowhere}" if nowhere else late)

    def compact(self) -> Callable[[], None] | None:
        """Forget files that are wholly expired; return the merging of others into larger ones, None where there is nothing to merge."""
        plan = plan_compaction(self.tables.files(), expired_before=self.expired + 1)
        self.tables.drop(plan.drop)
        return partial(self.merge_files, plan) if plan.merge else None

    def merge_files(self, plan: CompactionPlan) -> None:
        """Merge files into larger ones; a Spark job for each merge."""
        gone: set[StateFile] = set()
        for group in plan.merge:
            newest = max(file.epoch for file in group)
            self.tables.write(self.merged_for_compaction(group).coalesce(1), MAIN, newest=newest)
            gone |= set(group)
            crash_point("compaction-staged")
        self.tables.drop(gone)

    def snapshot(self) -> OperatorState:
        """Return the operator's state after this epoch."""
        return self.tables.after(self.watermark, {EXPIRED: self.expired})

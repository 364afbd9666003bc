"""Session windows in one epoch: input and open sessions are merged in one pass, then due sessions are read back and fire.

An epoch reads and writes all sessions where they are few; those that it touches, where many are open; none, where moreover nothing is
late or due for some time: then its input is deferred, and merged some epochs later in one pass.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial, reduce
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as F
from pyspark.sql.types import StructType
from pyspark.storagelevel import StorageLevel

from tidemark.crashpoints import crash_point
from tidemark.semantics.watermarks.shortfalls import least_kept
from tidemark.semantics.watermarks.watermarks import MAX_WATERMARK, MIN_WATERMARK, clamp_watermark
from tidemark.spark.columns.expressions import ROW_STATUS, ROWS, START, column, quoted
from tidemark.spark.columns.row_counts import PASSING, RowCounter
from tidemark.spark.columns.state_files import overlapping
from tidemark.spark.frame_steps import FrameSteps
from tidemark.spark.operators.base.contract import Observed, OperatorContext, PortInput
from tidemark.spark.operators.base.late_metrics import (
    SHORTFALL,
    most_late,
    observed_shortfalls,
    observed_windows,
    shortfall_metrics,
    shortfall_sql,
    window_metric,
)
from tidemark.spark.operators.base.tables import MAIN, StateTables
from tidemark.spark.operators.base.windows import MAX_LISTED_WINDOWS, ElementCounts, Panes, WindowEpoch
from tidemark.spark.operators.session.session_input import END
from tidemark.spark.operators.session.session_merging import HELD, OUT, SESSION, STARTS_OUT, SessionMerging, classify_rows
from tidemark.spark.operators.session.session_state import EPOCH, PENDING, SessionState, bounds_column
from tidemark.spark.prepared.runtime_literals import runtime_literals
from tidemark.state.gc.compaction import CompactionPlan, plan_compaction
from tidemark.state.log.records import OperatorState, StateFile

if TYPE_CHECKING:
    from tidemark.spark.operators.session.session_runtime import SessionRuntime

FEW_ROWS = 100_000
"""Up to so many stored rows, rewriting all open sessions costs less than looking up those that an epoch touches."""

FEW_TOUCHED = 4
"""An epoch touches few sessions if its elements times this number are not more than the open sessions."""

MAX_TOUCHED = 1_000_000
"""The greatest number of keys that are broadcast to look up their sessions."""

MANY_OUT_OF_DATE = 4
"""Where stored rows are more than so many times the open sessions, all sessions are rewritten."""

MANY_IN_BUCKET = 4
"""From so many rows per bucket on, grouping them before the sort pays off."""

_EXPIRED, _OLDEST, NEXT_END, OPEN, TAKEN, _BUCKETS = "expired", "oldest", "next_end", "open", "rows", "buckets"


class SessionEpoch(WindowEpoch):
    """Sessions in one epoch."""

    runtime: SessionRuntime

    def __init__(self, runtime: SessionRuntime, context: OperatorContext) -> None:
        super().__init__(runtime, context)
        self.tables = StateTables(context, runtime.node.place, time=END)
        schema = self.tables.schema
        # Sessions that are still open keep their panes' columns even if no lateness is allowed any more.
        remembers = runtime.lateness > 0 or (schema is not None and PENDING in schema.names)
        self._remembers = remembers
        if schema is not None and STARTS_OUT in schema.names and OUT not in schema.names:
            # Written by an earlier release; files may be written before there is any input.
            self.tables.schema = StructType([*schema.fields, bounds_column()])
        self._state = SessionState(self.tables, runtime.partials, remembers=remembers)
        self._merging = SessionMerging(runtime.partials, remembers=remembers)
        self._before = list(context.before.files)
        self._expired_end = max(runtime.last_expired(context.before.watermark), context.before.counters.get(_EXPIRED, MIN_WATERMARK))
        self._alone = self._expired_end
        self._ahead: Observation | None = None
        self._found: dict[str, int] = {}

    @property
    def expired(self) -> int:
        """The last end whose state is dropped after this epoch; greater allowed lateness does not bring it back."""
        return max(self.runtime.last_expired(self.watermark), self._expired_end)

    @property
    def oldest_open_window(self) -> int | None:
        """The start of the oldest session that has not expired."""
        if not any(file.max_time is None or file.max_time > self.expired for file in self._open_files):
            return None
        return self._found.get(_OLDEST, self.context.before.counters.get(_OLDEST, MIN_WATERMARK))

    @property
    def _open_files(self) -> Sequence[StateFile]:
        """The files with open sessions."""
        return self.tables.files()

    @property
    def further_counts(self) -> dict[str, tuple[str | None, str]]:
        """Additional counts of merged sessions: by name, a function and its argument."""
        return {}

    def process_elements(self, elements: PortInput) -> ElementCounts:
        """Merge an epoch's input and the open sessions; one Spark job, two where only touched sessions are written."""
        fresh = self._fresh(elements.rows, elements.counter)
        older = [file for file in self._before if file.max_time is None or file.max_time > self._expired_end]
        if older:
            self.tables.require_types(fresh.schema)
        self._take(fresh, older)
        crash_point("state-staged")
        if self.counts is None:
            raise ValueError("nothing was absorbed")
        return self.counts

    def _take(self, fresh: DataFrame, older: Sequence[StateFile]) -> None:
        """Choose which sessions to write, and write them."""
        if not self._may_touch_few(older):
            self._write_sessions(fresh, older)
            return
        kept = fresh.persist(StorageLevel.MEMORY_AND_DISK)
        try:
            if not self._write_sessions(kept, older, most=min(MAX_TOUCHED, int(self._open_before / FEW_TOUCHED))):
                # There were more elements than in the epoch before.
                self.tables.drop(self.tables.added)
                self._write_sessions(kept, older)
        finally:
            kept.unpersist()

    def _write_sessions(self, fresh: DataFrame, older: Sequence[StateFile], *, most: int | None = None) -> bool:
        """Write all sessions, or with ``most`` only the touched ones; return False where there were more than ``most`` elements."""
        touched, observation = most is not None, Observation()
        # Stored sessions are looked up by broadcast keys: never more of them than that.
        stored = self._stored(older, None if most is None else fresh.limit(most + 1)) if older else None
        observed = self._observed(self._merging.merged(fresh, stored, self._expired_end), observation, touched=touched)
        wanted = observed.where(self._touched if touched else f"{SESSION} > 0")
        self.tables.write_input(self._state.written(wanted, self.context.epoch, self.context.before.watermark))
        if most is not None and (observation.get["rows"] or 0) > most:
            return False
        if not touched:
            self.tables.drop(self._before)
        self.counts = self._counted(observation, self.tables.added, touched=touched)
        return True

    def _stored(self, older: Sequence[StateFile], of: DataFrame | None) -> DataFrame:
        """Return stored sessions as they are after the epoch before: those with the keys of ``of``, or all."""
        return self._state.as_of(self._state.newest(older, self._expired_end, of=of), self.context.before.watermark)

    def open_sessions(self) -> DataFrame | None:
        """Return all open sessions as they are after the epoch before, for readers of state; None where nothing is stored."""
        older = [file for file in self._before if file.max_time is None or file.max_time > self._expired_end]
        return self._stored(older, None) if older else None

    @property
    def _touched(self) -> str:
        """The condition of merged sessions that have to be written."""
        return f"{SESSION} > 0 AND {ROWS} > 0"

    def _fresh(self, rows: DataFrame, counter: RowCounter | None) -> DataFrame:
        """Return the input as sessions, grouped first where that leaves far fewer rows; assumed to do so until known."""
        now, made, counters = self.context.processing_time, self.runtime.input, self.context.before.counters
        if made.can_be_single and (made.gap is None or counters.get(TAKEN, 0) < MANY_IN_BUCKET * counters.get(_BUCKETS, 0)):
            passing = rows if counter is None else counter.attached(rows, rows.columns).where(f"{ROW_STATUS} = {PASSING}").frame()
            return made.single(passing, now)
        return made.grouped(rows, now, self._alone) if counter is None else made.grouped_with_filtered(rows, now, self._alone, counter)

    @property
    def _open_before(self) -> int:
        return self.context.before.counters.get(OPEN, sum(file.rows for file in self._before))

    def _may_touch_few(self, older: Sequence[StateFile]) -> bool:
        """Whether many sessions are open, few stored rows are outdated, and the epoch before had few elements."""
        stored = sum(file.rows for file in older)
        touched_before = self.context.before.counters.get(TAKEN, 0)
        worth_it = stored > FEW_ROWS and touched_before * FEW_TOUCHED <= self._open_before
        return worth_it and stored <= MANY_OUT_OF_DATE * max(self._open_before, FEW_ROWS)

    def _observed(self, merged: DataFrame, observation: Observation, *, touched: bool) -> FrameSteps:
        """Return merged sessions, counted. Computes columns first: an observation is interpreted per row, a projection compiled."""
        late, taken = f"{SESSION} < 0", f"{SESSION} > 0 AND {ROWS} > 0"
        counts = {
            "late": ("sum", f"if({late}, {ROWS}, 0L)"),
            "late_starts": (None, f"if({late}, {START}, NULL)"),
            "oldest": ("min", f"if({late}, NULL, {START})"),
        }
        if self.runtime.input.gap:
            counts["buckets"] = ("sum", f"if({taken}, least({ROWS}, ({END} - {START}) DIV {self.runtime.input.gap}), 0L)")
        if touched:
            counts["held"] = ("sum", f"if({self._touched}, {HELD}, 0L)")
        if self._remembers:
            before = runtime_literals(self.context.before.watermark)[0]
            counts["refired"] = ("sum", f"if({taken} AND {END} - 1 <= {before}, 1L, 0L)")
        counts |= self.further_counts
        columns = {name: f"__tm_count_{name}" for name in counts}
        least = runtime_literals(least_kept(self.context.before.watermark, self.runtime.lateness))[0]
        shortfall = f"{shortfall_sql(late, f'{END} - 1L', least)} AS {SHORTFALL}"
        counted = FrameSteps(merged).select("*", shortfall, *(f"{sql} AS {columns[name]}" for name, (_, sql) in counts.items()))
        found = [f"{function}({columns[name]}) AS {name}" for name, (function, _) in counts.items() if function]
        further = (*shortfall_metrics(ROWS), *window_metric(late, START, END, ROWS))
        starts = newest(columns["late_starts"], "late_starts")
        return counted.observe(observation, f"sum({ROWS}) AS rows", *found, starts, *further)

    def _counted(self, observation: Observation, files: Sequence[StateFile], *, touched: bool) -> ElementCounts:
        found = observation.get
        rows, late = found["rows"] or 0, found["late"] or 0
        written = sum(file.rows for file in files)
        counters, before = self.context.before.counters, self.context.before.watermark
        oldest = MAX_WATERMARK if found["oldest"] is None else found["oldest"]
        self._found = {
            TAKEN: rows - late,
            _BUCKETS: found.get("buckets") or 0,
            NEXT_END: MIN_WATERMARK,
            _OLDEST: min(oldest, counters.get(_OLDEST, MIN_WATERMARK)) if touched else oldest,
            OPEN: self._open_before + written - (found["held"] or 0) if touched else written,
        }
        return ElementCounts(
            accepted=rows - late,
            late=late,
            groups=written,
            refired_groups=found["refired"] if self._remembers else 0,
            late_windows=tuple(sorted(set(found["late_starts"] or ()))),
            shortfalls=observed_shortfalls(found, late, watermark=before, allowed_lateness_ms=self.runtime.lateness),
            most_late=most_late(observed_windows(found)),
        )

    def late_rows(self, rows: DataFrame) -> DataFrame:
        """Return the late rows, determined again from the input and the state before the epoch."""
        names = rows.columns
        keys = [f"__tm_key_{number}" for number in range(len(self.node.keys))]
        made = self.runtime.input.bounded(rows, self.context.processing_time).where(self.runtime.input.may_be_late(self._expired_end))
        keyed = made.withColumns({key: column(expression) for key, (_, expression) in zip(keys, self.node.keys, strict=True)})
        older = [file for file in self._before if file.max_time is None or file.max_time > self._expired_end]
        stored = None
        if older:
            bare = self._state.rows(older, self._expired_end, bare=True)
            renamed = zip(self.runtime.partials.keys, keys, strict=True)
            stored = bare.selectExpr(*(f"{quoted(name)} AS {key}" for name, key in renamed), START, END)
        found = classify_rows(keyed, keys, self._expired_end, stored)
        return found.rows.where(f"{found.late}").select(*map(quoted, names))

    def emit(self, watermark: int, observation: Observation) -> DataFrame | None:
        """Return the panes due at a watermark, None where there cannot be any. Nothing runs yet."""
        self.watermark = watermark
        if self.tables.empty:
            return None
        low, high = clamp_watermark(self.context.before.watermark + 2), clamp_watermark(watermark + 1)
        parts = [part for part in (self._due_of_epoch(high), self._due_of_older(low, high)) if part is not None]
        if not parts:
            return None
        return self.runtime.results(reduce(DataFrame.unionByName, parts), self.context.before.watermark, observation)

    def _due_of_epoch(self, high: int) -> DataFrame | None:
        """Return due sessions that the epoch wrote: each one that it touched, if it ends by then, and others that had no pane yet."""
        files = overlapping(self.tables.added, MIN_WATERMARK, high)
        if not files:
            return None
        rows = self._state.rows(files, self._expired_end)
        if self.node.assigner.domain == "processing" and len(self.tables.added) == len(self.tables.files()):
            rows = self._with_next_end(rows, high)
        due = rows.where(f"{END} <= {runtime_literals(high, varying=END)[0]}")
        return due.where(PENDING) if self._remembers else due

    def _due_of_older(self, low: int, high: int) -> DataFrame | None:
        """Return due sessions that earlier epochs wrote and this one did not touch."""
        added = set(self.tables.added)
        files = overlapping([file for file in self.tables.files() if file not in added], low, high) if low <= high else []
        if not files:
            return None
        last, this = runtime_literals(high, self.context.epoch, varying=END)
        # A row that outdates another one ends no earlier.
        relevant = overlapping(self.tables.files(), low, MAX_WATERMARK)
        if self.counts is None:
            return self._with_next_end(self._state.newest(relevant, low - 1), high).where(f"{END} <= {last}")
        few = sum(file.rows for file in relevant) > FEW_ROWS >= sum(_rows_within(file, low, high) for file in files)
        of = self._state.rows(files, low - 1, bare=True).where(f"{END} <= {last}") if few else None
        return self._state.newest(relevant, low - 1, of=of).where(f"{END} <= {last} AND {EPOCH} <> {this}")

    def _with_next_end(self, rows: DataFrame, high: int) -> DataFrame:
        """Return rows with an observation of the least end after those that are due."""
        self._ahead = Observation()
        # Unread results are not computed, and nothing waits for them.
        self._found[NEXT_END] = max((file.max_time or high for file in self.tables.files()), default=high)
        return rows.observe(self._ahead, F.expr(f"min(CASE WHEN {END} > {runtime_literals(high, varying=END)[0]} THEN {END} END) AS next"))

    def emitted_panes(self, observation: Observed) -> Panes:
        """Read the counts of written results."""
        found = observation.get
        late = found.get("late") or 0
        on_time = found["panes"] - late
        self._found[OPEN] = max(0, self._found.get(OPEN, self._open_before) - on_time)
        if self._ahead is not None:
            following = self._ahead.get["next"]
            self._found[NEXT_END] = MAX_WATERMARK if following is None else following
        return Panes(on_time=on_time, late=late, closed=on_time, refired=tuple(sorted(set(found.get("refired") or ()))))

    def compact(self) -> Callable[[], None] | None:
        """Drop fully expired files; return the work that merges others into larger ones, None where there is nothing to merge."""
        plan = plan_compaction(self.tables.files(), expired_before=self.expired + 1)
        self.tables.drop(plan.drop)
        return partial(self._compact, plan) if plan.merge else None

    def _compact(self, plan: CompactionPlan) -> None:
        for group in plan.merge:
            last = max(file.epoch for file in group)
            self.tables.write(self._state.newest(group, self.expired).coalesce(1), MAIN, newest=last)
            self.tables.drop(group)
            crash_point("compaction-staged")

    def snapshot(self) -> OperatorState:
        """Return the operator's state after this epoch."""
        return self.tables.snapshot(self.watermark, {_EXPIRED: self.expired, **self._found})


def newest(start: str, name: str) -> str:
    """Return the newest starts, up to ``MAX_LISTED_WINDOWS``, without nulls, as SQL."""
    return f"max_by({start}, {start}, {MAX_LISTED_WINDOWS}) AS {name}"


def _rows_within(file: StateFile, low: int, high: int) -> int:
    """Return the estimated number of a file's rows with a time in [low, high], assuming an even distribution."""
    if file.min_time is None or file.max_time is None:
        return file.rows
    within = min(high, file.max_time) - max(low, file.min_time) + 1
    return -(-file.rows * within // (file.max_time - file.min_time + 1))

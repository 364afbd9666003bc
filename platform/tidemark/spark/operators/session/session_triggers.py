"""Sessions that fire by a trigger with a rule: early, at counts, at steps of time, each epoch.

They are merged and stored as all sessions are, with the trigger's state. A session that fires is written again, as it is after its
pane; results are read from there. So every stored session has its own history, and only those that elements touched or that time may
fire are read.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property, reduce

from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as F

from tidemark.crashpoints import crash_point
from tidemark.graph.operators.window.node import WindowNode
from tidemark.semantics.watermarks.watermarks import MAX_WATERMARK, MIN_WATERMARK, clamp_watermark
from tidemark.spark.columns.expressions import POSITION, START, TIME, quoted
from tidemark.spark.columns.replaced_sessions import replaced_sessions
from tidemark.spark.columns.state_files import overlapping
from tidemark.spark.frame_steps import FrameSteps
from tidemark.spark.operators.aligned.firing_rules import Times
from tidemark.spark.operators.base.contract import Observed, OperatorContext
from tidemark.spark.operators.base.stored_columns import require_partials
from tidemark.spark.operators.base.windows import ElementCounts, Panes
from tidemark.spark.operators.session.session_counting import COUNTED, COUNTED_LATE, CountedMerging, CountedState
from tidemark.spark.operators.session.session_epoch import NEXT_END, OPEN, SessionEpoch, newest
from tidemark.spark.operators.session.session_input import END
from tidemark.spark.operators.session.session_merging import GROWN, OUT, PANES, SESSION
from tidemark.spark.operators.session.session_rules import ASKED, FIRED, NEVER, NEXT, TICKS, SessionRules, due_conditions
from tidemark.spark.operators.session.session_runtime import SessionRuntime, least_end
from tidemark.spark.operators.session.session_state import EPOCH
from tidemark.spark.prepared.runtime_literals import runtime_literals
from tidemark.state.log.records import OperatorState, StateFile

_CLOCK, _STEP = "processing_time", "next_step"


class TriggeredSessionRuntime(SessionRuntime):
    """One operator.

    Args:
        node: its declaration; one that ``is_triggered_session``.
    """

    def __init__(self, node: WindowNode) -> None:
        super().__init__(node)
        if node.trigger is None:
            raise TypeError("no trigger is given")
        self.rules = SessionRules(node.trigger)

    def begin(self, context: OperatorContext) -> TriggeredSessionEpoch:
        """Return the operator at work on an epoch."""
        return TriggeredSessionEpoch(self, context)

    def next_timer(self, state: OperatorState) -> int | None:
        """Return the watermark at which a session may reach its end or its next step, as far as known."""
        due = [super().next_timer(state) if self.rules.ends else None]
        step = state.counters.get(_STEP, MAX_WATERMARK)
        if self.rules.step and state.files and step < MAX_WATERMARK:
            due.append(max(step, state.watermark + 1))
        return min((at for at in due if at is not None), default=None)

    def next_processing_time(self, state: OperatorState) -> int | None:
        """Return the processing time at which a session may reach its end or its next step."""
        clock = state.counters.get(_CLOCK)
        if clock is None:
            return None
        if self.rules.ends_by_clock:
            return least_end(state, clock + 1)
        due = state.watermark + 1 if self.rules.phased else MIN_WATERMARK
        ticking = self.rules.tick is not None and any(file.max_time is None or file.max_time > due for file in state.files)
        return clock - clock % (self.rules.tick or 1) + (self.rules.tick or 1) if ticking else None

    def panes(self, fired: DataFrame, times: Times) -> DataFrame:
        """Return the result rows of sessions as they are written when they fire."""
        due_before, due = due_conditions(times)
        return fired.selectExpr(
            *self.partials.key_results,
            f"timestamp_millis({START}) AS window_start",
            f"timestamp_millis({END}) AS window_end",
            *self.partials.results,
            f"CASE WHEN {due_before} THEN 'LATE' WHEN {due} THEN 'ON_TIME' ELSE 'EARLY' END AS pane_timing",
            f"{PANES} - 1 AS pane_index",
            f"{replaced_sessions(OUT, GROWN)} AS replaces",
            f"{END} - 1L AS {TIME}",
            f"struct('{self.node.uid}' AS origin, {START} AS block, {self.partials.key_hash} AS row) AS {POSITION}",
        )


class TriggeredSessionEpoch(SessionEpoch):
    """Sessions with a trigger in one epoch."""

    runtime: TriggeredSessionRuntime

    def __init__(self, runtime: TriggeredSessionRuntime, context: OperatorContext) -> None:
        super().__init__(runtime, context)
        require_partials(self.tables, END, runtime.node)
        self._remembers = True
        self._state = CountedState(self.tables, runtime.partials, runtime.rules)
        self._merging = CountedMerging(runtime.partials, runtime.rules, context.before.watermark)
        if runtime.rules.ordered:
            # Elements of different times are processed one by one.
            self._alone = MAX_WATERMARK
        self._panes: Observation | None = None

    @cached_property
    def times(self) -> Times:
        """The epoch's times; available once its watermark is known."""
        clock = self.context.processing_time
        return Times(self.context.before.watermark, self.watermark, self.context.before.counters.get(_CLOCK, clock), clock)

    @property
    def further_counts(self) -> dict[str, tuple[str | None, str]]:
        """The least next step."""
        return {_STEP: ("min", f"if({SESSION} > 0, {NEXT}, NULL)")}

    def _counted(self, observation: Observation, files: Sequence[StateFile], *, touched: bool) -> ElementCounts:
        absorbed = super()._counted(observation, files, touched=touched)
        step = observation.get[_STEP]
        self._found[_STEP] = min(
            MAX_WATERMARK if step is None else step, self.context.before.counters.get(_STEP, MAX_WATERMARK) if touched else MAX_WATERMARK
        )
        return absorbed

    def emit(self, watermark: int, observation: Observation) -> DataFrame | None:
        """Write and return the panes of an epoch, None where there are none."""
        del observation
        self.watermark = watermark
        if self.tables.empty:
            return None
        rules, times = self.runtime.rules, self.times
        condition = rules.fires(times)
        candidates = None if condition == NEVER else self._candidates()
        if candidates is None:
            return None
        due_before, due = due_conditions(times)
        firing = candidates.where(condition)
        fired = firing.selectExpr(
            *self._state.columns,
            f"{runtime_literals(self.context.epoch)[0]} AS {EPOCH}",
            f"{PANES} + 1 AS {PANES}",
            *(OUT, GROWN, COUNTED, COUNTED_LATE),
            f"{rules.next_step(times)} AS {NEXT}",
            f"{FIRED} AS {ASKED}",
        )
        self._panes = Observation()
        counted = FrameSteps(fired).observe(
            self._panes,
            f"count_if(NOT {due}) AS early",
            f"count_if({due} AND NOT {due_before}) AS on_time",
            f"count_if({due_before}) AS late",
            newest(f"CASE WHEN {due_before} THEN {START} END", "refired"),
        )
        written = self.tables.write(counted.frame())
        if self._ahead is not None:
            self._read_next(self._ahead)
        crash_point("state-staged")
        return self.runtime.panes(self.tables.read(written), times) if written else None

    def emitted_panes(self, observation: Observed) -> Panes:
        """Return the counts of written panes."""
        del observation
        found = self._panes.get if self._panes is not None else {}
        counts = {name: found.get(name) or 0 for name in ("early", "on_time", "late")}
        self._found[OPEN] = max(0, self._found.get(OPEN, self._open_before) - counts["on_time"])
        return Panes(**counts, closed=counts["on_time"], refired=tuple(sorted(set(found.get("refired") or ()))))

    def _candidates(self) -> DataFrame | None:
        """Return sessions that may fire, as they are in this epoch, None where there are none."""
        added = self.tables.added if self.counts is not None else []
        open_files = [file for file in self.tables.files() if file.max_time is None or file.max_time > self._expired_end]
        if self._scans_all() and open_files:
            return self._now(self._with_next_of_all(self._state.newest(open_files, self._expired_end)))
        parts = [self._state.rows(added, self._expired_end)] if added else []
        span = self.runtime.rules.ending(self.times)
        older = self._ended([file for file in open_files if file not in set(added)], open_files, *span) if span else None
        parts += [older] if older is not None else []
        return self._now(reduce(DataFrame.unionByName, parts)) if parts else None

    def _scans_all(self) -> bool:
        """Whether any session may fire, or an epoch without input has to find the next one."""
        rules = self.runtime.rules
        step = self._found.get(_STEP, self.context.before.counters.get(_STEP, MIN_WATERMARK))
        return self.counts is None or rules.is_at_tick(self.times) or (rules.step is not None and step <= self.watermark)

    def _with_next_of_all(self, rows: DataFrame) -> DataFrame:
        """Return rows with an observation of the next end and the next step of event time after this epoch."""
        rules, times = self.runtime.rules, self.times
        now = runtime_literals(times.clock if rules.ends_by_clock else clamp_watermark(times.watermark + 1), varying=END)[0]
        step = f"if({due_conditions(times)[1]}, NULL, {rules.next_step(times)})"
        self._ahead = Observation()
        return rows.observe(self._ahead, F.expr(f"min(CASE WHEN {END} > {now} THEN {END} END) AS end"), F.expr(f"min({step}) AS step"))

    def _read_next(self, observation: Observation) -> None:
        found = observation.get
        for name, value in ((NEXT_END, found["end"]), (_STEP, found["step"])):
            self._found[name] = MAX_WATERMARK if value is None else value

    def _ended(self, older: Sequence[StateFile], open_files: Sequence[StateFile], low: int, high: int) -> DataFrame | None:
        """Return sessions that earlier epochs wrote, this one did not, and that end in (low, high]."""
        low = max(low, self._expired_end)
        if low >= high or not overlapping(older, low + 1, high):
            return None
        last, this = runtime_literals(high, self.context.epoch, varying=END)
        # A row that outdates another one ends no earlier.
        relevant = overlapping(open_files, low + 1, MAX_WATERMARK)
        return self._state.newest(relevant, low).where(f"{END} <= {last} AND {EPOCH} <> {this}")

    def _now(self, rows: DataFrame) -> DataFrame:
        """Return stored sessions as they are in this epoch: without requests of earlier epochs, with steps of processing time."""
        rules, before = self.runtime.rules, self.context.before.watermark
        ticks = f"if({END} > {runtime_literals(clamp_watermark(before + 1), varying=END)[0]}, {TICKS}, 0)" if rules.phased else f"{TICKS}"
        (this,) = runtime_literals(self.context.epoch, varying=END)
        asked = f"if({EPOCH} = {this}, {ASKED}, {ticks})"
        found = self._state.as_of(rows, before)
        return found.selectExpr(*(quoted(name) for name in found.columns if name != ASKED), f"{asked} AS {ASKED}")

    def snapshot(self) -> OperatorState:
        """Return the operator's state after this epoch."""
        state = super().snapshot()
        return OperatorState(state.definition, state.files, state.watermark, {**state.counters, _CLOCK: self.context.processing_time})

"""Tumbling windows: aggregates rows into partials, and fires the windows that the watermark passed.

State is one row per (key, window start, staging): partial columns of native aggregates. A pass over the input groups it
once, late rows too: whether a group is late is decided after the shuffle, by its window alone. So the pass's code is the
same in every epoch and compiled once, and one observation gives exact counts, since there a re-run task is not counted
twice. Where the aggregates are plain ones, rows that were filtered out before the window are grouped too, by status:
then the source's rows are counted after the shuffle as well, which costs less than an observation of every row.
Firing reads only the files whose windows are concerned.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property, reduce

from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as F

from tidemark.graph.operators.window.node import WindowNode
from tidemark.semantics.watermarks.watermarks import MAX_WATERMARK, clamp_watermark
from tidemark.semantics.windows.assigners import Tumbling
from tidemark.spark.columns.expressions import POSITION, START, TIME
from tidemark.spark.columns.state_files import overlapping
from tidemark.spark.frame_steps import FrameSteps
from tidemark.spark.operators.aligned.pre_aggregation import FIRST_START, AlignedEpoch, AlignedRuntime, Thresholds
from tidemark.spark.operators.base.contract import Observed, OperatorContext, Results
from tidemark.spark.operators.base.tables import count_in_spans, shared_span, stagings
from tidemark.spark.operators.base.windows import MAX_LISTED_WINDOWS, Panes
from tidemark.spark.prepared.runtime_literals import runtime_literals
from tidemark.state.log.records import OperatorState, StateFile

ON_TIME = "__tm_on_time"
LATE_PANES = "__tm_late_panes"
_TOUCHED = "__tm_touched"
FEW_ROWS = 200_000
"""Up to so many state rows, merging all of them costs less than finding those that need it."""


class TumblingRuntime(AlignedRuntime):
    """The DataFrames of one operator. Nothing runs until a returned frame is written.

    Args:
        node: the operator; its assigner must be Tumbling.
    """

    def __init__(self, node: WindowNode) -> None:
        if not isinstance(node.assigner, Tumbling):
            raise TypeError(f"no step for windows of kind {type(node.assigner).__name__}")
        super().__init__(node, node.assigner.size_ms, node.assigner.offset_ms)
        self.size = node.assigner.size_ms

    def begin(self, context: OperatorContext) -> TumblingEpoch:
        """Return the operator at work on an epoch."""
        return TumblingEpoch(self, context)

    def last_expired(self, watermark: int) -> int:
        """Return the start of the last window whose elements are late, and whose state is dropped, at a watermark."""
        return self.last_due(watermark - self.lateness)

    def last_due(self, watermark: int) -> int:
        """Return the start of the last window whose end a watermark has passed."""
        latest = watermark - self.size + 1
        return max(FIRST_START, min(MAX_WATERMARK, latest - (latest - self.offset) % self.size))

    def next_timer(self, state: OperatorState) -> int | None:
        """Return the end of the first open window, by the bounds of files, less a millisecond."""
        due = self.last_due(state.watermark)
        first_open = self.node.assigner.assign(due + self.size)[0].start
        ends = [
            (first_open if file.min_time is None or file.min_time <= due else file.min_time) + self.size - 1
            for file in state.files
            if file.max_time is None or file.max_time > due
        ]
        return min(ends, default=None)

    def marks(self, fired: str, bounds: Thresholds, epoch: int) -> list[str]:  # noqa: ARG002
        """Return the columns that determine a window's number of panes: one at its end, one per epoch that refires it."""
        return [f"if({fired}, 0, 1) AS {ON_TIME}", f"if({fired}, 1, 0) AS {LATE_PANES}"]

    def merge(self, state: DataFrame, *, extra: Sequence[str] = ()) -> DataFrame:
        """Return state rows merged to one per key and window; for firing and for compaction."""
        panes = (f"max({ON_TIME}) AS {ON_TIME}", f"CAST(sum({LATE_PANES}) AS INT) AS {LATE_PANES}")
        return self.partials.grouped(state, START, extra=(*panes, *extra))

    @staticmethod
    def between(state: DataFrame, low: int, high: int) -> DataFrame:
        """Return the state rows of windows that start in [low, high]."""
        first, last = runtime_literals(low, high)
        return state.where(f"{START} BETWEEN {first} AND {last}")

    @staticmethod
    def outside(state: DataFrame, low: int, high: int) -> DataFrame:
        """Return the state rows of windows that do not start in [low, high]."""
        first, last = runtime_literals(low, high)
        return state.where(f"{START} NOT BETWEEN {first} AND {last}")

    def touched(self, state: DataFrame, added: DataFrame, expired: int, due: int) -> DataFrame:
        """Return, merged, the windows that are not expired, have fired up to ``due`` and accepted late rows in this epoch."""
        marked = (self.between(rows, expired + 1, due).withColumn(_TOUCHED, F.lit(flag)) for rows, flag in ((state, 0), (added, 1)))
        merged = self.merge(reduce(DataFrame.unionByName, marked), extra=[f"max({_TOUCHED}) AS {_TOUCHED}"])
        return merged.where(f"{_TOUCHED} = 1").drop(_TOUCHED)

    def results(self, merged: DataFrame, due: int, observation: Observation) -> DataFrame:
        """Return the result rows of merged state: keys, bounds, aggregates, pane, and the hidden time ``end - 1``.

        ``due`` is the start of the last window that had fired before.
        """
        late = f"{START} <= {runtime_literals(due)[0]}"
        # Counted first, so that unused columns of a result are not computed.
        counted = FrameSteps(merged).observe(
            observation,
            f"count_if(NOT ({late})) AS on_time",
            f"count_if({late}) AS late",
            f"collect_set(CASE WHEN {late} THEN {START} END) AS refired",
        )
        results = counted.select(
            *self.partials.key_results,
            f"timestamp_millis({START}) AS window_start",
            f"timestamp_millis({START} + {self.size}L) AS window_end",
            *self.partials.results,
            f"if({late}, 'LATE', 'ON_TIME') AS pane_timing",
            f"CAST(if({late}, {ON_TIME} + {LATE_PANES} - 1, 0) AS INT) AS pane_index",
            f"{START} + {self.size - 1}L AS {TIME}",
            f"struct('{self.node.uid}' AS origin, {START} AS block, {self.partials.key_hash} AS row) AS {POSITION}",
        )
        return results.frame()


class TumblingEpoch(AlignedEpoch):
    """Tumbling windows in one epoch."""

    runtime: TumblingRuntime
    _closed = 0

    @cached_property
    def thresholds(self) -> Thresholds:
        """Bounds of the epoch before, by the start of windows."""
        return Thresholds(self.expired_before, self.runtime.last_due(self.context.before.watermark), least_kept=self.least_kept)

    @property
    def expired_before(self) -> int:
        """The start of the last window that had expired before this epoch; greater allowed lateness does not bring it back."""
        return self.forgotten(self.runtime.last_expired(self.context.before.watermark))

    @property
    def expired(self) -> int:
        """The start of the last window that is expired after this epoch."""
        return max(self.runtime.last_expired(self.watermark), self.expired_before)

    def emit(self, watermark: int, observation: Observation) -> DataFrame | Results | None:
        """Return the panes due at a watermark, None where there cannot be any. Nothing runs yet."""
        self.watermark = watermark
        if self.tables.empty:
            return None
        due_before = self.thresholds.fired
        low, high = due_before + 1, self.runtime.last_due(watermark)
        due = overlapping(self.tables.files(), low, high) if high >= low else []
        if due:
            self._closed = count_in_spans(due, low, high, self.runtime.size)
        if not (self.counts and self.counts.refired_groups):
            return self._results(due, low, high) if due else None
        span = self.expired_before + 1, due_before
        added = overlapping(self.tables.added, *span)
        older = [file for file in overlapping(self.tables.files(), *span) if file not in self.tables.added]
        again = self.runtime.touched(self.tables.read(older), self.tables.read(added), self.expired_before, due_before)
        if not due:
            return self.runtime.results(again, due_before, observation)
        first = self._due(due, low, high, shared_span(stagings(due), low, high))
        return self.runtime.results(first.unionByName(again), due_before, observation)

    def _results(self, due: Sequence[StateFile], low: int, high: int) -> Results:
        """Return the panes of windows that start in [low, high] and fire for the first time."""
        shared = shared_span(stagings(due), low, high)

        def build(numbers: Sequence[int], observation: Observation) -> DataFrame:
            first, last, fired = numbers
            return self.runtime.results(self._due(due, first, last, shared), fired, observation)

        return Results(build, (low, high, self.thresholds.fired), self.tables.few_files(due), "alone" if shared is None else "merged")

    def emitted_panes(self, observation: Observed) -> Panes:
        """Read the counts of results that were written."""
        found = observation.get
        refired = tuple(sorted(found["refired"] or ())[-MAX_LISTED_WINDOWS:])
        return Panes(on_time=found["on_time"], late=found["late"], closed=self._closed, refired=refired)

    def merged_for_compaction(self, files: Sequence[StateFile]) -> DataFrame:
        """Return the rows of files, merged, without those of expired windows."""
        return self.runtime.merge(self.runtime.between(self.tables.read(files), self.expired + 1, MAX_WATERMARK))

    @property
    def oldest_open_window(self) -> int | None:
        """The start of the oldest window that has not expired."""
        oldest = min((file.min_time for file in self.tables.files() if file.min_time is not None), default=None)
        return None if oldest is None else clamp_watermark(max(oldest, self.expired + self.runtime.size))

    def _due(self, files: Sequence[StateFile], low: int, high: int, shared: tuple[int, int] | None) -> DataFrame:
        """Return due state rows, one per key and window; where there are many, merges only windows that several stagings share."""
        runtime = self.runtime
        due = runtime.between(self.tables.read(files), low, high)
        if shared is None:
            return due
        alone = [file for file in files if overlapping([file], low, shared[0] - 1) or overlapping([file], shared[1] + 1, high)]
        if not alone or sum(file.rows for file in files) < FEW_ROWS:
            return runtime.merge(due)
        together = runtime.merge(runtime.between(self.tables.read(overlapping(files, *shared)), *shared))
        return together.unionByName(runtime.outside(runtime.between(self.tables.read(alone), low, high), *shared))

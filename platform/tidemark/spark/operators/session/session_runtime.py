"""Session windows: an epoch's input and the open sessions are merged in one pass, then due sessions are read back and fire.

Merging depends only on the watermark after the epoch before, so it is done in the pass over the input; firing needs no further shuffle.
This is the runtime, without state of an epoch; ``session_epoch`` is the operator in one.
"""

from __future__ import annotations

from pyspark.sql import DataFrame, Observation

from tidemark.graph.operators.window.node import WindowNode
from tidemark.semantics.watermarks.watermarks import clamp_watermark
from tidemark.spark.columns.expressions import POSITION, START, TIME
from tidemark.spark.columns.replaced_sessions import NOTHING_REPLACED, replaced_sessions
from tidemark.spark.frame_steps import FrameSteps
from tidemark.spark.operators.base.contract import OperatorContext
from tidemark.spark.operators.base.partials import Partials
from tidemark.spark.operators.base.windows import WindowRuntime
from tidemark.spark.operators.session.session_deferral import DeferringSessionEpoch
from tidemark.spark.operators.session.session_epoch import NEXT_END, SessionEpoch, newest
from tidemark.spark.operators.session.session_input import END, SessionInput
from tidemark.spark.operators.session.session_merging import GROWN, OUT, PANES
from tidemark.spark.prepared.runtime_literals import runtime_literals
from tidemark.state.log.records import OperatorState


class SessionRuntime(WindowRuntime):
    """One operator.

    Args:
        node: its declaration; its assigner must be Session or DynamicSession.
    """

    def __init__(self, node: WindowNode) -> None:
        super().__init__(node)
        self.partials = Partials(node)
        self.input = SessionInput(node, self.partials)
        self.lateness = node.allowed_lateness_ms

    @property
    def can_fuse_counts(self) -> bool:
        """Whether rows that were filtered out before the window can be grouped together with the others."""
        return self.input.can_fuse_counts

    def begin(self, context: OperatorContext) -> SessionEpoch:
        """Return the operator at work on an epoch."""
        return DeferringSessionEpoch(self, context)

    def last_expired(self, watermark: int) -> int:
        """Return the last end of a session whose elements are late, and whose state is dropped, at a watermark."""
        return clamp_watermark(watermark - self.lateness + 1)

    def next_timer(self, state: OperatorState) -> int | None:
        """Return the least end of an open session that has not fired, as far as known, less a millisecond.

        Files have the bounds of their sessions' ends. Where a file has ends on both sides of the watermark, the next end may be any after
        it; an epoch without input then finds it.
        """
        end = least_end(state, clamp_watermark(state.watermark + 2))
        return None if end is None else end - 1

    def results(self, sessions: DataFrame, fired: int, observation: Observation) -> DataFrame:
        """Return the result rows of sessions: keys, bounds, aggregates, pane, what it replaces, and the hidden time ``end - 1``.

        Args:
            sessions: stored ones, with the columns of their panes if there are any.
            fired: the watermark after the epoch before.
            observation: for the counts.
        """
        late = f"{END} - 1 <= {runtime_literals(fired)[0]}"
        remembered = PANES in sessions.columns
        rows = FrameSteps(sessions).select(
            *self.partials.key_results,
            f"timestamp_millis({START}) AS window_start",
            f"timestamp_millis({END}) AS window_end",
            *self.partials.results,
            f"if({late}, 'LATE', 'ON_TIME') AS pane_timing",
            f"{PANES if remembered else 'CAST(0 AS INT)'} AS pane_index",
            f"{replaced_sessions(OUT, GROWN) if remembered else NOTHING_REPLACED} AS replaces",
            f"{END} - 1L AS {TIME}",
            f"struct('{self.node.uid}' AS origin, {START} AS block, {self.partials.key_hash} AS row) AS {POSITION}",
        )
        again = "CASE WHEN pane_timing = 'LATE' THEN unix_millis(window_start) END"
        counts = ["count(1) AS panes", "count_if(pane_timing = 'LATE') AS late", newest(again, "refired")]
        return rows.observe(observation, *(counts if remembered else counts[:1])).frame()


def least_end(state: OperatorState, first: int) -> int | None:
    """Return the least end of a session from ``first`` on, by the bounds of files, or as an epoch without input has found."""
    known = max(first, state.counters.get(NEXT_END, first))
    ends = [
        known if file.min_time is None or file.min_time < first else file.min_time
        for file in state.files
        if file.max_time is None or file.max_time >= first
    ]
    return min(ends, default=None)

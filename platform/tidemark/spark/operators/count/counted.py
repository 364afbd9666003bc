"""Count windows with aggregates: an epoch's elements continue the numbering of their key, and are grouped into slices of groups.

A slice has as many elements as the greatest common divisor of size and slide, so that groups are whole numbers of slices. State is one row
per (key, slice, staging): partials, the number of elements, and the key's number of elements so far. The pass over the input reads only
the counts of keys from it; then the slices of keys with a group that became full are read, and merged by group.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from pyspark.sql import Observation
from pyspark.sql import functions as F
from pyspark.storagelevel import StorageLevel

from tidemark.crashpoints import crash_point
from tidemark.graph.operators.window.node import WindowNode
from tidemark.semantics.watermarks.shortfalls import Shortfalls
from tidemark.semantics.watermarks.watermarks import MAX_WATERMARK
from tidemark.spark.operators.base.contract import Observed, OperatorContext, PortInput
from tidemark.spark.operators.base.stored_columns import require_partials
from tidemark.spark.operators.base.tables import StateTables
from tidemark.spark.operators.base.windows import ElementCounts, Panes, WindowEpoch, WindowRuntime
from tidemark.spark.operators.count.counted_frames import NEWEST, UNTIL, CountedFrames
from tidemark.spark.operators.keyed.key_table import rows_of_keys
from tidemark.state.gc.compaction import plan_compaction
from tidemark.state.log.records import OperatorState, StateFile

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

FEW_ROWS = 100_000
"""Up to so many stored rows, reading the counts of all keys in a pass costs less than looking up those of keys with input."""

FEW_TOUCHED = 4
"""An epoch touches few keys if its elements times this number are not more than the stored rows."""

_ROWS = "rows"


class CountedRuntime(WindowRuntime):
    """Count windows of a run.

    Args:
        node: the operator; one that ``is_incremental_count``.
    """

    def __init__(self, node: WindowNode) -> None:
        super().__init__(node)
        self.frames = CountedFrames(node)

    def begin(self, context: OperatorContext) -> CountedEpoch:
        """Return the operator at work on an epoch."""
        return CountedEpoch(self, context)

    def next_timer(self, state: OperatorState) -> None:
        """Return None: groups wait for elements."""


class CountedEpoch(WindowEpoch):
    """Count windows in one epoch."""

    runtime: CountedRuntime

    def __init__(self, runtime: CountedRuntime, context: OperatorContext) -> None:
        super().__init__(runtime, context)
        self.tables = StateTables(context, runtime.node.place, time=NEWEST)
        require_partials(self.tables, UNTIL, runtime.node)
        self._full = 0

    @property
    def _ended(self) -> bool:
        """Whether the input had ended before: later elements are late."""
        return self.context.before.watermark >= MAX_WATERMARK

    @property
    def oldest_open_window(self) -> None:
        """None: groups have no bounds."""

    def process_elements(self, elements: PortInput) -> ElementCounts:
        """Number an epoch's elements and aggregate them into slices; one Spark job, two where few keys may have input."""
        keyed = self.runtime.frames.keyed(elements.rows)
        self.tables.require_types(self.runtime.frames.key_types(keyed))
        stored = self._counts()
        if stored is None or not self._may_touch_few:
            return self._write_slices(keyed, stored)
        kept = keyed.persist(StorageLevel.MEMORY_AND_DISK)
        try:
            if kept.count() * FEW_TOUCHED <= self._stored_rows:
                names = self.runtime.frames.names
                stored = rows_of_keys(stored, kept.select(*names).distinct(), names)
            return self._write_slices(kept, stored)
        finally:
            kept.unpersist()

    def _write_slices(self, keyed: DataFrame, stored: DataFrame | None) -> ElementCounts:
        frames, observation = self.runtime.frames, Observation()
        slices = frames.slices(frames.numbered(keyed, stored))
        self.tables.write_input(frames.taken(slices, observation, ended=self._ended))
        found = observation.get
        self._full = found["full"] or 0
        late = found["late"] or 0
        # They came after the end of the input.
        self.counts = ElementCounts(found["accepted"] or 0, late, found["groups"], 0, (), Shortfalls(late) if late else None)
        crash_point("state-staged")
        return self.counts

    def _counts(self) -> DataFrame | None:
        """Return rows with the element counts of keys, None where nothing is stored; the greatest one of a key is current."""
        files = self.tables.files()
        return self.runtime.frames.counts(self.tables.read(files)) if files else None

    @property
    def _may_touch_few(self) -> bool:
        """Whether there are many stored rows, and the last epoch with input had few elements; without keys there is one count."""
        touched = self.context.before.counters.get(_ROWS, 0)
        return bool(self.node.keys) and self._stored_rows > FEW_ROWS and touched * FEW_TOUCHED <= self._stored_rows

    @property
    def _stored_rows(self) -> int:
        return sum(file.rows for file in self.context.before.files)

    def late_rows(self, rows: DataFrame) -> DataFrame:
        """Return all rows once the input had ended, none before."""
        return rows if self._ended else rows.where("false")

    def emit(self, watermark: int, observation: Observation) -> DataFrame | None:
        """Return the groups that became full, None where there are none. Nothing runs yet."""
        self.watermark = watermark
        if not self._full:
            return None
        frames = self.runtime.frames
        grouped = frames.groups(self.tables.read(self.tables.files()), self.tables.read(self.tables.added))
        return frames.results(grouped.observe(observation, F.expr("count(1) AS groups")))

    def emitted_panes(self, observation: Observed) -> Panes:
        """Read the number of written groups; each is a window."""
        groups = observation.get["groups"] if self._full else 0
        return Panes(on_time=groups, closed=groups)

    def open_slices(self) -> DataFrame | None:
        """Return the slices of groups that are not full yet, merged, for readers of state; None where nothing is stored."""
        files = self.tables.files()
        return self.runtime.frames.merged(self.tables.read(files)) if files else None

    def compact(self) -> Callable[[], None] | None:
        """Drop all files when the input has ended; return the work that merges files into larger ones, None where there is none."""
        if self.watermark >= MAX_WATERMARK:
            self.tables.drop(self.tables.files())
        merge = plan_compaction(self.tables.files()).merge
        return partial(self._merge, merge) if merge else None

    def _merge(self, groups: Sequence[Sequence[StateFile]]) -> None:
        for group in groups:
            merged = self.runtime.frames.merged(self.tables.read(group))
            self.tables.write(merged.coalesce(1), newest=max(file.epoch for file in group))
            self.tables.drop(group)
            crash_point("compaction-staged")

    def snapshot(self) -> OperatorState:
        """Return the operator's state after this epoch."""
        counters = {} if self.counts is None else {_ROWS: self.counts.accepted}
        return self.tables.snapshot(self.watermark, counters)

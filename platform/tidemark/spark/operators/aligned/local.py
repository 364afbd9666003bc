"""Windows of local days, of one zone or of a zone that each row has.

Rows are grouped by key, zone and slice of the zone's local time; the bounds of windows are computed for groups, as instants, by Spark and
so by Java's database of time zones alone. From there on they are windows like those with a trigger: of zones nothing is stored, and rows
of two zones are in one window if its bounds are the same in both.
"""

from __future__ import annotations

from functools import cached_property
from math import gcd
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F
from pyspark.sql import types as T

from tidemark.errors import UserCodeError
from tidemark.graph.operators.window.node import WindowNode
from tidemark.semantics.watermarks.watermarks import MAX_WATERMARK, MIN_WATERMARK, clamp_watermark
from tidemark.semantics.windows.local_windows import LocalWindows
from tidemark.semantics.windows.slices import Slices
from tidemark.spark.columns.expressions import START, TIME, quoted
from tidemark.spark.frame_steps import FrameSteps
from tidemark.spark.operators.aligned.local_time import first_instant, reading, zone_literal
from tidemark.spark.operators.aligned.pre_aggregation import FIRST_START, Thresholds
from tidemark.spark.operators.aligned.trigger_frames import TAKEN, TAKEN_LATE
from tidemark.spark.operators.aligned.triggered import PANES, TriggeredEpoch, TriggeredRuntime
from tidemark.spark.operators.aligned.two_stacks import END
from tidemark.spark.operators.base.contract import OperatorContext
from tidemark.spark.operators.base.late_metrics import last_end_sql
from tidemark.spark.prepared.runtime_literals import runtime_literals

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

ZONE: Final = "__tm_zone"
_LAST_END: Final = "__tm_last_end"
_LOCAL_START: Final = "__tm_local_start"
_LOCAL_END: Final = "__tm_local_end"
_END_BEFORE: Final = "__tm_end_before"
_FARTHEST: Final = 10**16
"""Milliseconds; more than any timestamp of Spark's is from 1970."""

ZONE_NAME: Final = (
    "^(?!(UTC|GMT|UT)[+-][0-9:]*[1-9])"
    "(?!(ACT|AET|AGT|ART|AST|BET|BST|CAT|CNT|CST|CTT|EAT|ECT|IET|IST|JST|MIT|NET|NST|PLT|PNT|PRT|PST|SST|VST)$)"
    "[A-Za-z][A-Za-z0-9_/+-]+$"
)
"""A pattern of the names of zones, without distances from UTC and the abbreviations of Java, which the IANA database does not have."""

_OFFSETS_MS: Final = 900_000
"""Zones are whole quarters of an hour from UTC, so that only at these instants local days begin. Some were not, long ago; what fires at
such an instant without new input does so up to a quarter of an hour later."""


class LocalRuntime(TriggeredRuntime):
    """Windows of local days of a run.

    Args:
        node: the operator; its assigner must be LocalWindows.
    """

    def __init__(self, node: WindowNode) -> None:
        if not isinstance(node.assigner, LocalWindows):
            raise TypeError(f"no step for windows of kind {type(node.assigner).__name__}")
        super().__init__(node)
        self.assigner = node.assigner
        self.local = Slices.of(node.assigner.windows)
        self._zone = ZONE if node.assigner.zone is None else zone_literal(node.assigner.zone)

    def begin(self, context: OperatorContext) -> LocalEpoch:
        """Return the operator at work on an epoch."""
        return LocalEpoch(self, context)

    @property
    def can_fuse_counts(self) -> bool:
        """Whether rows that were filtered out before can be grouped together with the others: they have no zone."""
        return self.assigner.zone_by is None and super().can_fuse_counts

    @property
    def grouped_by(self) -> tuple[str, ...]:
        """The zone, if each row has its own."""
        return () if self.assigner.zone_by is None else (ZONE,)

    def start(self, now: int) -> str:  # noqa: ARG002 - these windows are of event time
        """Return the SQL of the start of the slice of local time that a row lies in."""
        width, offset = self.width, self.offset
        # Shifted, so that no time is negative and a division floors it.
        shift = (_FARTHEST // width + 1) * width - offset
        return f"({reading(TIME, self._zone)} + {shift}L) div {width}L * {width}L - {shift}L"

    def started(self, rows: DataFrame, now: int) -> FrameSteps:
        """Return rows with the start of their slice, and their zone if each has its own."""
        zoned = FrameSteps(rows)
        if self.assigner.zone_by is not None:
            zoned.select("*", F.expr(self._zone_of(rows, self.assigner.zone_by)).alias(ZONE))
        return zoned.select("*", f"{self.start(now)} AS {START}")

    def _zone_of(self, rows: DataFrame, text: str) -> str:
        """Return the SQL of a row's zone, which raises an error where there is none."""
        kind = rows.select(F.expr(text).alias("zone")).schema["zone"].dataType
        if not isinstance(kind, (T.StringType, T.VarcharType, T.CharType)):
            raise UserCodeError(
                f"the zone {text!r} of a window has type {kind.simpleString()}, not the name of a time zone",
                fix="give a column with names such as 'Europe/Berlin'",
                uid=self.node.uid,
                place=self.node.place,
            )
        shown = text.replace("\\", "\\\\").replace("'", "\\'")
        wrong = f"the zone {shown} of an element of {self.node.uid} is "
        # A CHAR is filled up with blanks.
        zone = f"rtrim({text})"
        odd = f"concat('{wrong}', coalesce(concat('\\'', {zone}, '\\', no name in the IANA database'), 'null'))"
        # Other forms, such as +01:00, would be taken by Spark, and not as a fixed zone. Names are not looked up here: Spark does that.
        return f"CASE WHEN {zone} RLIKE '{ZONE_NAME}' THEN {zone} ELSE CAST(raise_error({odd}) AS STRING) END"

    def bounded(self, groups: FrameSteps) -> FrameSteps:
        """Return groups with the end of the last window that covers them, or that came before."""
        # Groups of filtered rows have a start far from any time.
        start = f"if({START} >= {FIRST_START}L, {START}, 0L)"
        last = groups.select("*", f"{last_end_sql(self.local, start)} AS {_LOCAL_END}")
        return last.select("*", f"{first_instant(_LOCAL_END, self._zone)} AS {_LAST_END}")

    def accepted(self, bounds: Thresholds) -> str:
        """Return the condition of groups that a window accepts."""
        # Before the first watermark no end has expired, not even that of groups of filtered rows.
        kept = f"({START} >= {FIRST_START}L AND {_LAST_END} > {runtime_literals(bounds.window_expired)[0]})"
        nowhere = self.outside_windows(START)
        return f"({kept} AND NOT ({nowhere}))" if nowhere else kept

    @property
    def end_of_late(self) -> str:
        """SQL of the end of the last window of a group of late rows."""
        return _LAST_END

    @property
    def window_of_late(self) -> str:
        """SQL of the start of the last window of a group of late rows."""
        local_start = f"({_LOCAL_END} - {self.local.span}L)"
        start = first_instant(local_start, self._zone)
        nowhere = self.outside_windows(START)
        return f"CASE WHEN NOT ({nowhere}) THEN {start} END" if nowhere else start

    @property
    def result_order(self) -> str:
        """As for other windows, with the start: of two zones, and where a day is skipped, windows of one key may end at one instant."""
        return f"xxhash64({self.partials.key_hash}, {START})"

    def last_window_of(self, start: int) -> int | None:
        """Return the start of a window."""
        return start

    def late_rows(self, rows: DataFrame, bounds: Thresholds, now: int) -> DataFrame:
        """Return the rows that no window accepts."""
        started = self.bounded(self.started(rows, now))
        return started.where(f"NOT ({self.accepted(bounds)})").select(*map(quoted, rows.columns)).frame()

    def in_windows_of(self, groups: DataFrame, bounds: Thresholds) -> DataFrame:
        """Return groups once for each window that accepts them, with its bounds and the number of elements that came when it was due."""
        local, own = self.local, (START, END, _LOCAL_START, _LOCAL_END, _LAST_END, _END_BEFORE, *self.grouped_by)
        kept = [quoted(name) for name in groups.columns if name not in own]
        first = f"{START} + {local.width}L"
        ends = f"sequence({first} + pmod({local.last_end(0)}L - ({first}), {local.ends}L), {_LOCAL_END}, {local.ends}L)"
        each = groups.drop(_LAST_END).selectExpr("*", f"explode({ends}) AS {END}").drop(_LOCAL_END).withColumnRenamed(END, _LOCAL_END)
        span = local.span
        start = f"{_LOCAL_END} - 1L - pmod({_LOCAL_END} - 1L - {local.offset}L, {span}L)" if local.growing else f"{_LOCAL_END} - {span}L"
        windows = each.withColumns({_LOCAL_START: F.expr(start), _END_BEFORE: F.expr(f"{_LOCAL_END} - {local.ends}L")})
        zone = self._zone
        bounds_of = [
            f"{first_instant(_LOCAL_START, zone)} AS {START}",
            f"{first_instant(_LOCAL_END, zone)} AS {END}",
            # Of steps that end at one instant, as where clocks are set forward, the first is the window.
            f"{first_instant(_END_BEFORE, zone) if local.growing else f'{MIN_WATERMARK + 1}L'} AS {_END_BEFORE}",
        ]
        (ended,) = runtime_literals(bounds.window_expired, varying=END)
        (due,) = runtime_literals(bounds.reached, varying=END)
        accepted = windows.selectExpr(*kept, *bounds_of).where(f"{END} > {ended} AND {END} > {_END_BEFORE}")
        return accepted.selectExpr(*kept, START, END, f"if({END} <= {due}, {TAKEN}, 0L) AS {TAKEN_LATE}")

    def next_end(self, time: int) -> int:
        """Return the first time after another one at which a window may end."""
        step = gcd(self.local.width, self.local.offset, _OFFSETS_MS)
        return time + step - time % step


class LocalEpoch(TriggeredEpoch):
    """Windows of local days in one epoch."""

    runtime: LocalRuntime

    @cached_property
    def thresholds(self) -> Thresholds:
        """The ends of the last windows that had expired, and had been due."""
        due = min(self.context.before.watermark, MAX_WATERMARK - 1) + 1
        return Thresholds(MIN_WATERMARK, MIN_WATERMARK, self.expired_before, due, self.least_kept)

    def expired_at(self, watermark: int) -> int:
        """Return the end of the last window that accepts no elements any more at a watermark."""
        if watermark in (MIN_WATERMARK, MAX_WATERMARK):
            return watermark
        return clamp_watermark(watermark + 1 - self.runtime.lateness)

    @property
    def oldest_open_window(self) -> int | None:
        """The start of the oldest window that has not expired; in zones of their own, days count as 24 hours."""
        files = [*self.tables.files(), *self.tables.files(PANES)]
        oldest = min((file.min_time for file in files if file.min_time is not None), default=None)
        if oldest is None:
            return None
        end, assigner = max(oldest, self.expired + 1), self.runtime.assigner
        if assigner.zone is None:
            return clamp_watermark(end - self.runtime.local.span)
        return clamp_watermark(assigner.open_from(end - 1))

"""Merging of sessions: which elements are late, which sessions touch one another, and the merged sessions.

An element is late if the session it would join ends at or before ``expired_end``, the newest session end whose state has been dropped.
Stored sessions end after ``expired_end``, so an element that is early enough to be late touches any session of its key that begins no
later than it ends. Hence, in order of a key's elements, all are late until one ends after ``expired_end``, or no earlier than the first
stored session begins; from then on none is. That is a running maximum of ends, and so is the question whether a session touches those
before it: one sort by key and time, after one shuffle, answers both. No other session begins where late ones end, so that these do not
affect others.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from tidemark.semantics.watermarks.watermarks import MIN_WATERMARK
from tidemark.spark.columns.expressions import POSITION, ROWS, START, quoted
from tidemark.spark.frame_steps import FrameSteps
from tidemark.spark.operators.base.partials import Partials
from tidemark.spark.operators.session.session_input import END
from tidemark.spark.prepared.runtime_literals import literal, runtime_literals

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame

SESSION = "__tm_session"
"""The number of a session of a key in a pass; negative for late elements, which are grouped by their bounds."""

HELD = "__tm_held"
PANES = "__tm_panes"
OUT = "__tm_out_bounds"
"""The bounds of emitted results of a session, or of sessions merged into it; an end is null where only the start is known."""

OUT_KIND = "ARRAY<STRUCT<start: BIGINT, end: BIGINT>>"
NOTHING_OUT = f"CAST(array() AS {OUT_KIND})"
OWN_BOUNDS = f"array(named_struct('start', {START}, 'end', {END}))"

STARTS_OUT = "__tm_out"
"""The column of earlier releases for it, with starts only."""

GROWN = "__tm_grown"
"""Whether a session's bounds have changed since its last pane."""

_OPEN, _REACH, _FIRST, _LATE, _BEGINS = "__tm_open", "__tm_reach", "__tm_first", "__tm_late", "__tm_begins"
LATE_SESSIONS = -(2**62)

_NO_PANES = (f"0 AS {PANES}", f"{NOTHING_OUT} AS {OUT}", f"false AS {GROWN}")
_GROWTH = (
    f"bool_or({GROWN})",
    f"count_if({ROWS} = 0) > 1",
    f"min({START}) <> min(if({ROWS} = 0, {START}, NULL))",
    f"max({END}) <> max(if({ROWS} = 0, {END}, NULL))",
)
MERGED_PANES = (
    f"coalesce(max({PANES}), 0) AS {PANES}",
    f"array_distinct(flatten(collect_list({OUT}))) AS {OUT}",
    f"coalesce({' OR '.join(_GROWTH)}, false) AS {GROWN}",
)


@dataclass(frozen=True)
class ClassifiedRows:
    """Rows in order within their keys, with the conditions of late rows and of rows that begin a session."""

    rows: DataFrame
    late: str
    begins: str
    order: str


def over(keys: Sequence[str], order: str) -> str:
    """Return the window specification of a running aggregate; without keys, over all rows."""
    by = f"PARTITION BY {', '.join(keys)} " if keys else ""
    return f"{by}ORDER BY {order}"


def classify_rows(rows: DataFrame, keys: Sequence[str], expired_end: int, stored: DataFrame | None) -> ClassifiedRows:
    """Return rows with the condition of late ones.

    Args:
        rows: with bounds; input with ``POSITION`` where gaps differ, and sessions from state.
        keys: their key columns, quoted.
        expired_end: the newest session end whose state has been dropped.
        stored: keys and bounds of sessions in state, all of which end later; None for none.
    """
    floor = runtime_literals(expired_end + 1, varying=START)[0]
    order = over(keys, f"{START}, {POSITION}" if POSITION in rows.columns else START)
    before = f"OVER ({order} ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)"
    if stored is None:
        reached = rows.selectExpr("*", f"max({END}) {before} AS {_REACH}")
    else:
        # A row before all others of its key has the start of the first stored session. Only sessions that begin so early can matter.
        early = stored.where(f"{START} < {floor}").selectExpr(*keys, f"{literal(MIN_WATERMARK)} AS {START}", f"{START} AS {_OPEN}")
        marked = rows.unionByName(early, allowMissingColumns=True)
        reached = marked.selectExpr("*", f"max({END}) {before} AS {_REACH}", f"min({_OPEN}) {before} AS {_FIRST}")
        floor = f"least({floor}, {_FIRST})"
    late = f"greatest({_REACH}, {END}) < {floor}"
    begins = f"({_REACH} IS NULL OR {_REACH} < {START} OR {_REACH} < {floor})"
    return ClassifiedRows(reached, late, begins, order)


class SessionMerging:
    """The merging of one operator's sessions.

    Args:
        partials: its keys and aggregates.
        remembers: whether sessions are kept after their panes, so that rows have columns of these.
    """

    def __init__(self, partials: Partials, *, remembers: bool) -> None:
        self._partials = partials
        self.keys = [quoted(key) for key in partials.keys]
        self._remembers = remembers
        self.further: tuple[str, ...] = ()
        """Additional aggregates over rows that are merged with stored ones."""

    def merged(self, fresh: DataFrame, stored: DataFrame | None, expired_end: int) -> DataFrame:
        """Return all sessions of the existing keys, merged, by ``SESSION``; late elements, too.

        Args:
            fresh: an epoch's input, from ``SessionInput``.
            stored: open sessions from state; None for none.
            expired_end: the newest session end whose state has been dropped.

        Returns:
            Keys, ``SESSION``, bounds, partials, ``ROWS`` of the input, ``HELD`` stored sessions, and the columns of their panes.
        """
        numbered = self.numbered(fresh, stored, expired_end)
        extra = [f"min({START}) AS {START}", f"max({END}) AS {END}", f"sum({ROWS}) AS {ROWS}"]
        if stored is None:
            merged = self._partials.grouped(numbered, SESSION, extra=extra)
            return FrameSteps(merged).select("*", f"0L AS {HELD}", *(_NO_PANES if self._remembers else ())).frame()
        extra += [f"count_if({ROWS} = 0) AS {HELD}", *(MERGED_PANES if self._remembers else ()), *self.further]
        return self._partials.grouped(numbered, SESSION, extra=extra)

    def numbered(self, fresh: DataFrame, stored: DataFrame | None, expired_end: int) -> DataFrame:
        """Return the rows of the input and of state with their ``SESSION``; arguments as for ``merged``."""
        rows = fresh if stored is None else fresh.unionByName(stored.withColumn(ROWS, F.expr("0L")), allowMissingColumns=True)
        found = classify_rows(rows, self.keys, expired_end, stored)
        classified = FrameSteps(found.rows).select("*", f"{found.late} AS {_LATE}")
        classified.select("*", f"NOT {_LATE} AND {found.begins} AS {_BEGINS}")
        number = f"sum(if({_BEGINS}, 1L, 0L)) OVER ({found.order} ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW)"
        # Where gaps differ, late elements of one time may end at different times.
        differ = f"xxhash64({START}, {END}) | {literal(MIN_WATERMARK)}"
        late = differ if POSITION in found.rows.columns else f"{START} + {LATE_SESSIONS}L"
        return classified.select("*", f"if({_LATE}, {late}, {number}) AS {SESSION}").where(f"{END} IS NOT NULL").frame()

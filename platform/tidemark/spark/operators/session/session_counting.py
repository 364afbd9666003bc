"""A trigger's state of sessions: merged when sessions merge, updated with each element, and read again in the next epoch.

A count is the number of elements since the trigger last fired. Sessions that merge add their counts, and the next element fires if the
sum is enough, however much greater it is; so the elements of an epoch and the stored sessions that they join are processed in one order:
that in which windows would merge. A stored session comes just before the first element whose own session reaches it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidemark.semantics.watermarks.watermarks import MAX_WATERMARK
from tidemark.spark.columns.expressions import POSITION, ROWS, START, quoted
from tidemark.spark.frame_steps import FrameSteps
from tidemark.spark.operators.base.partials import Partials
from tidemark.spark.operators.base.tables import StateTables
from tidemark.spark.operators.session.session_input import END
from tidemark.spark.operators.session.session_merging import (
    GROWN,
    HELD,
    MERGED_PANES,
    NOTHING_OUT,
    OUT,
    OUT_KIND,
    OWN_BOUNDS,
    PANES,
    SESSION,
    SessionMerging,
    over,
)
from tidemark.spark.operators.session.session_rules import (
    ASKED,
    COUNTED_OUT,
    COUNTED_OUT_LATE,
    FIRED,
    NEXT,
    TICKS,
    TOUCHED,
    SessionRules,
    has,
)
from tidemark.spark.operators.session.session_state import EPOCH, SessionState
from tidemark.spark.prepared.runtime_literals import runtime_literals

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

COUNTED = "__tm_counted"
COUNTED_LATE = "__tm_counted_late"

KEPT = {
    PANES: "0",
    OUT: NOTHING_OUT,
    GROWN: "false",
    COUNTED: "0L",
    COUNTED_LATE: "0L",
    NEXT: "CAST(NULL AS BIGINT)",
    ASKED: "0",
}
"""Columns of a session's row besides its bounds and partials."""

_KINDS = {PANES: "INT", OUT: OUT_KIND, GROWN: "BOOLEAN", COUNTED: "BIGINT", COUNTED_LATE: "BIGINT", NEXT: "BIGINT"}

_REACH, _TAKEN, _AT, _AT_LATE, _FIRST_STEP, _TURN = "__tm_reached", "__tm_taken", "__tm_at", "__tm_at_late", "__tm_first_step", "__tm_turn"
_JOINED, _JOINED_LATE, _TICKING = "__tm_joined", "__tm_joined_late", "__tm_ticking"
_COUNT, _LATE_COUNT = "__tm_count", "__tm_late_count"


class CountedState(SessionState):
    """The state files of an operator with a trigger.

    Args:
        tables: the operator's files.
        partials: its keys and aggregates.
        rules: of its trigger.
    """

    def __init__(self, tables: StateTables, partials: Partials, rules: SessionRules) -> None:
        super().__init__(tables, partials, remembers=True, remembered=KEPT)
        self._rules = rules

    def as_of(self, rows: DataFrame, watermark: int) -> DataFrame:
        """Return rows as they are after the epoch that ended with a watermark; ``ASKED`` and the number of their epoch stay."""
        due = f"{END} <= {_after(watermark)}"
        if self._rules.phased:
            counted, following = f"if({due}, 0L, {COUNTED})", f"if({due}, NULL, {NEXT})"
        else:
            # A session's last step is its end, which has passed.
            counted, following = COUNTED, f"if({due} AND {NEXT} IS NOT NULL, {END} - 1, {NEXT})"
        return rows.selectExpr(
            *self.columns,
            PANES,
            f"if({has(FIRED)}, {OWN_BOUNDS}, {OUT}) AS {OUT}",
            f"{GROWN} AND NOT {has(FIRED)} AS {GROWN}",
            f"{counted} AS {COUNTED}",
            COUNTED_LATE,
            f"{following} AS {NEXT}",
            *(name for name in (ASKED, EPOCH) if name in rows.columns),
        )

    def written(self, merged: FrameSteps, epoch: int, watermark: int) -> DataFrame:  # noqa: ARG002
        """Return sessions as they are stored."""
        return merged.select(*self.columns, f"{runtime_literals(epoch)[0]} AS {EPOCH}", *KEPT).frame()


class CountedMerging(SessionMerging):
    """The merging of sessions with a trigger.

    Args:
        partials: keys and aggregates of the operator.
        rules: of its trigger.
        watermark: after the epoch before.
    """

    def __init__(self, partials: Partials, rules: SessionRules, watermark: int) -> None:
        super().__init__(partials, remembers=True)
        self._partials = partials
        self._rules = rules
        self._due = _after(watermark)

    def merged(self, fresh: DataFrame, stored: DataFrame | None, expired_end: int) -> DataFrame:
        """Return all sessions of the existing keys, with the trigger's state; a row of ``fresh`` has elements of one time and gap."""
        numbered = self.numbered(fresh, stored, expired_end)
        if stored is None:
            numbered = numbered.selectExpr("*", *(f"CAST(NULL AS {kind}) AS {name}" for name, kind in _KINDS.items()))
        rules = self._rules
        ordered = self._in_turn(numbered) if rules.ordered else numbered
        extra = [
            f"min({START}) AS {START}",
            f"max({END}) AS {END}",
            f"sum({ROWS}) AS {ROWS}",
            f"count_if({ROWS} = 0) AS {HELD}",
            *MERGED_PANES,
            f"count_if({ROWS} = 0 AND {'true' if not rules.phased else f'{END} > {self._due}'}) > 0 AS {_TICKING}",
        ]
        if rules.count:
            extra += [f"sum({_TAKEN}) AS {_TAKEN}", f"{_joined(_AT, COUNTED)} AS {_JOINED}"]
        if rules.late_count:
            extra.append(f"{_joined(_AT_LATE, COUNTED_LATE)} AS {_JOINED_LATE}")
        if rules.step:
            place = f"struct({START}, {POSITION})" if POSITION in ordered.columns else START
            extra.append(f"least(min({NEXT}), min_by({_FIRST_STEP}, if({_FIRST_STEP} IS NULL, NULL, {place}))) AS {NEXT}")
        return self._with_kept(self._partials.grouped(ordered, SESSION, extra=extra))

    def _in_turn(self, rows: DataFrame) -> DataFrame:
        """Return rows with values that depend on their order: the number of earlier elements, and the step that the first one sets."""
        rules = self._rules
        reach = END
        if POSITION in rows.columns:
            # With its own gap, an element's session may end before that of an earlier element.
            order = over(self.keys, f"{START}, {POSITION}")
            reach = f"max(if({ROWS} > 0 AND {SESSION} > 0, {END}, NULL)) OVER ({order} ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW)"
        rows = rows.selectExpr("*", f"if({ROWS} = 0, {START}, {reach}) AS {_TURN}")
        place = [START, *([POSITION] if POSITION in rows.columns else [])]
        order = over([*self.keys, SESSION], ", ".join([_TURN, f"{ROWS} > 0", *place]))
        so_far = f"OVER ({order} ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW)"
        found = rows.selectExpr("*", f"max({END}) {so_far} AS {_REACH}", f"min({NEXT}) {so_far} AS {_FIRST_STEP}")
        early = f"{ROWS} > 0 AND {_REACH} > {self._due}"
        taken = f"if({early}, {ROWS}, 0L)" if rules.phased else ROWS
        step = f"least({START} - pmod({START}, {rules.step or 1}L) + {rules.step or 1}L, {_REACH} - 1)"
        with_turn = found.selectExpr(
            *(name for name in map(quoted, found.columns) if name != quoted(_FIRST_STEP)),
            f"{taken} AS {_TAKEN}",
            f"if({early} AND {_FIRST_STEP} IS NULL, {step}, NULL) AS {_FIRST_STEP}",
        )
        return with_turn.selectExpr("*", f"sum({_TAKEN}) {so_far} AS {_AT}", f"sum({ROWS}) {so_far} AS {_AT_LATE}")

    def _with_kept(self, merged: DataFrame) -> DataFrame:
        """Return merged sessions with counts, steps, and the requests of the epoch."""
        rules, due = self._rules, f"{END} <= {self._due}"
        counts = [f"{_folded(_JOINED, _TAKEN, rules.count)} AS {_COUNT}"] if rules.count else []
        counts += [f"{_folded(_JOINED_LATE, ROWS, rules.late_count)} AS {_LATE_COUNT}"] if rules.late_count else []
        asked = [
            f"if({ROWS} > 0, {TOUCHED}, 0)",
            f"if({_COUNT}.fired, {COUNTED_OUT}, 0)" if rules.count else "0",
            f"if({due} AND {_LATE_COUNT}.fired, {COUNTED_OUT_LATE}, 0)" if rules.late_count else "0",
            f"if({_TICKING}, {TICKS}, 0)",
        ]
        kept = {
            COUNTED: f"{_COUNT}.n" if rules.count else "0L",
            COUNTED_LATE: f"if({due}, {_LATE_COUNT}.n, 0L)" if rules.late_count else "0L",
            NEXT: NEXT if rules.step else "CAST(NULL AS BIGINT)",
            ASKED: f"({' + '.join(asked)})",
        }
        consumed = {_TAKEN, _JOINED, _JOINED_LATE, _TICKING, *kept}
        others = [quoted(name) for name in merged.columns if name not in consumed]
        return merged.selectExpr("*", *counts).selectExpr(*others, *(f"{sql} AS {name}" for name, sql in kept.items()))


def _after(watermark: int) -> str:
    """Return the last end of a session that is due at a watermark."""
    return runtime_literals(min(watermark, MAX_WATERMARK - 1) + 1)[0]


def _joined(at: str, counted: str) -> str:
    """Return the counts of joining stored sessions, each with the number of elements processed before it."""
    return f"array_sort(collect_list(if({ROWS} = 0 AND {counted} > 0, struct({at} AS at, {counted} AS counted), NULL)))"


def _folded(joined: str, taken: str, count: int | None) -> str:
    """Return the result of counting: ``n`` since it last fired, and whether it ``fired``."""
    steps = f"concat({joined}, array(struct({taken} AS at, 0L AS counted)))"
    new = "(x.at - s.at)"
    n = f"CASE WHEN {new} = 0L THEN s.n WHEN s.n >= {count}L THEN pmod({new} - 1L, {count}L) ELSE pmod(s.n + {new}, {count}L) END"
    fired = f"(s.fired OR ({new} > 0L AND s.n + {new} >= {count}L))"
    return (
        f"aggregate({steps}, named_struct('at', 0L, 'n', 0L, 'fired', false), "
        f"(s, x) -> named_struct('at', x.at, 'n', {n} + x.counted, 'fired', {fired}))"
    )

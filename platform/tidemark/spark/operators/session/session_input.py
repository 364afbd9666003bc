"""An epoch's input to session windows: each row, or each bucket of rows that are certainly in one session, as a session.

Two elements of a key that are less than the gap apart are in one session. So with one gap for all, rows may be grouped by key and
``time div gap`` first, which leaves few rows to sort where keys are few. Where keys are many it leaves as many as there were; then
each row is turned into partials by itself, as far as the aggregates allow. Elements that may be late are checked one by one and are
never grouped with others.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from pyspark.sql import Observation
from pyspark.sql import functions as F
from pyspark.sql import types as T

from tidemark.errors import UserCodeError
from tidemark.graph.model.aggregates import Aggregate
from tidemark.graph.operators.window.node import WindowNode
from tidemark.semantics.windows.assigners import DynamicSession, Session
from tidemark.spark.columns.expressions import POSITION, ROW_STATUS, ROWS, START, TIME
from tidemark.spark.columns.row_counts import FILTERED_START, PASSING, RowCounter
from tidemark.spark.frame_steps import FrameSteps
from tidemark.spark.operators.aligned.pre_aggregation import FIRST_START, LATEST
from tidemark.spark.operators.base.partials import Partials
from tidemark.spark.prepared.runtime_literals import runtime_literals

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

END = "__tm_end"
MAX_GAP_MS = 2**53
"""The limit of gaps in the definition; greater ones would exceed the range of SQL timestamps."""

_SLOT = "__tm_slot"
_ALONE = "__tm_alone"
_AT = "__tm_at"


class SessionInput:
    """The DataFrames of an operator's input before anything is merged.

    Args:
        node: the operator; its assigner must be Session or DynamicSession.
        partials: its keys and aggregates.
    """

    def __init__(self, node: WindowNode, partials: Partials) -> None:
        if not isinstance(node.assigner, Session | DynamicSession):
            raise TypeError(f"no step for windows of kind {type(node.assigner).__name__}")
        self._node = node
        self._assigner = node.assigner
        self._partials = partials
        self._single = _single_partials(node, partials)

    @property
    def gap(self) -> int | None:
        """The gap of all elements, None where each has its own."""
        return self._assigner.gap_ms if isinstance(self._assigner, Session) else None

    @property
    def can_be_single(self) -> bool:
        """Whether the partials of one row can be computed without a groupBy."""
        return self._single is not None

    @property
    def can_fuse_counts(self) -> bool:
        """Whether rows that were filtered out before can be grouped together with the others."""
        return self.gap is not None and self._partials.can_fuse_counts

    def bounded(self, rows: DataFrame, now: int) -> DataFrame:
        """Return rows with the bounds of the session of each row alone; ``now`` is the epoch's processing time."""
        start = self._start(now)
        return FrameSteps(rows).select("*", f"{start} AS {START}").select("*", f"{START} + {self._gap(rows)} AS {END}").frame()

    def may_be_late(self, expired_end: int) -> str:
        """Return the condition of bounded rows whose lateness depends on others; ``expired_end`` is the last end without state.

        Where each element has its own gap, rows that are not late can keep later ones from being late, so all up to the last that may be
        late count.
        """
        return (
            f"{END} <= {runtime_literals(expired_end, varying=START)[0]}"
            if self.gap
            else f"{START} < {runtime_literals(expired_end, varying=START)[0]}"
        )

    def grouped(self, rows: DataFrame, now: int, expired_end: int) -> DataFrame:
        """Return partials of rows that are certainly in one session, with ``ROWS`` and, where elements have own gaps, ``POSITION``."""
        return self._grouped(self.bounded(rows, now), expired_end)

    def grouped_with_filtered(self, rows: DataFrame, now: int, expired_end: int, counter: RowCounter) -> DataFrame:
        """Return the same for the passing ones of rows with a status, and count all of them by group; only where ``can_fuse_counts``."""
        passing = f"{ROW_STATUS} = {PASSING}"
        with_status = FrameSteps(rows).select(
            *(f"if({passing}, {name}, NULL) AS {name}" for name in sorted(self._partials.columns_read)),
            # Far from any other time, so that filtered rows are in separate groups.
            f"if({passing}, {self._start(now)}, {FILTERED_START}L + {ROW_STATUS}) AS {START}",
            TIME,
        )
        observation = Observation()
        bounded = with_status.select("*", f"{START} + {self.gap}L AS {END}").frame()
        groups = FrameSteps(self._grouped(bounded, expired_end, f"max({TIME}) AS {LATEST}"))
        counted = groups.observe(observation, *counter.group_metrics(LATEST, observation))
        return counted.where(f"{START} >= {FIRST_START}L").frame().drop(LATEST)

    def _start(self, now: int) -> str:
        return TIME if self._assigner.domain == "event" else runtime_literals(now, varying=TIME)[0]

    def _grouped(self, bounded: DataFrame, expired_end: int, *more: str) -> DataFrame:
        # Filtered rows are in separate groups: their start is far from any time, and must not be used in arithmetic.
        safe = f"({END} > {runtime_literals(expired_end, varying=START)[0]} AND {START} >= {FIRST_START}L)"
        bounds = [f"min({START}) AS {START}", f"max({END}) AS {END}", f"count(1) AS {ROWS}"]
        if self.gap:
            # Odd numbers are buckets, even ones elements that may be late.
            slot = f"if({safe}, 2 * ({START} - pmod({START}, {self.gap}L)) + 1, 2 * {START})"
            by = [_SLOT]
            slotted = FrameSteps(bounded).select("*", f"{slot} AS {_SLOT}")
        else:
            # Rows of the same time: whatever their gaps, their sessions overlap.
            by = [_SLOT, _ALONE]
            slotted = FrameSteps(bounded).select("*", f"{START} AS {_SLOT}", f"if({safe}, NULL, {END}) AS {_ALONE}")
            if POSITION in bounded.columns:
                by.append(_AT)
                slotted.select("*", f"if({safe}, NULL, {POSITION}) AS {_AT}")
                bounds.append(f"min({POSITION}) AS {POSITION}")
        groups = slotted.group([*self._partials.key_columns, *by], *self._partials.creations, *bounds, *more)
        return groups.frame().drop(*by)

    def single(self, rows: DataFrame, now: int) -> DataFrame:
        """Return the same as ``grouped``, each row by itself; only where ``can_be_single``."""
        bounded = self.bounded(rows, now)
        made = bounded.groupBy(*self._partials.key_columns).agg(*self._partials.creations).schema
        single = self._single or {}
        order = [POSITION] if self.gap is None and POSITION in rows.columns else []
        rows_alone = FrameSteps(bounded).select(
            *self._partials.key_columns,
            *(F.expr(single[name]).cast(made[name].dataType).alias(name) for name in self._partials.columns),
            START,
            END,
            f"1L AS {ROWS}",
            *order,
        )
        return rows_alone.frame()

    def _gap(self, rows: DataFrame) -> str:
        """Return the SQL of an element's gap in milliseconds, which raises an error where it is not valid."""
        if isinstance(self._assigner, Session):
            return f"{self._assigner.gap_ms}L"
        text = self._assigner.gap_by
        kind = rows.select(F.expr(text).alias("gap")).schema["gap"].dataType
        if isinstance(kind, T.DayTimeIntervalType):
            gap = f"unix_millis(timestamp_millis(0L) + ({text}))"
        elif isinstance(kind, T.IntegralType | T.NullType):
            gap = f"CAST(({text}) AS BIGINT)"
        else:
            raise UserCodeError(
                f"the gap {text!r} of a session has type {kind.simpleString()}, neither a whole number of milliseconds nor an interval",
                fix="give milliseconds, such as gap_by='CAST(timeout_ms AS BIGINT)', or an interval: gap_by='INTERVAL 5 MINUTES'",
                uid=self._node.uid,
                place=self._node.place,
            )
        quoted_text = text.replace("\\", "\\\\").replace("'", "\\'")
        wrong = (
            f"concat('the gap {quoted_text} of a session is ', coalesce(CAST({gap} AS STRING), 'null'), ', not a positive number of "
            "milliseconds; filter such elements before the window, or give them a gap: coalesce(...)')"
        )
        return f"if({gap} BETWEEN 1L AND {MAX_GAP_MS}L, {gap}, CAST(raise_error({wrong}) AS BIGINT))"


def _single_partials(node: WindowNode, partials: Partials) -> Mapping[str, str] | None:
    """Return the SQL of each partial of one row, None where some aggregate has none."""
    found: list[str] = []
    for _, aggregate in node.aggregates:
        texts = _single(aggregate)
        if texts is None:
            return None
        found += texts
    return dict(zip(partials.columns, found, strict=True))


def _single(aggregate: Aggregate) -> list[str] | None:
    value = f"({aggregate.arguments[0]})" if aggregate.arguments else "1"
    counted = f"({value} IS NOT NULL)"
    match aggregate.kind, [partial.name for partial in aggregate.partials]:
        case "count", ["count"]:
            return [counted]
        case "sum", ["sum"]:
            return [value]
        case "min", ["min"]:
            return [value]
        case "max", ["max"]:
            return [value]
        case "avg", ["sum", "count", "mean"]:
            return [f"{value} / 1", counted, value]
    return None

"""What an operator's pass observes of late rows besides their number: how much more lateness would have kept them, and their windows.

All of it is additional aggregates in the observation that counts the rows, so that it takes no pass of its own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from tidemark.semantics.watermarks.shortfalls import STEPS_MS, Shortfalls
from tidemark.semantics.watermarks.watermarks import MAX_WATERMARK
from tidemark.semantics.windows.slices import Slices
from tidemark.spark.operators.base.touched_times import LATE_TIMES
from tidemark.state.log.progress import LateWindow

SHORTFALL: Final = "__tm_shortfall"
"""The column that ``shortfall_metrics`` counts: the shortfall of a late row or group, null where no lateness keeps it, and of others."""

MAX_GROUPS: Final = 1_000
"""Of so many groups of late rows, those with the most, the rows are counted by window; in most epochs these are all."""

MAX_LATE_WINDOWS: Final = 20
"""So many windows with their numbers of late rows are reported for an epoch, those with the most."""

_KEPT, _REACHABLE, _GREATEST, _WINDOWS = "kept_late_{}_{}", "reachable_late", "greatest_shortfall", "rows_of_late_windows"

_PAIRS: Final = tuple(zip(STEPS_MS[::2], STEPS_MS[1::2], strict=True))
"""Two steps each: their counts are one sum, since each sum costs every row, whether it is late or not."""

_MAX_ROWS: Final = 2**26
"""Fewer late rows of an epoch are counted by steps: two such counts are exact in a double, which no number of rows overflows."""


def last_end_sql(slices: Slices, time: str) -> str:
    """Return SQL of the end of the last window that covers a time, or that came before it if none does; ``time`` is SQL, too."""
    return f"{time} - pmod({time} - ({slices.offset}L), {slices.starts}L) + {slices.span}L"


def shortfall_sql(late: str, last: str | None, least: str) -> str:
    """Return SQL of the shortfall of rows.

    Args:
        late: SQL of whether they are late.
        last: SQL of ``end - 1`` of the last window that they belong to, or of their time; None where no lateness would keep any.
        least: SQL of ``least_kept``.
    """
    return "CAST(NULL AS BIGINT)" if last is None else f"CASE WHEN {late} THEN greatest(1L, {least} - ({last})) END"


def shortfall_metrics(rows: str = "1L", shortfall: str = SHORTFALL) -> list[str]:
    """Return the aggregates, as SQL, of rows with their shortfall; ``rows`` is the number of rows that each stands for."""
    both, second = f"({rows}) * {_MAX_ROWS + 1}D", f"({rows}) * {_MAX_ROWS}D"
    kept = [
        f"sum(CASE WHEN {shortfall} <= {low}L THEN {both} WHEN {shortfall} <= {high}L THEN {second} END) AS {_KEPT.format(low, high)}"
        for low, high in _PAIRS
    ]
    reachable = f"sum(CASE WHEN {shortfall} IS NOT NULL THEN {rows} END) AS {_REACHABLE}"
    return [*kept, reachable, f"max({shortfall}) AS {_GREATEST}"]


def shortfall_metrics_of_times(times: str, least: str, size: str) -> list[str]:
    """Return the same aggregates of rows that each have the times of several late elements.

    Args:
        times: the column of arrays of times.
        least: SQL of ``least_kept``, by ``size`` as the varying column.
        size: the column of their numbers.
    """
    counts = {step: f"size(filter({times}, time -> time >= {least} - {step}L))" for step in STEPS_MS}
    kept = [
        f"sum(CASE WHEN {size} > 0 THEN {counts[low]} + {counts[high]} * {_MAX_ROWS}D END) AS {_KEPT.format(low, high)}"
        for low, high in _PAIRS
    ]
    greatest = f"max(CASE WHEN {size} > 0 THEN greatest(1L, {least} - array_min({times})) END)"
    return [*kept, f"sum({size}) AS {_REACHABLE}", f"{greatest} AS {_GREATEST}"]


def observed_shortfalls(found: Mapping[str, Any], late: int, *, watermark: int, allowed_lateness_ms: int | None) -> Shortfalls | None:
    """Return what ``shortfall_metrics`` observed; None where no row was late, and where too many were to be counted by steps.

    Args:
        found: the observed values.
        late: the number of late rows.
        watermark: W(n-1); after the end of input, no lateness keeps a row.
        allowed_lateness_ms: the operator's, None where it has no such setting.
    """
    if not late:
        return None
    if watermark >= MAX_WATERMARK:
        return Shortfalls(late, allowed_lateness_ms=allowed_lateness_ms)
    if late >= _MAX_ROWS:
        return None
    pairs = (int(found[_KEPT.format(low, high)] or 0) for low, high in _PAIRS)
    kept = tuple(count for pair in pairs for count in (pair % _MAX_ROWS, pair // _MAX_ROWS))
    return Shortfalls(late, kept, found[_REACHABLE] or 0, found[_GREATEST], allowed_lateness_ms)


def window_metric(late: str, start: str, end: str | None, rows: str) -> list[str]:
    """Return the aggregate, as SQL, of the groups of late rows with the most rows; arguments as SQL, those of a group's last window."""
    if end is None:
        return []
    group = f"CASE WHEN {late} THEN array({rows}, {start}, {end}) END"
    return [f"max_by({group}, {group}, {MAX_GROUPS}) AS {_WINDOWS}"]


def observed_windows(found: Mapping[str, Any]) -> list[tuple[int, int, int | None]]:
    """Return what ``window_metric`` observed: numbers of rows, with the bounds that the aggregate was given."""
    return [(rows, start, end) for rows, start, end in found.get(_WINDOWS) or ()]


def observed_starts(found: Mapping[str, Any]) -> list[int]:
    """Return the starts of the windows of late rows: of all groups, where ``window_metric`` observed all; else those of ``late_metric``."""
    # Elements between windows have none.
    groups: Sequence[tuple[int, int | None, int | None]] = observed_windows(found)
    return [start for _, start, _ in groups if start is not None] if len(groups) < MAX_GROUPS else found[LATE_TIMES]


def most_late(groups: Iterable[tuple[int, int | None, int | None]]) -> tuple[LateWindow, ...]:
    """Return the windows with the most late rows, by numbers of rows and bounds; those without bounds are left out."""
    rows: Counter[tuple[int, int]] = Counter()
    for count, start, end in groups:
        if start is not None and end is not None:
            rows[start, end] += count
    most: Sequence[tuple[tuple[int, int], int]] = sorted(rows.items(), key=lambda item: (-item[1], item[0]))[:MAX_LATE_WINDOWS]
    return tuple(LateWindow(start, end, count) for (start, end), count in most)

"""Counts of panes and late elements in a keyed task."""

from __future__ import annotations

from tidemark.semantics.windows.assigners import Cumulative, Sliding, Tumbling
from tidemark.semantics.windows.slices import Slices
from tidemark.semantics.windows.windows import WindowAssigner
from tidemark.spark.operators.base.late_metrics import (
    most_late,
    observed_shortfalls,
    observed_starts,
    observed_windows,
    shortfall_metrics,
    shortfall_sql,
    window_metric,
)
from tidemark.spark.operators.base.touched_times import LATE_TIMES, late_metric
from tidemark.spark.operators.base.windows import MAX_LISTED_WINDOWS, ElementCounts, Panes
from tidemark.spark.operators.keyed.columns import OUTPUT, TAG
from tidemark.spark.operators.keyed.task_run import TaskOutput
from tidemark.spark.operators.process.pane_columns import FROM, INDEX, LATE_ELEMENT, PANE_NOTE, TIMING, TO
from tidemark.spark.prepared.runtime_literals import runtime_literals


def late_counts(least: int, assigner: WindowAssigner) -> list[str]:
    """Return the aggregates of late elements, in addition to their number; ``least`` is ``least_kept`` of the epoch."""
    late = f"{TIMING} = '{LATE_ELEMENT}'"
    (kept,) = runtime_literals(least, varying=FROM)
    shortfall = shortfall_sql(late, f"{TO} - 1L", kept)
    if assigner.merging:
        starts = _newest(f"CASE WHEN {late} THEN {FROM} END", LATE_TIMES)
    else:
        step = Slices.of(assigner).starts if isinstance(assigner, Tumbling | Sliding | Cumulative) else 1_000
        starts = late_metric(late, FROM, f"({kept} - {TO})", step=step)
    return [*shortfall_metrics(INDEX, f"({shortfall})"), *window_metric(late, FROM, TO, INDEX), starts]


def pane_counts(*, merging: bool) -> list[str]:
    """Return the aggregates; ``merging`` is whether windows are sessions, each of which has its own bounds."""
    refired = f"CASE WHEN {TAG} = {PANE_NOTE} AND {TIMING} = 'LATE' THEN {FROM} END"
    texts = [
        f"count_if({TAG} = {PANE_NOTE} AND {TIMING} = '{timing}') AS {name}"
        for timing, name in (("EARLY", "early"), ("ON_TIME", "on_time"), ("LATE", "late_panes"))
    ]
    if merging:
        return [*texts, _newest(refired, "refired")]
    ends = f"CASE WHEN {TAG} = {PANE_NOTE} AND {TIMING} = 'ON_TIME' THEN {TO} END"
    return texts + [f"collect_set({value}) AS {name}" for value, name in ((refired, "refired"), (ends, "ends"))]


def _newest(start: str, name: str) -> str:
    return f"max_by({start}, {start}, {MAX_LISTED_WINDOWS}) AS {name}"


def element_counts(output: TaskOutput, *, watermark: int, allowed_lateness_ms: int) -> ElementCounts:
    """Return the counts of elements; ``watermark`` is W(n-1)."""
    accepted, late, found = output.count("accepted"), output.count("late"), output.found
    shortfalls = observed_shortfalls(found, late, watermark=watermark, allowed_lateness_ms=allowed_lateness_ms)
    return ElementCounts(accepted, late, accepted, 0, _starts(observed_starts(found)), shortfalls, most_late(observed_windows(found)))


def panes_of(output: TaskOutput, *, merging: bool) -> Panes:
    """Return the counts of panes. An aligned window closes once for all keys, a session once for each."""
    on_time, ends = output.count("on_time"), output.found.get("ends")
    return Panes(
        on_time=on_time,
        late=output.count("late_panes"),
        early=output.count("early"),
        closed=on_time if merging or not isinstance(ends, list) else len(ends) or on_time,
        refired=_starts(output.found["refired"]),
        result_rows=output.rows(OUTPUT),
    )


def _starts(value: object) -> tuple[int, ...]:
    return tuple(sorted(set(value))[-MAX_LISTED_WINDOWS:]) if isinstance(value, list) else ()
